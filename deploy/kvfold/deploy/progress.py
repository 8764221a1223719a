"""Progress of a long command: a bar on a terminal, a line in the log every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

__all__ = ["progress_of"]

_log = structlog.get_logger(__name__)
_LINE_EVERY_S: Final = 5.0


@contextmanager
def progress_of(unit: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Gives a function to be called with (step, done, total) as often as one likes; total None = unknown.

    Everything goes to standard error, so that standard output is the command's own.
    """
    if not sys.stderr.isatty():
        yield _lines(unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = {}

        def tell(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(f"{step} {unit}", total=total)
            bar.update(tasks[step], completed=done, total=total)

        yield tell


def _lines(unit: str) -> Callable[[str, int, int | None], None]:
    told: dict[str, float] = {}

    def tell(step: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if done == total or now - told.setdefault(step, now) >= _LINE_EVERY_S:
            told[step] = now
            _log.info("progress made", step=step, unit=unit, done=done, total=total)

    return tell
