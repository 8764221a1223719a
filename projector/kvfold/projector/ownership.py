"""Which partitions this worker folds: claims in Postgres, the same for both logs.

A claim row names owner, epoch, expiry and session. Workers take fair shares. A claim only saves work: what keeps two
workers from writing one partition is the fence in every commit (the offset row's epoch and the expected offset), so a
worker that was stopped past its claim and goes on can work, and never commit.

Times are Postgres's; nothing here influences a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import structlog
from psycopg import Connection

from kvfold.projector.postgres_store import translated
from kvfold.projector.statements import sql_file
from kvfold.schemas.errors import StoreUnavailableError
from kvfold.schemas.limits import DEDUPE_WINDOW_MS
from kvfold.schemas.types import FORMAT_LEVEL

__all__ = ["Claims", "Shares", "fold_session_name"]

_log = structlog.get_logger(__name__)
_FENCE_LOCK_TIMEOUT_MS: Final = 200
_FENCE_ATTEMPTS_MAX: Final = 10
_TRIMMED_ROWS_MAX: Final = 5_000


def fold_session_name(owner: str) -> str:
    """The application name of a worker's fold sessions, by which a successor finds and ends them."""
    return f"kvfold-fold {owner}"[:63]


@dataclass(frozen=True, slots=True)
class Shares:
    """The outcome of a turn: partitions held with their epochs, which of them are above the fair share, and which have
    a recorded pause.
    """

    held: Mapping[int, int]
    surplus: tuple[int, ...]
    paused: frozenset[int]


class Claims:
    """One worker's claims in one generation, over a connection of its own. Belongs to one thread."""

    def __init__(
        self,
        connect: Callable[[], Connection[Any]],
        *,
        generation: int,
        owner: str,
        claim_ms: int,
        partition_count: int,
    ) -> None:
        self._connect = connect
        self._connection: Connection[Any] | None = None
        self._generation = generation
        self._owner = owner
        self._claim_ms = claim_ms
        self._partition_count = partition_count
        self._previous: dict[int, str | None] = {}

    def turn(self) -> Shares:
        """Renews what is held and takes what is free, up to the fair share. Call it a few times per claim time.

        Raises:
            StoreUnavailableError: Postgres is away; what was held stays valid until it expires or is taken.
        """
        with translated():
            self._execute("announce", format_level=FORMAT_LEVEL)
            self._execute("join")
            held: dict[int, int] = dict(self._execute("renew").fetchall())
            row = self._execute("free").fetchone()
            assert row is not None
            free, workers = row
            share = -(-self._partition_count // max(1, workers))
            for partition in free:
                if len(held) >= share:
                    break
                epoch = self._take(partition)
                if epoch is not None:
                    held[partition] = epoch
            paused = frozenset(row[0] for row in self._execute("pauses").fetchall())
            return Shares(held, tuple(sorted(held)[share:]), paused & held.keys())

    def release(self, partitions: Iterable[int]) -> None:
        """Gives partitions up; nothing of them may be under way here any more."""
        with translated():
            self._execute("release", partitions=list(partitions))

    def leave(self) -> None:
        """Gives everything up, at a graceful stop; others take over at their next turn."""
        with translated():
            self._execute("leave")

    def pause(self, partition: int, reason: str, detail: str) -> None:
        """Records why a partition stands still, for waiters and operators."""
        with translated():
            self._execute("pause", partition=partition, reason=reason, detail=detail[:500])

    def resume(self, partition: int) -> None:
        """Removes the record of a pause: the partition folds again."""
        with translated():
            self._execute("resume", partition=partition)

    def trim_ids(self, partition: int) -> bool:
        """Forgets some mutation ids that are out of the dedupe window; false when there were none."""
        with translated():
            cursor = self._execute(
                "trim_ids", partition=partition, window_ms=DEDUPE_WINDOW_MS, rows_max=_TRIMMED_ROWS_MAX
            )
            return cursor.rowcount > 0

    def trim_past(self, partition: int) -> bool:
        """Forgets some of the past that retention does not keep; false when there was nothing.

        First what the families' old records replaced, then the decisions that nothing needs any more.
        """
        with translated():
            turns = ("trim_capsule", "trim_deployment", "trim_orchestration", "trim_decisions")
            trimmed = [
                self._execute(name, partition=partition, rows_max=_TRIMMED_ROWS_MAX).rowcount
                for name in turns
            ]
            return any(count > 0 for count in trimmed)

    def notification_queue_usage(self) -> float:
        """How full Postgres's NOTIFY queue is, 0 to 1: a listener that hangs in a transaction fills it."""
        with translated():
            row = self._execute("notification_queue").fetchone()
            assert row is not None
            return float(row[0])

    def close(self) -> None:
        """Closes the connection; claims held end with the session."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def fence(self, partition: int, epoch: int) -> None:
        """Shuts every earlier owner out; to be done before the partition's state is read. Harmless when repeated.

        Raises:
            StoreUnavailableError: a session that cannot be ended holds the offset row.
        """
        with translated():
            for _ in range(_FENCE_ATTEMPTS_MAX):
                try:
                    return self._fence(partition, epoch)
                except psycopg.errors.LockNotAvailable:
                    # The old owner stopped in the middle of a commit and holds the row.
                    self._terminate(partition)
        raise StoreUnavailableError(f"the offset row of partition {partition} stays locked")

    def _take(self, partition: int) -> int | None:
        """Claims a partition; None if another worker was quicker."""
        row = self._execute("take", partition=partition).fetchone()
        if row is None:
            return None
        epoch, old_owner = row
        self._previous[partition] = old_owner
        _log.info("partition claimed", partition=partition, epoch=epoch, previous_owner=old_owner)
        return int(epoch)

    def _fence(self, partition: int, epoch: int) -> None:
        connection = self._open()
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {_FENCE_LOCK_TIMEOUT_MS}")
            self._execute("fence", partition=partition, epoch=epoch)

    def _terminate(self, partition: int) -> None:
        previous = self._previous.get(partition)
        if previous is not None and previous != self._owner:
            _log.warning("previous owner terminated", partition=partition, previous_owner=previous)
            self._execute("terminate", session=fold_session_name(previous))

    def _execute(self, name: str, /, **params: object) -> psycopg.Cursor[Any]:
        statement = sql_file(f"claim/{name}", self._generation)
        return self._open().execute(statement, {"owner": self._owner, "claim_ms": self._claim_ms} | params)

    def _open(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection
