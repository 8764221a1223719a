"""`kvfold instances list|show|wait|get|kv`: what instances are doing, and what they keep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, EXIT_UNAVAILABLE, fail

if TYPE_CHECKING:
    from kvfold.deploy.http_client import KvfoldClient

__all__ = ["client", "get", "kv", "list_instances", "path_of", "show", "wait", "wait_for_end"]

_STATUSES: Final = ("Running", "Completed", "Failed")
_PAGE_LIMIT: Final = 1_000
_WAIT_STEP_S: Final = 20.0
"""How long one request waits: a longer wait asks again."""

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_seconds = click.FloatRange(min=0)


@click.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only instances that are there.")
@click.option("--prefix", default="", metavar="TEXT", help="Only ids that begin with this.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; all if not given.")
@_json
def list_instances(status: str | None, prefix: str, limit: int | None, as_json: bool) -> None:
    """List instances in byte order of their ids: status, orchestration, execution, time of the last change, id.

    With --json an object a line.

    \b
    Example:
      kvfold instances list --status Running --prefix order-
      kvfold instances list --json | jq -r .instance_id
    """
    with client() as asked:
        for number, item in enumerate(_listed(asked, status, prefix, limit)):
            if number == limit:
                return
            click.echo(_line(item) if as_json else _summary(item))


@click.command
@click.argument("instance_id", metavar="ID")
@click.option("--wait", "wait_s", type=_seconds, default=0.0, help="Wait so many seconds for its end first.")
@_json
def show(instance_id: str, wait_s: float, as_json: bool) -> None:
    """Show an instance with its keys, as it is now; exit code 1 if there is none.

    \b
    Example:
      kvfold instances show order-17
      kvfold instances show order-17 --wait 10 --json
    """
    with client() as asked:
        found = wait_for_end(asked, instance_id, wait_s)
    if as_json:
        click.echo(_line(found))
        return
    for name, text in _facts(found):
        click.echo(f"{name:15} {text}")


@click.command
@click.argument("instance_id", metavar="ID")
@click.option("--timeout", "timeout_s", type=_seconds, help="At most so many seconds; for ever if not given.")
@_json
def wait(instance_id: str, timeout_s: float | None, as_json: bool) -> None:
    """Wait until an instance has ended, and print its output.

    Exit code 0 if it completed, 1 if it failed or there is none, 3 if it goes on after the time. With --json the whole
    instance is printed.

    \b
    Example:
      kvfold instances wait order-17 --timeout 60
    """
    with client() as asked:
        found = wait_for_end(asked, instance_id, float("inf") if timeout_s is None else timeout_s)
    tell_end(found, as_json=as_json)


@click.command
@click.argument("instance_id", metavar="ID")
@click.argument("key")
@_json
def get(instance_id: str, key: str, as_json: bool) -> None:
    """Print the value of an instance's KEY; exit code 1 if there is none.

    \b
    Example:
      kvfold instances get order-17 state
    """
    from kvfold.deploy.http_client import RefusedError
    from kvfold.deploy.scopes import key_url

    with client() as asked:
        try:
            found = asked.get(key_url(f"{path_of(instance_id)}/kv", key)).json()
        except RefusedError as refused:
            if refused.status == 404:
                fail(f"there is no {key!r} in {instance_id}", EXIT_REFUSED)
            raise
    click.echo(_line(found) if as_json else found["value"])


@click.command
@click.argument("instance_id", metavar="ID")
@_json
def kv(instance_id: str, as_json: bool) -> None:
    """Print an instance's keys in byte order: the execution that wrote it last, the key, the value as JSON.

    With --json an object a line. Exit code 1 if there is no such instance.

    \b
    Example:
      kvfold instances kv order-17
    """
    with client() as asked:
        found = _instance(asked, f"{path_of(instance_id)}/kv", instance_id)["kv"]
    for key in sorted(found, key=str.encode):
        click.echo(_line({"key": key, **found[key]}) if as_json else _kv_line(key, found[key]))


def client() -> KvfoldClient:
    """The server at KVFOLD_URL."""
    from kvfold.deploy.environment import started_process
    from kvfold.deploy.http_client import KvfoldClient

    return KvfoldClient(started_process().url)


def path_of(instance_id: str) -> str:
    """The path of an instance's routes. Raises `click.BadParameter` for what is no id."""
    from kvfold.deploy.scopes import InstanceScope
    from kvfold.schemas.names import check_orchestration_name

    problem = check_orchestration_name("the instance id", instance_id)
    if problem is not None:
        raise click.BadParameter(problem, param_hint="ID")
    return InstanceScope(instance_id).base


def wait_for_end(asked: KvfoldClient, instance_id: str, timeout_s: float) -> dict[str, Any]:
    """The instance when it has ended, or as it is when the time is over; ends the command where there is none."""
    deadline = monotonic() + timeout_s
    while True:
        wait_s = max(0.0, min(deadline - monotonic(), _WAIT_STEP_S))
        found = _instance(asked, path_of(instance_id), instance_id, wait=f"{wait_s:.3f}")
        if found["status"] != "Running" or monotonic() >= deadline:
            return found


def tell_end(found: dict[str, Any], *, as_json: bool) -> None:
    """Prints how an instance ended, with the exit code of `kvfold instances wait`."""
    if as_json:
        click.echo(_line(found))
    instance_id = found["instance_id"]
    if found["status"] == "Running":
        fail(f"{instance_id} goes on", EXIT_UNAVAILABLE)
    if found["status"] == "Failed":
        fail(f"{instance_id} failed: {found['failure']}", EXIT_REFUSED)
    if not as_json:
        click.echo(json.dumps(found["output"], ensure_ascii=False))


def _instance(asked: KvfoldClient, url: str, instance_id: str, **parameters: str) -> dict[str, Any]:
    from kvfold.deploy.http_client import RefusedError

    try:
        found: dict[str, Any] = asked.get(url, **parameters).json()
    except RefusedError as refused:
        if refused.status == 404:
            fail(f"there is no instance {instance_id!r}", EXIT_REFUSED)
        raise
    return found


def _listed(
    asked: KvfoldClient, status: str | None, prefix: str, limit: int | None
) -> Iterator[dict[str, Any]]:
    pages = asked.pages(
        "/v1/instances",
        status=status,
        prefix=prefix or None,
        limit=min(limit or _PAGE_LIMIT, _PAGE_LIMIT),
    )
    for page in pages:
        yield from page["instances"]


def _line(facts: dict[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False)


def _printable(text: str) -> str:
    """As it is, unless it would move the cursor."""
    return text if text.isprintable() else json.dumps(text)


def _summary(item: dict[str, Any]) -> str:
    columns = [
        f"{item['status']:9}",
        item["updated_at"],
        f"execution {item['execution_id']}",
        _printable(item["name"]),
        _printable(item["instance_id"]),
    ]
    return "  ".join(columns)


def _facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """An instance for people: what there is to say of it, by name."""
    yield "instance", _printable(found["instance_id"])
    yield "orchestration", _printable(found["name"])
    yield "status", found["status"]
    for name in ("custom_status", "failure"):
        if found[name] is not None:
            yield name.replace("_", " "), _printable(found[name])
    yield "input", json.dumps(found["input"], ensure_ascii=False)
    if found["status"] == "Completed":
        yield "output", json.dumps(found["output"], ensure_ascii=False)
    yield "mode", found["mode"]
    yield "execution", f"{found['execution_id']}, {found['history_length']} events"
    if found["owner"] is not None:
        yield "last worker", _printable(found["owner"])
    yield "created", found["created_at"]
    yield "updated", found["updated_at"]
    for key in sorted(found["kv"], key=str.encode):
        yield "key", _kv_line(key, found["kv"][key])


def _kv_line(key: str, entry: dict[str, Any]) -> str:
    return f"{entry['execution_id']}  {_printable(key)}  {json.dumps(entry['value'], ensure_ascii=False)}"
