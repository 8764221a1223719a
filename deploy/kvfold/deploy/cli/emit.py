"""`kvfold emit`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.deploy.stopping import stop_signals

if TYPE_CHECKING:
    from kvfold.deploy.emitting import Emitted, Outcome

__all__ = ["emit"]


@click.command
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the outcome of each line as a JSON line.")
@click.option(
    "--patience",
    "patience_s",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds to try again while kvfold is away.",
)
def emit(file: Path, as_json: bool, patience_s: float) -> None:
    """Send the CloudEvents of FILE, one JSON object a line; - is standard input.

    Each event has its own id (a UUID), so the same file may be sent again, after Ctrl-C for example: nothing is applied
    twice within 7 days. Lines of one scope are applied in their order. Exit code 1 if a line was no event or was refused.

    \b
    Example:
      kvfold emit events.ndjson
      generate-events | kvfold emit - --json

    \b
    A line:
      {"specversion": "1.0", "type": "kvfold.deployment.put.v1", "source": "/me",
       "id": "0197a2b4-0000-7000-8000-000000000001", "partitionkey": "d:dep-1",
       "kvnamespace": "user", "subject": "greeting", "datacontenttype": "text/plain", "data": "hello"}
    (on one line)
    """
    with stop_signals() as stop:
        from kvfold.deploy.emitting import emit_lines
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.http_client import KvfoldClient, ServerAwayError
        from kvfold.deploy.lines import read_lines
        from kvfold.deploy.progress import progress_of

        settings = started_process()
        last = 0

        def tell(outcome: Outcome) -> None:
            nonlocal last
            last = max(last, outcome.line)
            _tell(outcome, as_json=as_json)
            progress("sent", last, total)

        with (
            _opened(file) as (descriptor, total),
            KvfoldClient(settings.url) as client,
            progress_of("lines") as progress,
        ):
            lines = read_lines(descriptor, stop)
            try:
                emitted = emit_lines(lines, client, stop, tell=tell, patience_s=patience_s)
            except ServerAwayError as away:
                away.add_note(f"Outcomes are known up to line {last}; sending the same file again is safe.")
                raise
        _conclude(emitted, stopped=stop.is_set(), say=click.echo if not as_json else _to_stderr)


def _tell(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        facts = {"line": outcome.line, **outcome.facts, "status": outcome.status}
        click.echo(json.dumps(facts, ensure_ascii=False))
    elif outcome.status != "applied":
        reason = ", ".join(str(outcome.facts[name]) for name in ("code", "detail") if outcome.facts.get(name))
        click.echo(f"line {outcome.line}: {outcome.status}, {reason}", err=True)


def _conclude(emitted: Emitted, *, stopped: bool, say: Callable[[str], None]) -> None:
    """The last line, and the exit code."""
    counts = ", ".join(f"{count} {status}" for status, count in sorted(emitted.counts.items()))
    if stopped:
        fail(
            f"stopped after line {emitted.last_line} ({counts or 'nothing sent'}); sending the same file again is safe",
            EXIT_REFUSED,
        )
    say(counts or "no events")
    if not emitted.is_all_applied:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _to_stderr(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[int, int | None]]:
    """A descriptor to read from, and the number of lines where it is known."""
    from kvfold.deploy.lines import count_lines

    if str(file) == "-":
        yield sys.stdin.fileno(), None
        return
    try:
        descriptor = os.open(file, os.O_RDONLY)
        total = count_lines(file) if file.is_file() else None
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from error
    try:
        yield descriptor, total
    finally:
        os.close(descriptor)
