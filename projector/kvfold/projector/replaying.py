"""Folding a generation beside the serving one up to given offsets: what rebuild, verify and checkpoints stand on.

    generation = create_generation(connection, "scratch")
    replay(log, dsn, generation=generation, until={0: 1_043, 1: 20}, settings=ProjectorSettings(owner="verify-1"))

Afterwards every partition of the generation stands at its offset of `until` (the next one, not the last one covered), or
above it where it was there already; no record at or after it is folded. Interrupted at any moment, by SIGKILL too, the
same call goes on where the last commit left it. Several processes that replay one generation share its partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from typing import Any, Final

import psycopg
from psycopg import Connection

from kvfold.log.port import Log
from kvfold.projector.generation_run import GenerationRun, Limits
from kvfold.projector.loops import CommitCheck
from kvfold.projector.pace import Pace
from kvfold.projector.postgres_store import translated
from kvfold.projector.run import tune_collector
from kvfold.projector.supervision import ProjectorSettings
from kvfold.projector.telemetry import Telemetry
from kvfold.schemas.errors import KvfoldError, StoreUnavailableError
from kvfold.schemas.projection import schema_name

__all__ = ["ReplayPausedError", "next_offsets", "pauses", "replay"]

_LOOK_S: Final = 0.1


class ReplayPausedError(KvfoldError):
    """A partition paused: `code` is the reason. What was folded before stays, and the same call later goes on."""

    def __init__(self, partition: int, reason: str, detail: str) -> None:
        super().__init__(f"partition {partition} stopped: {reason}: {detail}", code=reason)
        self.partition = partition


def replay(
    log: Log,
    dsn: str,
    *,
    generation: int,
    until: Mapping[int, int],
    settings: ProjectorSettings,
    pace: Pace | None = None,
    new_check: Callable[[], CommitCheck] | None = None,
    told: Callable[[Mapping[int, int]], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Folds every partition of the log up to its offset in `until`; `told` is given the next offsets as it goes.

    Raises:
        ReplayPausedError: a partition cannot go on: the log begins above its offset or is another one, its format level
            is above this release's, a check failed, or the fold did.
        CancelledError: `should_stop` said so.
    """
    tune_collector()
    run = GenerationRun(
        log,
        dsn,
        settings,
        Telemetry(serving=generation).of(generation),
        partition_count=len(until),
        limits=Limits(until, pace, new_check),
    )
    look = _Look(dsn, generation)
    run.start()
    try:
        while True:
            offsets, paused = look()
            told(offsets)
            if all(offsets.get(partition, -1) >= offset for partition, offset in until.items()):
                # What was committed last may be under a check still.
                run.stop()
                _raise_first(run.paused())
                return
            _raise_first(run.paused() or paused)
            if should_stop():
                raise CancelledError(f"the replay of generation {generation} was stopped")
            time.sleep(_LOOK_S)
    finally:
        run.stop()
        look.close()


def next_offsets(connection: Connection[Any], generation: int) -> dict[int, int]:
    """Each partition's next offset."""
    rows = connection.execute(
        f"SELECT partition, offset_next FROM {schema_name(generation)}.partition_offset"
    )
    return dict(rows.fetchall())


def pauses(connection: Connection[Any], generation: int) -> dict[int, tuple[str, str]]:
    """The partitions that stand still, with reason and detail."""
    rows = connection.execute(
        f"SELECT partition, reason, detail FROM {schema_name(generation)}.pause ORDER BY partition"
    )
    return {partition: (reason, detail) for partition, reason, detail in rows}


def _raise_first(paused: Mapping[int, tuple[str, str]]) -> None:
    for partition, (reason, detail) in paused.items():
        raise ReplayPausedError(partition, reason, detail)


class _Look:
    """How far the generation is, over a connection of its own; while Postgres is away, as it was last seen."""

    def __init__(self, dsn: str, generation: int) -> None:
        self._dsn = dsn
        self._generation = generation
        self._connection: Connection[Any] | None = None
        self._seen: tuple[dict[int, int], dict[int, tuple[str, str]]] = ({}, {})

    def __call__(self) -> tuple[dict[int, int], dict[int, tuple[str, str]]]:
        try:
            with translated():
                if self._connection is None or self._connection.closed:
                    self._connection = psycopg.connect(
                        self._dsn, autocommit=True, connect_timeout=5, application_name="kvfold-replay"
                    )
                self._seen = (
                    next_offsets(self._connection, self._generation),
                    pauses(self._connection, self._generation),
                )
        except StoreUnavailableError:
            pass
        return self._seen

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
