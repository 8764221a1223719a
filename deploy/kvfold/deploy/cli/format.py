"""`kvfold format show|raise`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kvfold.deploy.stopping import stop_signals

if TYPE_CHECKING:
    from kvfold.projector.format_level import LogLevel

__all__ = ["format_"]


@click.group("format")
def format_() -> None:
    """Look after the log's format level: which record types count.

    \b
    Example:
      KVFOLD_POSTGRES=postgresql:///kvfold kvfold format show
    """


@format_.command
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(as_json: bool) -> None:
    """Print the level of the log, and what this release and the running projectors know.

    \b
    Example:
      kvfold format show --json
    """
    from kvfold.deploy.environment import started_process
    from kvfold.deploy.operating import connected
    from kvfold.projector.format_level import format_level
    from kvfold.projector.generations import check_set_up

    with connected(started_process(level_unless_set="warning")) as connection:
        check_set_up(connection)
        _tell(format_level(connection), as_json=as_json)


@format_.command("raise")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def raise_(as_json: bool) -> None:
    """Raise the log to the format level of this release, after every projector was upgraded. There is no way back.

    Refused while a projector runs that does not know the level. Until then, record types of the new level are rejected
    as unknown, by old and new releases alike. Safe to repeat: a raise that was interrupted goes on.

    \b
    Example:
      KVFOLD_POSTGRES=postgresql:///kvfold KVFOLD_KAFKA=127.0.0.1:9092 kvfold format raise
    """
    with stop_signals() as stop:
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.operating import operated
        from kvfold.projector.format_level import raise_format_level

        with operated(started_process(level_unless_set="warning")) as (connection, log):
            state = raise_format_level(log, connection, should_stop=stop.is_set)
    _tell(state, as_json=as_json)


def _tell(state: LogLevel, *, as_json: bool) -> None:
    from kvfold.schemas.types import FORMAT_LEVEL

    if as_json:
        facts = {
            "level": state.level,
            "release_level": FORMAT_LEVEL,
            "partitions": state.partitions,
            "projectors": state.projectors,
        }
        click.echo(json.dumps(facts))
        return
    click.echo(f"the log has format level {state.level}; this release knows {FORMAT_LEVEL}")
    above = sorted(partition for partition, level in state.partitions.items() if level > state.level)
    if above:
        click.echo(f"a raise was interrupted: partitions {above} are above it; `kvfold format raise` goes on")
    for owner, level in state.projectors.items():
        known = "is of a release that does not say what it knows" if level is None else f"knows {level}"
        click.echo(f"projector {owner} {known}")
