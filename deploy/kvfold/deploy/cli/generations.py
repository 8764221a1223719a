"""`kvfold rebuild|generations|swap|drop`: the projection made again beside the one that serves, and exchanged."""

from __future__ import annotations

import json
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.deploy.stopping import stop_signals

if TYPE_CHECKING:
    from kvfold.log.settings import Settings
    from kvfold.reads.operations import GenerationView

__all__ = ["drop", "generations", "rebuild", "swap"]

_WORKERS_MAX = 64


@click.command
@click.option(
    "--workers",
    type=click.IntRange(1, _WORKERS_MAX),
    default=1,
    show_default=True,
    help="Processes that fold.",
)
@click.option(
    "--rate", type=click.FloatRange(min=1.0), help="At most so many records a second, over all workers."
)
@click.option(
    "--to-position", metavar="POSITIONS", help="Stop there, such as 0:12,3:1042, each the last one covered."
)
@click.option(
    "--from-checkpoint",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Begin from this file of `kvfold checkpoint write`, instead of the log's start.",
)
@click.option("--cancel", is_flag=True, help="Throw away the rebuild that was begun and not finished.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rebuild(
    workers: int,
    rate: float | None,
    to_position: str | None,
    from_checkpoint: Path | None,
    cancel: bool,
    as_json: bool,
) -> None:
    """Fold the log from its start into a new generation, beside the one that serves.

    Reads and writes go on meanwhile. Every decision is compared with the recorded one; a difference stops the rebuild and
    is named. At the end the new generation is verified, and `kvfold swap` makes it serve. Ctrl-C is safe: the same command
    goes on, also after a crash. The database is the one in KVFOLD_POSTGRES, else that of the `kvfold dev` that runs on
    KVFOLD_DATA; KVFOLD_KAFKA names the log's brokers unless the log is embedded.

    \b
    Example:
      kvfold rebuild --workers 2 --rate 5000
      kvfold swap
    """
    if cancel and (rate is not None or to_position is not None):
        raise click.UsageError("--cancel goes with no other option")
    with stop_signals() as stop:
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.progress import progress_of
        from kvfold.deploy.rebuilding import RebuildOptions, cancel_rebuild, run_rebuild

        settings = started_process(level_unless_set="warning")
        try:
            if cancel:
                generation = cancel_rebuild(settings, stop)
            else:
                options = RebuildOptions(workers, rate, to_position, from_checkpoint)
                with progress_of("records") as tell:
                    generation = run_rebuild(settings, options, stop, tell=tell).generation
        except CancelledError as stopped:
            fail(str(stopped), EXIT_REFUSED)
    if cancel:
        _say(as_json, f"generation {generation} is gone", {"generation": generation, "state": "dropped"})
    elif to_position is not None:
        text = f"generation {generation} stands at {to_position}, in schema kvfold_g{generation}"
        _say(as_json, text, {"generation": generation, "state": "replaying", "position": to_position})
    else:
        text = f"generation {generation} is verified; make it serve with: kvfold swap {generation}"
        _say(as_json, text, {"generation": generation, "state": "verified"})


@click.command
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a generation.")
def generations(as_json: bool) -> None:
    """Show the generations of the projection, and how far each of them is.

    \b
    Example:
      kvfold generations --json
    """
    from kvfold.deploy.environment import started_process

    found = _generations(started_process(level_unless_set="warning"))
    if as_json:
        from kvfold.query_api.operations import generation_data

        for view in found:
            click.echo(json.dumps(generation_data(view)))
    else:
        _show(found)


@click.command
@click.argument("generation", type=click.IntRange(min=1), required=False)
@click.option(
    "--wait",
    type=click.FloatRange(min=0.0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the generation to get to where the serving one is.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def swap(generation: int | None, wait: float, as_json: bool) -> None:
    """Make a generation serve: the one that was verified last, or GENERATION.

    From one moment to the next, for every reader at once; no read fails, waits or goes back. The old generation is folded on
    until it is dropped, so swapping back is the same command with its number.

    \b
    Example:
      kvfold swap
      kvfold swap 1
    """
    with stop_signals() as stop:
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.operating import operated
        from kvfold.projector.swapping import swap_generation

        with operated(started_process(level_unless_set="warning")) as (connection, log):
            done = swap_generation(connection, log, generation, wait_s=wait, should_stop=stop.is_set)
    text = f"generation {done.after} serves; generation {done.before} is folded on until: kvfold drop {done.before}"
    if not done.views:
        text += "\nthe views in schema kvfold are in use and still show the old one"
    _say(as_json, text, {"serving": done.after, "before": done.before, "views": done.views})


@click.command
@click.argument("generation", type=click.IntRange(min=1))
@click.option(
    "--wait",
    type=click.FloatRange(min=0.0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for those who use its tables.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def drop(generation: int, wait: float, as_json: bool) -> None:
    """Drop a generation that does not serve, with all its tables. The log still has everything.

    \b
    Example:
      kvfold drop 1
    """
    with stop_signals() as stop:
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.operating import connected
        from kvfold.projector.dropping import drop_generation

        with connected(started_process(level_unless_set="warning")) as connection:
            drop_generation(connection, generation, wait_s=wait, should_stop=stop.is_set)
    _say(as_json, f"generation {generation} is gone", {"generation": generation, "state": "dropped"})


def _say(as_json: bool, text: str, data: dict[str, Any]) -> None:
    click.echo(json.dumps(data) if as_json else text)


def _generations(settings: Settings) -> tuple[GenerationView, ...]:
    from kvfold.deploy.operating import operated_dsn
    from kvfold.reads.executor import Reader, read_pool
    from kvfold.reads.operations import generations as all_generations

    with read_pool(operated_dsn(settings), size_max=1) as pool:
        reader = Reader(pool)
        try:
            return reader.read(all_generations()).value
        finally:
            reader.close()


def _show(found: tuple[GenerationView, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("generation", "state", "tables")
    table.add_column("records folded", justify="right")
    table.add_column("of a rebuild's target", justify="right")
    table.add_column("verified")
    for view in found:
        folded = sum(offset + 1 for offset in view.offsets.values())
        target = None if view.rebuild is None else sum(offset + 1 for offset in view.rebuild.target.values())
        table.add_row(
            str(view.id),
            f"[bold]{view.state}[/bold]" if view.serving else view.state,
            f"version {view.schema_version}",
            f"{folded:,}",
            "" if target is None else f"{min(folded, target):,} of {target:,}",
            _verified(view),
        )
    Console().print(table)


def _verified(view: GenerationView) -> str:
    found = view.verification
    if found is None:
        return ""
    outcome = f"[red]{found.difference_count:,} rows differ[/red]" if found.difference_count else "equal"
    return f"{found.finished_at:%Y-%m-%d %H:%M} {outcome}"
