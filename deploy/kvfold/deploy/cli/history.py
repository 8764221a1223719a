"""`kvfold history`: who asked for what in a scope, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kvfold.schemas.errors import InvalidError

if TYPE_CHECKING:
    from kvfold.deploy.http_client import KvfoldClient

__all__ = ["history"]

_PAGE_LIMIT: Final = 1_000


@click.command
@click.argument("scope")
@click.argument("key", required=False)
@click.option("--namespace", metavar="NAME", help="Of a deployment; all if not given.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, help="At most so many entries; 100 if not given."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, an object a line.")
def history(scope: str, key: str | None, namespace: str | None, limit: int, as_json: bool) -> None:
    """Show what was asked for in a SCOPE, or about one KEY of it, newest first; refused attempts too.

    A value of the past is read with `kvfold get … --as-of POSITION`.

    \b
    Example:
      kvfold history d:dep-1
      kvfold history c:alice:capsule:notes todo --limit 10 --json
    """
    from kvfold.deploy.environment import started_process
    from kvfold.deploy.http_client import KvfoldClient
    from kvfold.deploy.scopes import parse_scope

    try:
        family = parse_scope(scope).family
    except InvalidError as error:
        raise click.BadParameter(str(error), param_hint="SCOPE") from error
    with KvfoldClient(started_process().url) as client:
        for number, entry in enumerate(_entries(client, family, scope, key, namespace, limit)):
            if number >= limit:
                break
            click.echo(json.dumps(entry, ensure_ascii=False) if as_json else _sentence(entry))


def _entries(
    client: KvfoldClient, family: str, scope: str, key: str | None, namespace: str | None, limit: int
) -> Iterator[dict[str, Any]]:
    from urllib.parse import quote

    pages = client.pages(
        f"/v1/history/{family}/{quote(scope, safe='')}",
        key=key,
        namespace=namespace,
        limit=min(limit, _PAGE_LIMIT),
    )
    for page in pages:
        yield from page["history"]


def _sentence(entry: dict[str, Any]) -> str:
    """An entry for people: `3:1042  2026-01-31T12:00:00.000Z  deployment.put user greeting  applied, version 3  alice`."""
    kind = str(entry["type"] or "?").removeprefix("kvfold.").removesuffix(".v1")
    what = [kind, *(entry[name] for name in ("namespace", "key", "prefix") if entry[name] is not None)]
    outcome = [entry["status"], entry["code"]]
    outcome += [f"version {entry['version']}" if entry["version"] is not None else None]
    outcome += [f"removed {entry['removed']}" if entry["removed"] is not None else None]
    outcome += [f"repeat of {entry['repeat_of']}" if entry["repeat_of"] is not None else None]
    parts = [entry["position"], entry["time"], " ".join(map(_printable, what))]
    parts += [", ".join(str(part) for part in outcome if part is not None)]
    return "  ".join([*parts, *([_printable(entry["actor"])] if entry["actor"] else [])])


def _printable(text: str) -> str:
    """As it is, unless it would move the cursor or be taken for two words."""
    return text if text.isprintable() and text and " " not in text else json.dumps(text)
