"""`kvfold instances start|raise|cancel|prune|delete`: each appends one mutation and tells its outcome."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any, Final

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.deploy.cli.instance_reads import client, path_of, tell_end, wait_for_end
from kvfold.schemas.errors import InvalidError

__all__ = ["cancel", "delete", "prune", "raise_", "start"]

_SOURCE: Final = "/kvfold/cli"
_MAY_BE_APPENDED: Final = frozenset({"server-away", "log-unavailable", "outcome-unknown", "partition-paused"})

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_id = click.option("--id", "mutation_id", metavar="UUID", help="The mutation's id: repeating it is safe.")


@click.command
@click.argument("instance_id", metavar="ID")
@click.argument("name")
@click.option("--input", "input_", metavar="JSON", default="null", help="The input; - is standard input.")
@click.option(
    "--mode",
    type=click.Choice(["runtime", "external"]),
    default="runtime",
    show_default=True,
    help="Whether workers run it, or a service of its own tells what it did.",
)
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), help="Then wait so many seconds for its end.")
@_id
@_json
def start(
    instance_id: str,
    name: str,
    input_: str,
    mode: str,
    wait_s: float | None,
    mutation_id: str | None,
    as_json: bool,
) -> None:
    """Start an instance ID of the orchestration NAME; exit code 1 if the id is taken.

    With --wait the output is printed, with the exit codes of `kvfold instances wait`.

    \b
    Example:
      kvfold instances start order-17 order --input '{"amount": 5}'
      kvfold instances start order-18 order --input - --wait 30 < order.json
    """
    body = {"name": name, "input": _parsed("--input", input_), "mode": mode}
    decision = _mutate("started.v1", instance_id, body, mutation_id)
    if wait_s is None:
        _tell(decision, f"{instance_id} is started", as_json=as_json)
        return
    with client() as asked:
        tell_end(wait_for_end(asked, instance_id, wait_s), as_json=as_json)


@click.command("raise")
@click.argument("instance_id", metavar="ID")
@click.argument("name")
@click.option("--data", metavar="JSON", default="null", help="What comes with it; - is standard input.")
@_id
@_json
def raise_(instance_id: str, name: str, data: str, mutation_id: str | None, as_json: bool) -> None:
    """Raise the event NAME for an instance: it waits until the code waits for it.

    \b
    Example:
      kvfold instances raise order-17 approved --data '{"by": "ada"}'
    """
    body = {"name": name, "data": _parsed("--data", data)}
    decision = _mutate("event-raised.v1", instance_id, body, mutation_id)
    _tell(decision, f"{name} is raised for {instance_id}", as_json=as_json)


@click.command
@click.argument("instance_id", metavar="ID")
@click.option("--reason", default="", help="Why; the instance's code is told.")
@_id
@_json
def cancel(instance_id: str, reason: str, mutation_id: str | None, as_json: bool) -> None:
    """Ask an instance to end; its code may tidy up first. `kvfold instances wait` tells when it has.

    \b
    Example:
      kvfold instances cancel order-17 --reason "sold out"
    """
    decision = _mutate("cancel-requested.v1", instance_id, {"reason": reason}, mutation_id)
    _tell(decision, f"{instance_id} is asked to end", as_json=as_json)


@click.command
@click.argument("instance_id", metavar="ID")
@click.option("--before", type=click.IntRange(min=1), help="Every execution below this one (format level 2).")
@click.option(
    "--execution", "executions", type=click.IntRange(min=1), multiple=True, help="This one; may be repeated."
)
@click.option("--keep-values", is_flag=True, help="Keep the keys that they wrote last.")
@_id
@_json
def prune(
    instance_id: str,
    before: int | None,
    executions: tuple[int, ...],
    keep_values: bool,
    mutation_id: str | None,
    as_json: bool,
) -> None:
    """Remove ended executions of an instance, with their history and the keys that they wrote last.

    \b
    Example:
      kvfold instances prune order-17 --execution 1 --execution 2
      kvfold instances prune order-17 --before 40 --keep-values
    """
    if before is None and not executions:
        raise click.UsageError("say which executions: --before N, or --execution N")
    body: dict[str, Any] = {"execution_ids": list(executions), "keep_values": keep_values}
    verb = "executions-pruned.v1"
    if before is not None:
        verb, body["before"] = "executions-pruned.v2", before
    decision = _mutate(verb, instance_id, body, mutation_id)
    count = decision.get("removed")
    _tell(decision, f"{count} execution{'' if count == 1 else 's'} removed", as_json=as_json)


@click.command
@click.argument("instance_id", metavar="ID")
@click.option("--incarnation", type=click.IntRange(min=0), help="Only if it is still this one.")
@_id
@_json
def delete(instance_id: str, incarnation: int | None, mutation_id: str | None, as_json: bool) -> None:
    """Remove an instance with all that is kept of it, and its children; whether it has ended or not.

    \b
    Example:
      kvfold instances delete order-17
    """
    body = {} if incarnation is None else {"incarnation": incarnation}
    decision = _mutate("instance-deleted.v1", instance_id, body, mutation_id)
    _tell(decision, f"{instance_id} is gone", as_json=as_json)


def _mutate(verb: str, instance_id: str, body: dict[str, Any], mutation_id: str | None) -> dict[str, Any]:
    """Sends the mutation and gives its decision; exit code 1, with what was decided, where it did not apply."""
    from uuid6 import uuid7

    from kvfold.deploy.http_client import ServerAwayError
    from kvfold.schemas.names import orchestration_scope

    path_of(instance_id)
    identity = mutation_id or str(uuid7())
    attributes = {
        "specversion": "1.0",
        "id": identity,
        "type": f"kvfold.orchestration.{verb}",
        "source": _SOURCE,
        "partitionkey": orchestration_scope(instance_id),
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
    }
    with client() as asked:
        try:
            decision = asked.mutate(attributes, json.dumps(body).encode())
        except ServerAwayError as away:
            if away.code in _MAY_BE_APPENDED:
                away.add_note(f"It may have been appended: repeat it with --id {identity}")
            raise
    if decision.get("status") != "applied":
        code = decision.get("code")
        hint = ": `kvfold format raise` raises it" if code == "unknown-type" else ""
        fail(f"{instance_id}: {decision.get('detail')} ({code}){hint}", EXIT_REFUSED)
    return decision


def _tell(decision: dict[str, Any], done: str, *, as_json: bool) -> None:
    position = decision.get("position")
    if as_json:
        click.echo(json.dumps(decision, ensure_ascii=False))
    else:
        click.echo(f"{done}, at {position}" if position else done)


def _parsed(option: str, text: str) -> Any:
    """The JSON value of an option, or of standard input."""
    from kvfold.schemas.strict_json import decode_json

    raw = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        return decode_json(raw)
    except InvalidError as error:
        hint = " (a text is written with quotes: '\"text\"')" if text != "-" else ""
        raise click.BadParameter(f"it is no JSON: {error}{hint}", param_hint=option) from error
