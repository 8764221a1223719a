"""`kvfold checkpoint write|show`."""

from __future__ import annotations

import json
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.deploy.stopping import stop_signals

if TYPE_CHECKING:
    from kvfold.projector.checkpoint import Checkpoint

__all__ = ["checkpoint"]

_File = click.Path(dir_okay=False, path_type=Path)
_Existing = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group
def checkpoint() -> None:
    """Keep the projection in a file, so that the log's oldest records can go.

    \b
    Example:
      kvfold checkpoint write projection.checkpoint
    """


@checkpoint.command
@click.argument("file", type=_File)
@click.option("--rate", type=click.FloatRange(min=1.0), help="At most so many records or rows a second.")
@click.option(
    "--from-checkpoint",
    type=_Existing,
    help="Fold from this earlier file on, instead of from the log's start.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def write(file: Path, rate: float | None, from_checkpoint: Path | None, as_json: bool) -> None:
    """Write the projection as it is now into FILE, after it was verified.

    Folds the log, compares the serving projection with that as `kvfold verify` does, and writes what was folded. A rebuild
    begins from it with `kvfold rebuild --from-checkpoint FILE`. FILE is whole, or not there; Ctrl-C leaves nothing behind.

    \b
    Example:
      kvfold checkpoint write projection.checkpoint
    """
    with stop_signals() as stop:
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.progress import progress_of
        from kvfold.deploy.verifying import run_checkpoint

        settings = started_process(level_unless_set="warning")
        try:
            with progress_of("records") as tell:
                done = run_checkpoint(settings, stop, file, rate=rate, checkpoint=from_checkpoint, tell=tell)
        except CancelledError as stopped:
            fail(str(stopped), EXIT_REFUSED)
        except OSError as error:
            fail(f"{file} cannot be written: {error.strerror or error}", EXIT_REFUSED)
    _tell(done, as_json=as_json)


@checkpoint.command
@click.argument("file", type=_Existing)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--delete-records",
    is_flag=True,
    help="Print the JSON with which kafka-delete-records removes what the checkpoint covers.",
)
def show(file: Path, as_json: bool, delete_records: bool) -> None:
    """Check that FILE is whole, and print what it covers.

    \b
    Example:
      kvfold checkpoint show projection.checkpoint --delete-records > offsets.json
      kafka-delete-records.sh --bootstrap-server 127.0.0.1:9092 --offset-json-file offsets.json
    """
    from kvfold.projector.checkpoint import read_checkpoint

    found = read_checkpoint(file)
    if delete_records:
        topic = found.log.name
        partitions = [
            {"topic": topic, "partition": partition, "offset": offset}
            for partition, offset in sorted(found.offsets.items())
        ]
        click.echo(json.dumps({"partitions": partitions, "version": 1}))
    else:
        _tell(found, as_json=as_json)


def _tell(found: Checkpoint, *, as_json: bool) -> None:
    from kvfold.schemas.position import format_positions

    position = format_positions({partition: offset - 1 for partition, offset in found.offsets.items()})
    if as_json:
        data = {
            "file": str(found.path),
            "log": found.log.name,
            "log_id": found.log.log_id,
            "position": position,
        }
        click.echo(json.dumps(data))
    else:
        click.echo(f"{found.path} covers the log {found.log.name} up to {position}")
