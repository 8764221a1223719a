"""`MemoryLog`: the log in memory, for tests and for the simulation.

It is deterministic (the clock is passed in) and shows on purpose what real logs do now and then: offset gaps, an
open transaction of a foreign producer, a trimmed start, a topic made anew, an append whose answer is lost.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from itertools import count
from typing import Final

from kvfold.log.framing import check_record
from kvfold.log.port import Appended, Bounds, LogDescription, RecordBatch
from kvfold.schemas.errors import InvalidError, LogDivergedError, LogUnavailableError
from kvfold.schemas.record import NewRecord, Record

__all__ = ["AppendFault", "MemoryLog", "MemoryLogReader"]

_ids = count(1)
_EPOCH_MS: Final = 1_700_000_000_000


class AppendFault(Enum):
    """What may go wrong with an append; the future fails with `LogUnavailableError` either way."""

    NOT_APPENDED = "not-appended"
    ANSWER_LOST = "answer-lost"


class _Partition:
    """One partition: visible records in offset order, and the edges.

    `offsets` runs beside `records` so that a position is found by bisection. While a transaction is open its
    records wait in `pending`, and `stable_end` stands at its first offset.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.offsets: list[int] = []
        self.pending: list[Record] | None = None
        self.start = 0
        self.end = 0
        self.transaction_start = 0

    @property
    def stable_end(self) -> int:
        return self.end if self.pending is None else self.transaction_start

    def add(self, record: Record) -> None:
        """Puts a record at its place; one of a transaction that was just committed goes before later ones."""
        index = bisect_left(self.offsets, record.offset)
        self.offsets.insert(index, record.offset)
        self.records.insert(index, record)

    def trim(self, offset: int) -> None:
        index = bisect_left(self.offsets, offset)
        del self.records[:index], self.offsets[:index]
        self.start = max(self.start, offset)


class MemoryLog:
    """A log in memory; implements `Log`. All readers of one object see the same log.

    `clock` gives the append time in milliseconds; it is called once a record and may step back, as brokers' clocks do.
    `gap(partition, offset_next)` says how many offsets are skipped after each record (a transaction marker takes
    one); so a log may end in a gap. `fault(partition, record)` may make an append fail.
    """

    def __init__(
        self,
        *,
        partition_count: int = 1,
        clock: Callable[[], int] | None = None,
        gap: Callable[[int, int], int] | None = None,
        fault: Callable[[int, NewRecord], AppendFault | None] | None = None,
        name: str = "memory",
        log_id: str | None = None,
    ) -> None:
        assert partition_count > 0
        ticks = count(_EPOCH_MS)
        self._clock = clock or (lambda: next(ticks))
        self._gap = gap or (lambda _partition, _offset_next: 0)
        self._fault = fault or (lambda _partition, _record: None)
        self._name = name
        self._log_id = log_id or f"memory-{next(_ids)}"
        self._partitions = [_Partition() for _ in range(partition_count)]
        self._changed = threading.Condition()
        self._closed = False

    def describe(self) -> LogDescription:
        """Identity and partition count."""
        with self._changed:
            return LogDescription("memory", self._name, self._log_id, len(self._partitions))

    def append(self, partition: int, record: NewRecord) -> Future[Appended]:
        """Appends at once; the future is done when this returns."""
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(self._append(partition, record))
        except (InvalidError, LogUnavailableError) as error:
            future.set_exception(error)
        return future

    def bounds(self, partitions: Sequence[int]) -> Mapping[int, Bounds]:
        """Start and end of each partition now."""
        with self._changed:
            named = {number: self._partitions[number] for number in partitions}
            return {number: Bounds(part.start, part.stable_end, part.end) for number, part in named.items()}

    def reader(self) -> MemoryLogReader:
        """A new reader with nothing assigned."""
        return MemoryLogReader(self)

    def open_transactions(self, partitions: Sequence[int]) -> list[tuple[int, int, int]]:
        """The open transactions as (partition, first offset, producer id); the producer id is always 0."""
        with self._changed:
            named = ((number, self._partitions[number]) for number in partitions)
            return [(number, part.transaction_start, 0) for number, part in named if part.pending is not None]

    def close(self) -> None:
        """Later appends fail; readers that exist go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- what happens to real logs ---

    def begin_transaction(self, partition: int, records: Sequence[NewRecord] = ()) -> None:
        """A foreign producer opens a transaction and writes records: they and all that follow stay hidden.

        The transaction holds back readers from its first offset even when `records` is empty.
        """
        with self._changed:
            part = self._partitions[partition]
            assert part.pending is None, "one transaction a partition at a time"
            part.transaction_start = part.end
            pending = [self._place(partition, record) for record in records]
            part.pending = pending

    def end_transaction(self, partition: int, *, commit: bool) -> None:
        """Ends the transaction: its records become visible or are skipped for ever; the marker takes an offset."""
        with self._changed:
            part = self._partitions[partition]
            assert part.pending is not None, "no transaction is open"
            for record in part.pending if commit else ():
                part.add(record)
            part.pending = None
            part.end += 1
            self._changed.notify_all()

    def trim(self, partition: int, offset: int) -> None:
        """Removes the records below `offset`, as retention does."""
        with self._changed:
            assert offset <= self._partitions[partition].end
            self._partitions[partition].trim(offset)
            self._changed.notify_all()

    def remake(self) -> None:
        """Deletes the log and makes it anew: another `log_id`, offsets from 0."""
        with self._changed:
            self._log_id = f"memory-{next(_ids)}"
            self._partitions = [_Partition() for _ in self._partitions]
            self._changed.notify_all()

    # --- inside ---

    def _append(self, partition: int, record: NewRecord) -> Appended:
        check_record(record)
        fault = self._fault(partition, record)
        with self._changed:
            if self._closed:
                raise LogUnavailableError("the log is closed")
            if not 0 <= partition < len(self._partitions):
                raise InvalidError(f"the log has no partition {partition}", code="unknown-partition")
            if fault is AppendFault.NOT_APPENDED:
                raise LogUnavailableError("the log did not answer")
            placed = self._place(partition, record)
            self._partitions[partition].add(placed)
            self._changed.notify_all()
        if fault is AppendFault.ANSWER_LOST:
            raise LogUnavailableError("the log's answer was lost")
        return Appended(partition, placed.offset, placed.timestamp_ms)

    def _place(self, partition: int, record: NewRecord) -> Record:
        part = self._partitions[partition]
        placed = Record(partition, part.end, self._clock(), record.key, record.headers, record.value)
        part.end += 1
        part.end += self._gap(partition, part.end)
        return placed


class MemoryLogReader:
    """Reads a `MemoryLog`; implements `LogReader`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._positions: dict[int, int] = {}
        self._woken = False

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Reads exactly these partitions from now on."""
        self._positions = dict(offsets)

    def poll(self, *, timeout_ms: int, records_max: int, bytes_max: int) -> Sequence[RecordBatch]:
        """What is there, at most one batch a partition; see `LogReader.poll`."""
        changed = self._log._changed
        batches: Sequence[RecordBatch] = ()

        def ready() -> bool:
            nonlocal batches
            batches = self._read(records_max, bytes_max)
            return bool(batches) or self._woken

        with changed:
            changed.wait_for(ready, timeout_ms / 1000)
            self._woken = False
        for batch in batches:
            # Read partitions go to the end of the line, so that a busy one never starves the others.
            del self._positions[batch.partition]
            self._positions[batch.partition] = batch.offset_next
        return batches

    def wake(self) -> None:
        """Makes a poll that waits return now."""
        with self._log._changed:
            self._woken = True
            self._log._changed.notify_all()

    def close(self) -> None:
        """Gives up the assignment."""
        self._positions = {}

    def _read(self, records_max: int, bytes_max: int) -> Sequence[RecordBatch]:
        self._check_range()
        batches: list[RecordBatch] = []
        for partition, offset in self._positions.items():
            batch = self._read_partition(partition, offset, records_max, bytes_max, first=not batches)
            if batch is not None:
                batches.append(batch)
                records_max -= len(batch.records)
                bytes_max -= sum(record.size() for record in batch.records)
        return batches

    def _read_partition(
        self, partition: int, offset: int, records_max: int, bytes_max: int, *, first: bool
    ) -> RecordBatch | None:
        part = self._log._partitions[partition]
        begin, end = bisect_left(part.offsets, offset), bisect_left(part.offsets, part.stable_end)
        records: list[Record] = []
        for record in part.records[begin : min(end, begin + max(records_max, 0))]:
            bytes_max -= record.size()
            if bytes_max < 0 and (records or not first):
                break
            records.append(record)
        offset_next = records[-1].offset + 1 if records else offset
        if begin + len(records) == end:
            offset_next = max(offset_next, part.stable_end)
        return RecordBatch(partition, records, offset_next) if offset_next != offset else None

    def _check_range(self) -> None:
        def outside(partition: int, offset: int) -> bool:
            part = self._log._partitions[partition]
            return not part.start <= offset <= part.end

        partitions = tuple(sorted(p for p, offset in self._positions.items() if outside(p, offset)))
        if partitions:
            raise LogDivergedError(
                f"the log does not hold the offset to read on from in partitions {list(partitions)}",
                code="offset-out-of-range",
                partitions=partitions,
            )
