"""`kvfold get|put|delete|list`: entries from the shell, over HTTP."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.schemas.errors import InvalidError

if TYPE_CHECKING:
    from kvfold.deploy.http_client import KvfoldClient
    from kvfold.deploy.scopes import Scope

__all__ = ["delete", "get", "list_keys", "put"]

_NAMESPACE_DEFAULT: Final = "user"
_PAGE_LIMIT: Final = 1_000
_SOURCE: Final = "/kvfold/cli"
_MAY_BE_APPENDED: Final = frozenset({"server-away", "log-unavailable", "outcome-unknown", "partition-paused"})

_namespace = click.option("--namespace", metavar="NAME", help="Of a deployment's entry; 'user' if not given.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_expect = click.option(
    "--expect",
    metavar="PRECONDITION",
    help="any, absent, present, version:N[,M], sha256:HEX[,HEX], each of the last two also as not:…; 'any' if not given.",
)
_as_of = click.option(
    "--as-of",
    metavar="POSITION|TIME",
    help="Read the past: as of a position such as 3:1042, or a time such as 2026-01-31T12:00:00Z.",
)
_id = click.option("--id", "mutation_id", metavar="UUID", help="The mutation's id: repeating it is safe.")


@click.command
@click.argument("scope")
@click.argument("key")
@_namespace
@_as_of
@_json
def get(scope: str, key: str, namespace: str | None, as_of: str | None, as_json: bool) -> None:
    """Print the value of a KEY, byte for byte; exit code 1 if there is none.

    SCOPE is d:DEPLOYMENT, c:PRINCIPAL:capsule:ID or o:INSTANCE.

    \b
    Example:
      kvfold get d:dep-1 settings.json
      kvfold get c:alice:capsule:notes todo --json
      kvfold get d:dep-1 settings.json --as-of 2026-01-31T12:00:00Z
    """
    from kvfold.deploy.http_client import RefusedError
    from kvfold.deploy.scopes import InstanceScope, key_url

    place = _parsed(scope)
    with _client() as client:
        try:
            answer = client.get(
                key_url(f"{place.base}/kv{_namespace_part(place, namespace)}", key), as_of=as_of
            )
        except RefusedError as refused:
            if refused.status == 404:
                fail(f"there is no {key!r} in {scope}", EXIT_REFUSED)
            raise
    # An instance's value is text inside a JSON document, every other one is the answer's body.
    value = answer.json()["value"].encode() if isinstance(place, InstanceScope) else answer.content
    if as_json:
        version = answer.headers.get("X-Object-Version")
        position = answer.headers.get("X-Kvfold-Position")
        facts: dict[str, Any] = {"key": key, **_shown(value)}
        if version is not None:
            facts["version"] = int(version)
        click.echo(_line(facts | {"position": position}))
    else:
        _print_bytes(value)


@click.command
@click.argument("scope")
@click.argument("key")
@click.argument("value", required=False)
@click.option(
    "--file", "file", type=click.Path(path_type=Path), help="Take the value from a file; - is stdin."
)
@_namespace
@_expect
@_id
@_json
def put(
    scope: str,
    key: str,
    value: str | None,
    file: Path | None,
    namespace: str | None,
    expect: str | None,
    mutation_id: str | None,
    as_json: bool,
) -> None:
    """Write a KEY: the VALUE given, or a file's bytes, or standard input. Whatever was there is replaced.

    With --expect it is written only if that holds when the mutation is decided; else exit code 1 and the current version.

    \b
    Example:
      kvfold put d:dep-1 greeting hello
      kvfold put d:dep-1 settings.json --file settings.json --expect version:3
      date | kvfold put c:alice:capsule:notes seen
    """
    place = _parsed(scope)
    if value is not None and file is not None:
        raise click.UsageError("VALUE and --file say different things: give one of them")
    body = os.fsencode(value) if value is not None else _read(file)
    attributes = _attributes(place, scope, "put", key, namespace=namespace, expect=expect)
    _mutate(attributes, body, mutation_id=mutation_id, as_json=as_json)


@click.command
@click.argument("scope")
@click.argument("key")
@_namespace
@_expect
@_id
@_json
def delete(
    scope: str, key: str, namespace: str | None, expect: str | None, mutation_id: str | None, as_json: bool
) -> None:
    """Delete a KEY; one that is not there is deleted already.

    \b
    Example:
      kvfold delete d:dep-1 greeting
      kvfold delete d:dep-1 settings.json --expect version:4
    """
    attributes = _attributes(_parsed(scope), scope, "delete", key, namespace=namespace, expect=expect)
    _mutate(attributes, None, mutation_id=mutation_id, as_json=as_json)


@click.command("list")
@click.argument("scope")
@click.option("--prefix", default="", help="Only keys that begin with this.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many keys; all if not given.")
@_namespace
@_as_of
@_json
def list_keys(
    scope: str, prefix: str, limit: int | None, namespace: str | None, as_of: str | None, as_json: bool
) -> None:
    """List the keys of a SCOPE in byte order, one a line; with --json an object a line.

    \b
    Example:
      kvfold list d:dep-1 --prefix docs/
      kvfold list c:alice:capsule:notes --json
    """
    place = _parsed(scope)
    with _client() as client:
        for number, entry in enumerate(_entries(client, place, namespace, prefix, limit, as_of)):
            if limit is not None and number >= limit:
                break
            if as_json:
                click.echo(_line(entry))
            else:
                _print_bytes(entry["key"].encode() + b"\n")


def _entries(
    client: KvfoldClient,
    place: Scope,
    namespace: str | None,
    prefix: str,
    limit: int | None,
    as_of: str | None,
) -> Iterator[dict[str, Any]]:
    """The entries of a scope, page by page: at least their keys."""
    from kvfold.deploy.scopes import DeploymentScope, InstanceScope

    if isinstance(place, InstanceScope):
        _refuse_namespace(namespace)
        yield from _instance_entries(client.get(f"{place.base}/kv", as_of=as_of).json(), prefix)
        return
    of_deployment = isinstance(place, DeploymentScope)
    collection = f"{place.base}/{'objects' if of_deployment else 'keys'}"
    if of_deployment:
        namespace = namespace or _NAMESPACE_DEFAULT
    else:
        _refuse_namespace(namespace)
    pages = client.pages(
        collection,
        namespace=namespace,
        prefix=prefix or None,
        limit=min(limit or _PAGE_LIMIT, _PAGE_LIMIT),
        as_of=as_of,
    )
    for page in pages:
        for entry in page["objects" if of_deployment else "keys"]:
            yield entry if of_deployment else {"key": entry}


def _instance_entries(snapshot: Any, prefix: str) -> Iterator[dict[str, Any]]:
    """The keys of an instance, of which there are ten at most, each with its value and last-writing execution."""
    values: dict[str, dict[str, Any]] = snapshot["kv"]
    for key in sorted(values, key=str.encode):
        if key.startswith(prefix):
            yield {"key": key, **values[key]}


def _mutate(
    attributes: dict[str, str], body: bytes | None, *, mutation_id: str | None, as_json: bool
) -> None:
    """Sends the mutation and prints its decision; exit code 1 where it did not apply."""
    from uuid6 import uuid7

    from kvfold.deploy.http_client import ServerAwayError

    identity = mutation_id or str(uuid7())
    with _client() as client:
        try:
            decision = client.mutate(attributes | {"id": identity}, body)
        except ServerAwayError as away:
            if away.code in _MAY_BE_APPENDED:
                away.add_note(f"It may have been appended: repeat it with --id {identity}")
            raise
    if as_json:
        click.echo(_line(decision))
    applied = decision.get("status") == "applied"
    if not applied:
        fail(_sentence(decision), EXIT_REFUSED)
    if not as_json:
        click.echo(_sentence(decision))


def _attributes(
    place: Scope, scope: str, verb: str, key: str, *, namespace: str | None, expect: str | None
) -> dict[str, str]:
    """The CloudEvents attributes of a put or a delete, but for the id."""
    from kvfold.deploy.scopes import CapsuleScope, InstanceScope
    from kvfold.schemas.precondition import Precondition

    if isinstance(place, InstanceScope):
        raise click.UsageError(
            "an instance's values are written by its orchestration; read them with get or list"
        )
    is_capsule = isinstance(place, CapsuleScope)
    if is_capsule:
        _refuse_namespace(namespace)
    verbs = {"put": "set", "delete": "deleted"} if is_capsule else {"put": "put", "delete": "deleted"}
    attributes = {
        "specversion": "1.0",
        "type": f"kvfold.{'capsule' if is_capsule else 'deployment'}.{verbs[verb]}.v1",
        "source": _SOURCE,
        "partitionkey": scope,
        "subject": key,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    if not is_capsule:
        attributes["kvnamespace"] = namespace or _NAMESPACE_DEFAULT
    if expect is not None:
        # Refused here already: a misspelt precondition is a matter of usage.
        try:
            attributes["kvexpected"] = str(Precondition.parse(expect))
        except InvalidError as error:
            raise click.BadParameter(str(error), param_hint="--expect") from error
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InvalidError("the key is not UTF-8", code="invalid-key") from None
    return attributes


def _sentence(decision: dict[str, Any]) -> str:
    """A decision for people: `applied, version 3, at 5:12`."""
    parts = [str(decision.get("status", "unknown"))]
    parts += [str(decision["code"])] if decision.get("code") else []
    if decision.get("version") is not None:
        parts.append(
            f"{'' if decision.get('status') == 'applied' else 'current '}version {decision['version']}"
        )
    parts += [f"at {decision['position']}"] if decision.get("position") else []
    parts += [str(decision["detail"])] if decision.get("detail") else []
    return ", ".join(parts)


def _parsed(scope: str) -> Scope:
    from kvfold.deploy.scopes import parse_scope

    try:
        return parse_scope(scope)
    except InvalidError as error:
        raise click.BadParameter(str(error), param_hint="SCOPE") from error


def _namespace_part(place: Scope, namespace: str | None) -> str:
    """The part of a key route that names the namespace: deployments have one, others do not."""
    from urllib.parse import quote

    from kvfold.deploy.scopes import DeploymentScope

    if isinstance(place, DeploymentScope):
        return f"/{quote(namespace or _NAMESPACE_DEFAULT, safe='')}"
    _refuse_namespace(namespace)
    return ""


def _refuse_namespace(namespace: str | None) -> None:
    if namespace is not None:
        raise click.UsageError("--namespace belongs to deployments (d:…): this scope has none")


def _client() -> KvfoldClient:
    from kvfold.deploy.environment import started_process
    from kvfold.deploy.http_client import KvfoldClient

    return KvfoldClient(started_process().url)


def _read(file: Path | None) -> bytes:
    if file is None or str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from error


def _shown(value: bytes) -> dict[str, str]:
    """A value in JSON, as the object browser has it."""
    try:
        return {"value": value.decode(), "encoding": "utf8"}
    except UnicodeDecodeError:
        return {"value": base64.b64encode(value).decode("ascii"), "encoding": "base64"}


def _line(facts: dict[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False)


def _print_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
