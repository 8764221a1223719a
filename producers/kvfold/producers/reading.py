"""Reads that see one's own writes (row X5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import Final, Protocol, TypeVar

from kvfold.producers.producer import Producer
from kvfold.reads.as_of import offset_at_time
from kvfold.reads.query import Query, Read
from kvfold.schemas.errors import InvalidError, NotUpToPositionError
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX
from kvfold.schemas.position import Position
from kvfold.schemas.times import milliseconds_of

__all__ = ["AsOf", "OwnWritesReader", "QueryReader"]

AsOf = Position | datetime | None
"""Which past to read: a position of the scope's partition, or a time with its zone; None = now."""

T = TypeVar("T")
_ROUNDS_MAX: Final = 8
_PAUSE_S_MIN: Final = 0.002
_PAUSE_S_MAX: Final = 0.05


class QueryReader(Protocol):
    """The part of `kvfold.reads.executor.Reader` that clients use."""

    def read(self, query: Query[T]) -> Read[T]:
        """Runs a read. Raises `StoreUnavailableError` where Postgres is away or no generation serves."""
        ...


class OwnWritesReader:
    """Reads that cover every write that the log acknowledged to one producer before the read began.

    A read tells how far it covers its partition in the same statement, so what was folded already costs one round trip;
    else the read waits for the projection and is done again.
    """

    def __init__(
        self, producer: Producer, reader: QueryReader, *, timeout_s: float = OPEN_WAIT_SECONDS_MAX
    ) -> None:
        self._producer = producer
        self._reader = reader
        self._timeout_s = timeout_s

    def read(self, scope: str, query: Callable[[int], Query[T]]) -> T:
        """Reads of a scope; `query` makes the query, given the scope's partition.

        Raises:
            StoreUnavailableError: Postgres is away.
            NotUpToPositionError: the projection does not cover the producer's own writes in time.
            PartitionPausedError: it will not, until an operator mends the partition.
        """
        return self._read(query(self._producer.partition_of(scope))).value

    def read_everywhere(self, query: Query[T]) -> T:
        """As `read`, of all partitions."""
        return self._read(query).value

    def read_until(
        self,
        scope: str,
        query: Callable[[int], Query[T]],
        is_enough: Callable[[T], bool],
        *,
        timeout_s: float,
    ) -> T:
        """Reads after each commit of the scope's partition until the value is enough or the time is over; the last value.

        A read takes place whatever the time. Commits are told by the projector; nothing is polled.

        Raises:
            PartitionPausedError: the value is not enough, and an operator has to mend the partition first.
            NotUpToPositionError: this producer does not wait for the projection.
            StoreUnavailableError: as `read`, also in the middle of the wait.
        """
        deadline = monotonic() + timeout_s
        asked = query(self._producer.partition_of(scope))
        assert asked.partition is not None
        pause_s = _PAUSE_S_MIN
        while True:
            began = monotonic()
            read = self._read(asked)
            left_s = deadline - monotonic()
            if is_enough(read.value) or left_s <= 0:
                return read.value
            next_ = read.positions[asked.partition] + 1
            try:
                self._producer.covered(asked.partition, next_, timeout_s=left_s).result()
            except NotUpToPositionError:
                if monotonic() < deadline:
                    raise
                return read.value
            # A partition in full swing commits hundreds of times a second; nobody needs to look that often for long.
            sleep(max(0.0, min(began + pause_s, deadline) - monotonic()))
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _read(self, asked: Query[T]) -> Read[T]:
        """Reads until every partition that the query spans covers this producer's writes, or the past that is asked for."""
        deadline = monotonic() + self._timeout_s
        read = self._reader.read(asked)
        # More than one round only where a partition is behind, or Postgres went back after a crash and is folded again.
        for _ in range(_ROUNDS_MAX):
            behind = self._behind(asked, read)
            if not behind:
                break
            for partition, offset in behind:
                left_s = max(0.0, deadline - monotonic())
                self._producer.covered(partition, offset, timeout_s=left_s).result()
            read = self._reader.read(asked)
        return read

    def _behind(self, asked: Query[T], read: Read[T]) -> list[tuple[int, int]]:
        found = []
        for partition, position in read.positions.items():
            # The past up to there holds this producer's writes up to there, and has to be folded.
            past = asked.as_of
            offset = self._producer.acknowledged(partition) if past is None else past[partition]
            if offset is not None and position < offset:
                found.append((partition, offset))
        return found

    def offset(self, scope: str, as_of: AsOf) -> int | None:
        """The offset of the scope's partition that a position or a time means; None = now.

        A time means the last record whose effective time is not after it; -1 where there is none.

        Raises:
            InvalidError: `as-of-other-partition`; `malformed-as-of`: a time without its zone; `as-of-in-future`.
            GoneError: the time is before what retention has kept; and what `read` raises.
        """
        match as_of:
            case None:
                return None
            case Position(partition=partition, offset=offset):
                own = self._producer.partition_of(scope)
                if partition != own:
                    raise InvalidError(
                        f"{as_of} is no position of the scope's partition, which is {own}",
                        code="as-of-other-partition",
                    )
                return offset
            case datetime():
                if as_of.utcoffset() is None:
                    raise InvalidError(f"the time {as_of} has no zone", code="malformed-as-of")
                if as_of > datetime.now(UTC):
                    raise InvalidError(f"the time {as_of} is in the future", code="as-of-in-future")
                time_ms = milliseconds_of(as_of)
                return self.read(scope, lambda partition: offset_at_time(time_ms, partition=partition))
