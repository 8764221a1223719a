"""`kvfold verify`."""

from __future__ import annotations

import json
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.deploy.stopping import stop_signals

if TYPE_CHECKING:
    from kvfold.projector.verify import Verification

__all__ = ["verification_data", "verify"]


@click.command
@click.option(
    "--at",
    metavar="POSITIONS",
    help="Compare there, such as 0:12,3:1042, each the last one covered; what is not named where it is now.",
)
@click.option("--rate", type=click.FloatRange(min=1.0), help="At most so many records or rows a second.")
@click.option(
    "--from-checkpoint",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Fold from this file of `kvfold checkpoint write` on, instead of from the log's start.",
)
@click.option("--scopes", is_flag=True, help="Print the digest of each scope in each table, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (a line each, with --scopes).")
def verify(
    at: str | None, rate: float | None, from_checkpoint: Path | None, scopes: bool, as_json: bool
) -> None:
    """Compare the serving projection with a fresh fold of the log; exit code 1 if a row differs.

    Folds the log into tables of its own and compares every row's digest at one position, while reads and writes go on. What
    differs is named: table, key and both digests. With --rate it leaves a serving system its share of the machine, so it can
    be scheduled; the result is also in `kvfold generations` and in the projectors' metrics. Ctrl-C leaves nothing behind.

    \b
    Example:
      kvfold verify --rate 2000
    """
    with stop_signals() as stop:
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.progress import progress_of
        from kvfold.deploy.verifying import run_verify
        from kvfold.schemas.position import parse_positions

        settings = started_process(level_unless_set="warning")

        def tell_scope(table: str, scope: str, digest: str) -> None:
            data = {"table": table, "scope": scope, "sha256": digest}
            click.echo(json.dumps(data) if as_json else f"{digest}  {table}  {scope}")

        try:
            with progress_of("records") as tell:
                positions = None if at is None else parse_positions(at)
                told = tell_scope if scopes else None
                result = run_verify(
                    settings,
                    stop,
                    at=positions,
                    rate=rate,
                    checkpoint=from_checkpoint,
                    tell=tell,
                    tell_scope=told,
                )
        except CancelledError as stopped:
            fail(str(stopped), EXIT_REFUSED)
    click.echo(json.dumps(verification_data(result)) if as_json else _text(result))
    if not result.is_equal:
        fail(f"{result.difference_count} rows differ from what the log folds to", EXIT_REFUSED)


def verification_data(result: Verification) -> dict[str, Any]:
    """A verification as JSON."""
    from kvfold.schemas.position import format_positions

    return {
        "generation": result.generation,
        "position": format_positions(result.offsets),
        "equal": result.is_equal,
        "difference_count": result.difference_count,
        "differences": [
            {"table": found.table, "key": list(found.key), "folded": found.folded, "serving": found.serving}
            for found in result.differences
        ],
        "unsettled_scopes": result.unsettled_scopes,
        "tables": {
            table: {"rows": content.rows, "sha256": content.sha256}
            for table, content in result.tables.items()
        },
    }


def _text(result: Verification) -> str:
    from kvfold.schemas.position import format_positions

    lines = [f"generation {result.generation} at {format_positions(result.offsets)}"]
    lines += [
        f"  {content.sha256}  {content.rows:>10,} rows  {table}" for table, content in result.tables.items()
    ]
    for found in result.differences:
        key = json.dumps(list(found.key))
        lines.append(
            f"{found.table} {key}: {found.folded or 'absent'} by the log, {found.serving or 'absent'} as served"
        )
    if result.unsettled_scopes:
        lines.append(
            f"{result.unsettled_scopes} scopes changed after the position: their rows without a history were not compared"
        )
    if result.is_equal:
        lines.append("every row is what the log folds to")
    return "\n".join(lines)
