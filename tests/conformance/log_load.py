"""Writers under load, and what must hold of the log after whatever happened to its server meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import Final, Self

from conformance.log_contract import opened, read, small, values
from kvfold.log.port import Appended, Log, LogReader
from kvfold.schemas.errors import LogUnavailableError
from kvfold.schemas.record import Record

__all__ = ["OUTAGE_S", "Writers", "append_again", "check_log", "read_on"]

OUTAGE_S: Final = 120.0  # a bound against hanging, never a measure


class Writers:
    """Threads that append without pause until told to stop; remembers what was acknowledged and what failed."""

    def __init__(self, log: Log, *, threads: int, partition_count: int) -> None:
        self._log = log
        self._partition_count = partition_count
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self.acknowledged: dict[str, Appended] = {}
        self.failed: set[str] = set()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_for_acknowledgements(self, more: int) -> None:
        """Waits until `more` records were acknowledged from now on."""
        with self._changed:
            wanted = len(self.acknowledged) + more
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= wanted, OUTAGE_S)

    def wait_for_failures(self, more: int, *, since: int) -> None:
        """Waits until `more` appends failed since there were `since`: counted before the fault, which is quicker."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.failed) >= since + more, OUTAGE_S)

    def end(self, partition: int) -> int:
        """The highest offset that was acknowledged in a partition."""
        with self._changed:
            return max(one.offset for one in self.acknowledged.values() if one.partition == partition)

    def _write(self, thread: int) -> None:
        number = 0
        while not self._stopping.is_set():
            texts = [f"{thread}-{number + place}" for place in range(20)]
            number += 20
            futures = [
                (text, self._log.append(thread % self._partition_count, small(text))) for text in texts
            ]
            for text, future in futures:
                self._remember(text, future)

    def _remember(self, text: str, future: Future[Appended]) -> None:
        try:
            appended = future.result(OUTAGE_S)
        except LogUnavailableError:
            with self._changed:
                self.failed.add(text)
                self._changed.notify_all()
        else:
            with self._changed:
                self.acknowledged[text] = appended
                self._changed.notify_all()


def check_log(log: Log, writers: Writers, partitions: Sequence[int]) -> list[Record]:
    """All that was acknowledged is in the log at its place and time, once; nothing is there that nobody wrote.

    Also: acknowledged records of one thread are in its order. Gives all records.
    """
    bounds = log.bounds(partitions)
    with opened(log, dict.fromkeys(partitions, 0)) as reader:
        found = read(reader, {partition: bound.end for partition, bound in bounds.items()})
    records = [record for partition in found for record in found[partition]]
    acknowledged = writers.acknowledged
    places = {(record.value or b"").decode(): record for record in records}
    assert len([text for text in values(records) if text in acknowledged]) == len(acknowledged)
    for text, one in acknowledged.items():
        record = places[text]
        assert (record.partition, record.offset, record.timestamp_ms) == (
            one.partition,
            one.offset,
            one.timestamp_ms,
        )
    assert set(places) <= set(acknowledged) | writers.failed
    by_thread: dict[str, list[tuple[int, int]]] = {}
    for text, one in acknowledged.items():
        thread, number = text.split("-")
        by_thread.setdefault(thread, []).append((int(number), one.offset))
    for numbered in by_thread.values():
        offsets = [offset for _, offset in sorted(numbered)]
        assert offsets == sorted(offsets)
    return records


def read_on(reader: LogReader, *, past: int) -> list[Record]:
    """Polls one partition over an outage until the position is past an offset; a gap or a repeat is a failure."""
    found: list[Record] = []
    deadline = monotonic() + OUTAGE_S
    while not found or found[-1].offset < past:
        assert monotonic() < deadline
        with suppress(LogUnavailableError):
            for batch in reader.poll(timeout_ms=200, records_max=1_000, bytes_max=8 * 1024 * 1024):
                found.extend(batch.records)
    assert [record.offset for record in found] == list(range(found[0].offset, found[-1].offset + 1))
    return found


def append_again(log: Log, partition: int, text: str) -> Appended:
    """Appends after an outage: tries until the log takes it."""
    deadline = monotonic() + OUTAGE_S
    while True:
        try:
            return log.append(partition, small(text)).result(OUTAGE_S)
        except LogUnavailableError:
            assert monotonic() < deadline
