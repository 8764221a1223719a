"""The log as the rest of kvfold sees it: two ports, one to append and ask, one to read.

Adapters: `MemoryLog` (tests, the simulation), `PostgresLog` (the embedded default), `KafkaLog`. One conformance suite
runs on all three, so what stands here is what they promise:

- A partition is a sequence of records with rising offsets. **Offsets may have gaps** (transaction markers): progress
  is a position reached, never "last record + 1".
- A record that was acknowledged is durable and is read by every reader, once, in offset order.
- Only committed records are read; an open transaction of a foreign producer hides what comes after it.
- Timestamps are the log's append time and may step back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from kvfold.schemas.record import NewRecord, Record

__all__ = ["Appended", "Bounds", "Log", "LogDescription", "LogReader", "RecordBatch"]


@dataclass(frozen=True, slots=True)
class LogDescription:
    """What identifies a log and never changes while it is the same log.

    `log_id` is the topic's id (Kafka) or the id written when the tables were made (Postgres): a topic that was deleted
    and made anew has another. `kind` is `kafka`, `postgres` or `memory`; `name` the topic's name.
    """

    kind: str
    name: str
    log_id: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The log's acknowledgement: where the record stands and its append time in milliseconds since 1970."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of one partition: `start` of the oldest record kept; `end` = one past the newest record.

    `stable_end` is one past what a reader of committed records can see now. It is below `end` while a transaction is
    open: whoever has read up to `stable_end` only is not caught up.
    """

    start: int
    stable_end: int
    end: int


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """What one poll gave for one partition: records in order, and the offset to go on from.

    `offset_next` is at least the last record's offset + 1, and higher where the log has gaps. `records` may be empty
    while `offset_next` moved (an aborted transaction at the end of the log).
    """

    partition: int
    records: Sequence[Record]
    offset_next: int


class Log(Protocol):
    """The append side of a log, and questions about it. Safe to use from several threads."""

    def describe(self) -> LogDescription:
        """Identity and partition count, from the server, not from a cache.

        Raises:
            LogUnavailableError: the server does not answer.
            LogMisconfiguredError: the log does not exist or is not as kvfold needs it.
        """
        ...

    def append(self, partition: int, record: NewRecord) -> Future[Appended]:
        """Queues a record and returns at once; the future is done when the record is durable.

        Records of one thread to one partition keep their order. The future fails with `LogUnavailableError` when
        the log did not acknowledge in time (the record may still be in the log), a second or three after the adapter's
        time-out at the latest. It fails with `InvalidError` where nothing was appended: `too-large` (over
        `RECORD_BYTES_MAX` with its framing), `malformed-record` (a header name without a UTF-8 form),
        `unknown-partition`.
        """
        ...

    def bounds(self, partitions: Sequence[int]) -> Mapping[int, Bounds]:
        """Start and end of each partition now.

        Raises:
            LogUnavailableError: the server does not answer.
        """
        ...

    def open_transactions(self, partitions: Sequence[int]) -> Sequence[tuple[int, int, int]]:
        """Transactions that foreign producers left open: (partition, first offset, producer id). Most often none.

        Raises:
            LogUnavailableError: the server does not answer.
        """
        ...

    def reader(self) -> LogReader:
        """A new reader with nothing assigned; it belongs to one thread."""
        ...

    def close(self) -> None:
        """Sends what is queued (bounded by a few seconds), then closes. Later calls fail."""
        ...


class LogReader(Protocol):
    """Reads committed records of the partitions assigned to it. Belongs to one thread, except `wake`."""

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Reads exactly these partitions from now on, each from the given offset.

        Partitions that were assigned before and are named with the offset they stand at just go on.
        """
        ...

    def poll(self, *, timeout_ms: int, records_max: int, bytes_max: int) -> Sequence[RecordBatch]:
        """What is there, at most one batch a partition; waits up to `timeout_ms` if nothing is.

        Returns early when records arrive. `records_max` and `bytes_max` bound all the batches together, but a single
        record larger than `bytes_max` is still returned.

        Raises:
            LogUnavailableError: the server does not answer; the position is kept, poll again.
            LogDivergedError: `offset-out-of-range`: an assigned offset is below the log's start or above its end;
                its `partitions` names them, and the others go on once these are no longer assigned. Nothing is skipped.
        """
        ...

    def wake(self) -> None:
        """Makes a poll that waits return now. Callable from any thread."""
        ...

    def close(self) -> None:
        """Gives up the assignment and the connection."""
        ...
