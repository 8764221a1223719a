"""`kvfold watch`: changes as they happen, a line each."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kvfold.deploy.stopping import StopRequest
    from kvfold.producers.watching import SnapshotEnd, Watch, WatchEvent

__all__ = ["watch"]


@click.command
@click.argument("scope", required=False)
@click.option(
    "--family", type=click.Choice(["capsule", "deployment", "orchestration"]), help="Only these scopes."
)
@click.option("--namespace", metavar="NAME", help="Only this namespace of deployments.")
@click.option("--prefix", default="", metavar="TEXT", help="Only keys that begin with it.")
@click.option("--after", metavar="POSITION", help="Go on behind a position, or from the 'beginning'.")
@click.option("--snapshot", is_flag=True, help="Begin with what the scope holds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, values in base64.")
def watch(
    scope: str | None,
    family: str | None,
    namespace: str | None,
    prefix: str,
    after: str | None,
    snapshot: bool,
    as_json: bool,
) -> None:
    """Follow the changes of a SCOPE, or of everything, until Ctrl-C.

    SCOPE is d:DEPLOYMENT, c:PRINCIPAL:capsule:ID or o:INSTANCE. Each change is one line, in the order of the log; a lost
    connection is made again where it was. What was printed last is told at the end, for --after.

    \b
    Example:
      kvfold watch d:dep-1 --snapshot
      kvfold watch --family capsule --json | jq .key
    """
    from kvfold.deploy.environment import started_process
    from kvfold.deploy.stopping import stop_signals
    from kvfold.producers.watching import watch as changes_of

    with stop_signals() as stop:
        changes = changes_of(
            started_process().url,
            scope=scope,
            family=family,
            namespace=namespace,
            prefix=prefix,
            after=after,
            snapshot=snapshot,
        )
        # Ctrl-C comes while a line is awaited; the command ends between two of them.
        threading.Thread(target=_close_at, args=(stop, changes), daemon=True).start()
        _print(changes, as_json=as_json)
    if changes.position is not None:
        click.echo(f"kvfold: watched up to {changes.position}", err=True)


def _close_at(stop: StopRequest, changes: Watch) -> None:
    stop.wait()
    changes.close()


def _print(changes: Watch, *, as_json: bool) -> None:
    try:
        for event in changes:
            click.echo(_json(event) if as_json else _line(event))
    except BrokenPipeError:
        # Whoever read has enough, as `head` has; Python must not complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _json(event: WatchEvent | SnapshotEnd) -> str:
    from kvfold.producers.watching import SnapshotEnd

    if isinstance(event, SnapshotEnd):
        return json.dumps({"event": "snapshot-end", "position": event.position})
    return json.dumps({"event": type(event).__name__.lower(), **event.data}, ensure_ascii=False)


def _line(event: WatchEvent | SnapshotEnd) -> str:
    """Position, what happened, scope and key, and what there is to say of it; no value."""
    from kvfold.producers.watching import Cleared, Delete, Put

    match event:
        case Put():
            about = [f"{event.data['size']} bytes"]
            about += [f"version {event.version}"] if event.version is not None else []
            return _columns(event, "put", event.key, event.namespace, about)
        case Delete():
            about = [f"version {event.version}"] if event.version is not None else []
            return _columns(event, "delete", event.key, event.namespace, about)
        case Cleared():
            about = [f"{event.removed} removed"] if event.removed is not None else []
            return _columns(event, "cleared", event.prefix + "*", None, about)
        case _:
            return f"{event.position}\tsnapshot-end"


def _columns(event: WatchEvent, what: str, key: str, namespace: str | None, about: list[str]) -> str:
    # A key may hold what would end the line, or a column.
    named = json.dumps(key, ensure_ascii=False) if not key.isprintable() else key
    place = event.scope if namespace is None else f"{event.scope} {namespace}"
    return "\t".join([event.position, what, place, named, ", ".join(about), event.actor or ""]).rstrip("\t")
