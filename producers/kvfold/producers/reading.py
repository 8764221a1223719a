"""Reads that see one's own writes (row X5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final, Protocol, TypeVar

from kvfold.producers.producer import Producer
from kvfold.reads.as_of import offset_at_time
from kvfold.reads.query import Query, Read
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX
from kvfold.schemas.position import Position

__all__ = ["AsOf", "OwnWritesReader", "QueryReader"]

AsOf = Position | datetime | None
"""Which past to read: a position of the scope's partition, or a time with its zone; None = now."""

T = TypeVar("T")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ROUNDS_MAX: Final = 8


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
        deadline = monotonic() + self._timeout_s
        partition = self._producer.partition_of(scope)
        asked = query(partition)
        past = asked.as_of
        # The past up to there holds this producer's writes up to there, and has to be folded.
        offset = self._producer.acknowledged(partition) if past is None else past[partition]
        read = self._reader.read(asked)
        for _ in range(_ROUNDS_MAX):
            # More than one round only where Postgres went back after a crash, and is folded again.
            if offset is None or read.positions[partition] >= offset:
                break
            self._producer.covered(partition, offset, timeout_s=max(0.0, deadline - monotonic())).result()
            read = self._reader.read(asked)
        return read.value

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
                time_ms = (as_of - _EPOCH) // timedelta(milliseconds=1)
                return self.read(scope, lambda partition: offset_at_time(time_ms, partition=partition))
