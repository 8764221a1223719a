"""The swap: from one moment to the next, every read is served from another generation.

One transaction. It locks the offset rows of the serving generation in the order of the partitions, so that they stand
still, waits at most half a second for the other generation to reach them, and moves the pointer. Where that is not reached
everything is let go and tried again, so that writes never stand for longer. A read that sees the new pointer sees rows that
are at least as far as those that any read before saw, since the pointer and the rows of a read are of one snapshot.

The old generation goes on being folded until it is dropped: swapping back is the same operation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import structlog
from psycopg import Connection

from kvfold.log.port import Log
from kvfold.projector.generations import (
    SCHEMA_VERSION,
    GenerationStateError,
    find_generation,
    knows_schema,
    list_generations,
    serving_generation,
)
from kvfold.projector.replaying import next_offsets, pauses
from kvfold.projector.views import show_generation
from kvfold.schemas.errors import UnavailableError
from kvfold.schemas.projection import schema_name

__all__ = ["SwapDelayedError", "Swapped", "swap_generation"]

_log = structlog.get_logger(__name__)
_FREEZE_MS: Final = 500
_RETRY_S: Final = 0.5
_LOOK_S: Final = 0.005
_TELL_S: Final = 5.0
_NEAR_RECORDS: Final = 2_000
"""Records that a generation may be behind when it is worth stopping the serving one for it."""


class SwapDelayedError(UnavailableError):
    """The generation did not get to where the serving one is, or something in the log keeps both from its end."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="swap-delayed")


@dataclass(frozen=True, slots=True)
class Swapped:
    """A swap that was made: from which generation to which, and whether the views for SQL could be switched too."""

    before: int
    after: int
    views: bool


def swap_generation(
    connection: Connection[Any],
    log: Log,
    generation: int | None = None,
    *,
    wait_s: float = 60.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> Swapped:
    """Makes a generation the serving one; without a number the newest verified one. In autocommit mode.

    It has to cover everything that the log had when this was asked for.

    Raises:
        GenerationStateError: there is none that may serve, it serves already, or one of its partitions is paused.
        SwapDelayedError: it did not get there in `wait_s` seconds; names the partitions, and transactions that other
            producers left open in the log. Nothing has changed.
        UnavailableError: log or Postgres is away.
    """
    chosen = _chosen(connection) if generation is None else generation
    _check(connection, chosen)
    before = serving_generation(connection)
    bounds = log.bounds(range(log.describe().partition_count))
    ends = {partition: bound.end for partition, bound in bounds.items()}
    deadline = time.monotonic() + wait_s
    told_at = time.monotonic()
    while True:
        reason = _behind(connection, log, chosen, ends) or _flip(connection, chosen)
        if reason is None:
            break
        now = time.monotonic()
        if now > deadline or should_stop():
            raise SwapDelayedError(f"generation {chosen} was not swapped in: {reason}")
        if now - told_at >= _TELL_S:
            told_at = now
            _log.warning("swap delayed", generation=chosen, reason=reason)
        time.sleep(_RETRY_S)
    _log.info("generation swapped in", generation=chosen, before=before)
    return Swapped(before, chosen, show_generation(connection, chosen))


def _chosen(connection: Connection[Any]) -> int:
    verified = [found.id for found in list_generations(connection) if found.state == "verified"]
    if not verified:
        raise GenerationStateError(
            "no generation is verified: `kvfold rebuild` makes one, and `kvfold swap NUMBER` swaps a retired one back in"
        )
    return verified[-1]


def _check(connection: Connection[Any], generation: int) -> None:
    found = find_generation(connection, generation)
    if found.state == "serving":
        raise GenerationStateError(f"generation {generation} serves already")
    if found.state not in ("verified", "retired"):
        raise GenerationStateError(
            f"generation {generation} is {found.state}: only a verified or a retired one can be swapped in"
        )
    if not knows_schema(found.schema_version):
        raise GenerationStateError(
            f"generation {generation} has tables of version {found.schema_version}; this release knows {SCHEMA_VERSION}"
        )
    paused = pauses(connection, generation)
    if paused:
        names = "; ".join(f"partition {p}: {reason}: {detail}" for p, (reason, detail) in paused.items())
        raise GenerationStateError(f"generation {generation} is paused: {names}")


def _behind(connection: Connection[Any], log: Log, generation: int, ends: Mapping[int, int]) -> str | None:
    """What keeps the generation from being tried; None if it is near enough. Locks nothing."""
    offsets = next_offsets(connection, generation)
    missing = [partition for partition, end in ends.items() if offsets[partition] < end]
    if missing:
        hanging = log.open_transactions(missing)
        if hanging:
            partition, first, producer = hanging[0]
            return (
                f"producer {producer} has left a transaction open in the log, from {partition}:{first} on: it hides what "
                "comes after it"
            )
        return _lag(offsets, ends, generation)
    serving = next_offsets(connection, serving_generation(connection))
    if any(offset - offsets[partition] > _NEAR_RECORDS for partition, offset in serving.items()):
        return _lag(offsets, serving, generation)
    return None


def _lag(offsets: Mapping[int, int], wanted: Mapping[int, int], generation: int) -> str:
    partition = next(p for p, offset in wanted.items() if offsets[p] < offset)
    return (
        f"partition {partition} of generation {generation} is folded up to {partition}:{offsets[partition] - 1}, and "
        f"{partition}:{wanted[partition] - 1} is wanted: does a projector of this release run?"
    )


def _flip(connection: Connection[Any], generation: int) -> str | None:
    """One try; what it failed for, or None."""
    try:
        with connection.transaction():
            # Of one statement, which locks all the rows: whoever waits for one of them waits no longer.
            connection.execute(f"SET LOCAL statement_timeout = {_FREEZE_MS}")
            # Readers are not held up: they read the row as it was.
            connection.execute("SELECT FROM kvfold.pointer FOR UPDATE")
            _check(connection, generation)
            before = serving_generation(connection)
            frozen = _frozen(connection, before)
            reason = _reached(connection, generation, frozen)
            if reason is not None:
                raise _TryAgainError(reason)
            _check(connection, generation)
            connection.execute("UPDATE kvfold.pointer SET serving = %s", (generation,))
            connection.execute(
                "UPDATE kvfold.generation SET state = CASE id WHEN %s THEN 'serving' ELSE 'retired' END "
                "WHERE id IN (%s, %s)",
                (generation, generation, before),
            )
    except _TryAgainError as again:
        return str(again)
    except (psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected):
        return "a fold of the serving generation takes long, and holds its offset row"
    return None


class _TryAgainError(Exception):
    """Rolls the try back."""


def _frozen(connection: Connection[Any], generation: int) -> dict[int, int]:
    """The serving generation's next offsets, which stand still until the transaction ends."""
    rows = connection.execute(
        f"SELECT partition, offset_next FROM {schema_name(generation)}.partition_offset ORDER BY partition FOR UPDATE"
    )
    return dict(rows.fetchall())


def _reached(connection: Connection[Any], generation: int, frozen: Mapping[int, int]) -> str | None:
    deadline = time.monotonic() + _FREEZE_MS / 1000
    while True:
        # Each statement sees what has been committed when it begins.
        offsets = next_offsets(connection, generation)
        if all(offsets[partition] >= offset for partition, offset in frozen.items()):
            return None
        if time.monotonic() > deadline:
            return _lag(offsets, frozen, generation)
        time.sleep(_LOOK_S)
