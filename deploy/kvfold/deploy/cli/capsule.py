"""`kvfold capsule list|quota`: what capsules keep, and how much they may, over HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import INT64_MAX

if TYPE_CHECKING:
    from kvfold.deploy.http_client import KvfoldClient

__all__ = ["capsule"]

_PAGE_LIMIT: Final = 1_000

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group
def capsule() -> None:
    """See what capsules keep, and set how much they may.

    \b
    Example:
      kvfold capsule list
      kvfold capsule quota c:alice:capsule:notes --set 1048576
    """


@capsule.command("list")
@click.option("--prefix", help="Only namespaces that begin with this: 'alice:' is all of alice's.")
@_json
def list_namespaces(prefix: str | None, as_json: bool) -> None:
    """List the namespaces of capsules, one a line: keys, bytes, quota, scope. With --json an object a line.

    Bytes are of keys and values. A namespace that was emptied is listed with 0 keys.

    \b
    Example:
      kvfold capsule list --prefix alice:
      kvfold capsule list --json
    """
    from kvfold.schemas.names import capsule_scope

    with _client() as client:
        for page in client.pages("/v1/capsules", prefix=prefix, limit=_PAGE_LIMIT):
            for found in page["capsules"]:
                scope = capsule_scope(found["principal"], found["capsule_id"])
                _tell({"scope": scope} | found, as_json=as_json)


@capsule.command
@click.argument("scope")
@click.option(
    "--set",
    "bytes_max",
    type=click.IntRange(0, INT64_MAX),
    metavar="BYTES",
    help="The most bytes of keys and values. Below the usage is accepted: only shrinking goes on then.",
)
@_json
def quota(scope: str, bytes_max: int | None, as_json: bool) -> None:
    """Print the usage and the quota of a capsule's namespace; with --set, set the quota first.

    SCOPE is c:PRINCIPAL:capsule:ID. The quota is kept in the log: writes after it in the log are held to it.

    \b
    Example:
      kvfold capsule quota c:alice:capsule:notes
      kvfold capsule quota c:alice:capsule:notes --set 1048576
    """
    from kvfold.deploy.scopes import CapsuleScope, parse_scope

    try:
        place = parse_scope(scope)
    except InvalidError as error:
        raise click.BadParameter(str(error), param_hint="SCOPE") from error
    if not isinstance(place, CapsuleScope):
        raise click.BadParameter("only capsules have a quota: c:PRINCIPAL:capsule:ID", param_hint="SCOPE")
    with _client() as client:
        if bytes_max is not None:
            _set(client, scope, bytes_max)
        usage = client.get(f"{place.base}/usage").json()
    _tell({"scope": scope} | usage, as_json=as_json)


def _set(client: KvfoldClient, scope: str, bytes_max: int) -> None:
    """Sets the quota and waits for the decision; repeating it is harmless."""
    from uuid6 import uuid7

    attributes = {
        "specversion": "1.0",
        "id": str(uuid7()),
        "type": "kvfold.capsule.quota-set.v1",
        "source": "/kvfold/cli",
        "partitionkey": scope,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
    }
    decision = client.mutate(attributes, json.dumps({"bytes_max": bytes_max}).encode())
    if decision.get("status") != "applied":
        fail(f"the quota was not set: {decision.get('detail') or decision.get('code')}", EXIT_REFUSED)


def _tell(usage: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(usage, ensure_ascii=False))
    else:
        keys, size, quota_bytes = usage["keys"], usage["bytes"], usage["bytes_max"]
        click.echo(f"{keys} key{'' if keys == 1 else 's'}, {size} of {quota_bytes} bytes, {usage['scope']}")


def _client() -> KvfoldClient:
    from kvfold.deploy.environment import started_process
    from kvfold.deploy.http_client import KvfoldClient

    return KvfoldClient(started_process().url)
