"""What every log promises: the docstrings of `kvfold.log.port`, as tests. Subclassed for each backend.

A subclass gives the fixture `log` (an empty log of `PARTITIONS` partitions) and the two things that only the backend's
operator can do: `trim` and `remake`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Final

import pytest

from kvfold.log.framing import FRAMING_BYTES, FRAMING_BYTES_PER_HEADER
from kvfold.log.port import Appended, Bounds, Log, LogReader, RecordBatch
from kvfold.schemas.errors import InvalidError, LogDivergedError, LogUnavailableError
from kvfold.schemas.limits import RECORD_BYTES_MAX
from kvfold.schemas.record import NewRecord, Record

__all__ = ["PARTITIONS", "LogContract", "append", "opened", "read", "small"]

PARTITIONS: Final = 3
WAIT_S: Final = 30.0  # a bound against hanging, never a measure


def small(text: str) -> NewRecord:
    """A record with `text` as its value."""
    return NewRecord(b"c:alice:capsule:notes", (("ce_id", text.encode()),), text.encode())


def append(log: Log, partition: int, *records: NewRecord) -> list[Appended]:
    """Appends records and waits for all acknowledgements."""
    return [future.result(WAIT_S) for future in [log.append(partition, record) for record in records]]


def read(
    reader: LogReader,
    until: Mapping[int, int],
    *,
    begun: Mapping[int, int] | None = None,
    records_max: int = 1_000,
    bytes_max: int = 8 * 1024 * 1024,
) -> dict[int, list[Record]]:
    """Polls until every partition's position is at least as named; what was read, by partition.

    `begun` names positions that were reached already: a partition at its end gives no batch.
    """
    found: dict[int, list[Record]] = {partition: [] for partition in until}
    positions = dict(begun or {})
    deadline = monotonic() + WAIT_S
    while any(positions.get(partition, 0) < offset for partition, offset in until.items()):
        assert monotonic() < deadline, f"positions {positions} never reached {dict(until)}"
        for batch in reader.poll(timeout_ms=200, records_max=records_max, bytes_max=bytes_max):
            found[batch.partition].extend(batch.records)
            positions[batch.partition] = batch.offset_next
    return found


def values(records: list[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


@contextmanager
def opened(log: Log, offsets: Mapping[int, int]) -> Iterator[LogReader]:
    """A reader of the log with these offsets assigned."""
    reader = log.reader()
    try:
        reader.assign(offsets)
        yield reader
    finally:
        reader.close()


def diverged(reader: LogReader) -> LogDivergedError:
    """Polls until the log says that a position is out of range."""
    deadline = monotonic() + WAIT_S
    while monotonic() < deadline:
        try:
            assert not list(reader.poll(timeout_ms=200, records_max=10, bytes_max=1_000))
        except LogDivergedError as error:
            return error
    raise AssertionError("no divergence was found")


class LogContract(ABC):
    """The suite."""

    @abstractmethod
    @pytest.fixture
    def log(self) -> Iterator[Log]: ...

    @abstractmethod
    def trim(self, log: Log, partition: int, offset: int) -> None:
        """Removes what is below the offset, as retention does."""

    @abstractmethod
    def remake(self, log: Log) -> Log:
        """Deletes the log and makes it anew under the same name."""

    # --- appending ---

    def test_a_record_is_read_back_as_it_was_appended(self, log: Log) -> None:
        record = NewRecord(b"d:prod", (("ce_id", b"1"), ("ce_type", b"kvfold.deployment.put.v1")), b"value")
        [appended] = append(log, 1, record)
        with opened(log, {1: 0}) as reader:
            [found] = read(reader, {1: 1})[1]
        assert found == Record(1, 0, appended.timestamp_ms, record.key, record.headers, record.value)
        assert (appended.partition, appended.offset) == (1, 0)

    @pytest.mark.parametrize("key", [None, b"", b"\x00\xff" * 10])
    @pytest.mark.parametrize("value", [None, b"", b"\x00\xff" * 10])
    def test_null_and_empty_are_different(self, log: Log, key: bytes | None, value: bytes | None) -> None:
        append(log, 0, NewRecord(key, (), value))
        with opened(log, {0: 0}) as reader:
            [found] = read(reader, {0: 1})[0]
        assert (found.key, found.headers, found.value) == (key, (), value)

    def test_headers_keep_order_repeats_and_any_bytes(self, log: Log) -> None:
        headers = (
            ("b", b"1"),
            ("a", b""),
            ("b", b"2"),
            ("", b"no name"),
            ("ключ-🔑", bytes(range(256))),
            ("n" * 300, b"v" * 70_000),
        )
        append(log, 0, NewRecord(b"k", headers, b"v"))
        with opened(log, {0: 0}) as reader:
            [found] = read(reader, {0: 1})[0]
        assert found.headers == headers

    def test_records_of_one_thread_keep_their_order(self, log: Log) -> None:
        appended = append(log, 0, *(small(str(number)) for number in range(500)))
        assert [one.offset for one in appended] == sorted(one.offset for one in appended)
        with opened(log, {0: 0}) as reader:
            found = read(reader, {0: appended[-1].offset + 1})[0]
        assert values(found) == [str(number) for number in range(500)]
        assert [record.offset for record in found] == [one.offset for one in appended]
        assert [record.timestamp_ms for record in found] == [one.timestamp_ms for one in appended]

    def test_records_of_many_threads_are_all_there_once(self, log: Log) -> None:
        def write(thread: int) -> list[tuple[str, Appended]]:
            futures: list[tuple[str, Future[Appended]]] = []
            for number in range(50):
                text = f"{thread}-{number}"
                futures.append((text, log.append(number % PARTITIONS, small(text))))
            return [(text, future.result(WAIT_S)) for text, future in futures]

        with ThreadPoolExecutor(8) as threads:
            acknowledged = [one for result in threads.map(write, range(8)) for one in result]
        bounds = log.bounds(range(PARTITIONS))
        with opened(log, dict.fromkeys(range(PARTITIONS), 0)) as reader:
            found = read(reader, {partition: bound.end for partition, bound in bounds.items()})
        places = {
            ((record.value or b"").decode(), partition, record.offset)
            for partition in found
            for record in found[partition]
        }
        assert places == {(text, one.partition, one.offset) for text, one in acknowledged}
        assert sum(len(records) for records in found.values()) == 400
        for records in found.values():
            for thread in range(8):
                numbers = [
                    int(text.split("-")[1]) for text in values(records) if text.startswith(f"{thread}-")
                ]
                assert numbers == sorted(numbers)

    def test_a_large_value(self, log: Log) -> None:
        value = bytes(range(256)) * 4_096
        append(log, 2, NewRecord(b"k", (), value), small("after"))
        with opened(log, {2: 0}) as reader:
            found = read(reader, {2: 2})[2]
        assert found[0].value == value
        assert values(found[1:]) == ["after"]

    def test_a_record_of_exactly_the_limit_and_one_byte_more(self, log: Log) -> None:
        headers = (("ce_id", b"1" * 36), ("é", b""))
        framing = (
            FRAMING_BYTES + 2 * FRAMING_BYTES_PER_HEADER + len("ce_id") + 36 + len("é".encode()) + len(b"key")
        )
        value = b"v" * (RECORD_BYTES_MAX - framing)
        with pytest.raises(InvalidError) as refused:
            log.append(0, NewRecord(b"key", headers, value + b"v")).result(WAIT_S)
        assert refused.value.code == "too-large"
        append(log, 0, NewRecord(b"key", headers, value))
        assert log.bounds([0])[0].end == 1
        with opened(log, {0: 0}) as reader:
            [found] = read(reader, {0: 1})[0]
        assert found.value == value

    def test_what_no_log_takes_is_refused(self, log: Log) -> None:
        with pytest.raises(InvalidError) as refused:
            log.append(0, NewRecord(b"k", (("\ud800", b""),), b"v")).result(WAIT_S)
        assert refused.value.code == "malformed-record"
        for partition in (-1, PARTITIONS):
            with pytest.raises(InvalidError) as refused:
                log.append(partition, small("x")).result(WAIT_S)
            assert refused.value.code == "unknown-partition"
        assert log.bounds([0])[0].end == 0

    def test_what_is_queued_is_sent_by_close_and_later_appends_fail(self, log: Log) -> None:
        futures = [log.append(0, small(str(number))) for number in range(20)]
        log.close()
        assert [future.result(0).offset for future in futures] == list(range(20))
        with pytest.raises(LogUnavailableError):
            log.append(0, small("late")).result(WAIT_S)

    # --- questions ---

    def test_a_log_describes_itself(self, log: Log) -> None:
        description = log.describe()
        assert description.partition_count == PARTITIONS
        assert description.log_id
        assert log.describe() == description

    def test_a_log_that_was_made_anew_has_another_id(self, log: Log) -> None:
        before = log.describe()
        append(log, 0, small("gone"))
        after = self.remake(log)
        try:
            assert after.describe().log_id != before.log_id
            assert after.describe().name == before.name
            assert after.bounds([0])[0] == Bounds(0, 0, 0)
        finally:
            after.close()

    def test_bounds_of_an_empty_and_of_a_filled_partition(self, log: Log) -> None:
        append(log, 1, small("a"), small("b"))
        assert log.bounds([0, 1]) == {0: Bounds(0, 0, 0), 1: Bounds(0, 2, 2)}
        assert log.bounds([]) == {}

    def test_bounds_of_a_trimmed_partition(self, log: Log) -> None:
        append(log, 0, small("a"), small("b"), small("c"))
        self.trim(log, 0, 2)
        assert log.bounds([0])[0] == Bounds(2, 3, 3)
        self.trim(log, 0, 3)
        assert log.bounds([0])[0] == Bounds(3, 3, 3)

    # --- reading ---

    def test_an_empty_partition_gives_nothing(self, log: Log) -> None:
        with opened(log, {0: 0}) as reader:
            assert list(reader.poll(timeout_ms=100, records_max=10, bytes_max=1_000)) == []

    def test_a_reader_with_nothing_assigned_gives_nothing(self, log: Log) -> None:
        append(log, 0, small("a"))
        with opened(log, {}) as reader:
            assert list(reader.poll(timeout_ms=10, records_max=10, bytes_max=1_000)) == []

    def test_several_readers_read_the_same(self, log: Log) -> None:
        append(log, 0, *(small(str(number)) for number in range(10)))
        with opened(log, {0: 0}) as one, opened(log, {0: 0}) as other:
            first = read(one, {0: 10}, records_max=3)
            assert read(other, {0: 10}, records_max=7) == first

    def test_assigned_anew_in_the_middle(self, log: Log) -> None:
        for partition in range(PARTITIONS):
            append(log, partition, *(small(f"{partition}-{number}") for number in range(10)))
        with opened(log, {0: 0, 1: 0}) as reader:
            positions = {0: 0, 1: 0}
            while not positions[0] or not positions[1]:
                for batch in reader.poll(timeout_ms=200, records_max=2, bytes_max=10_000):
                    positions[batch.partition] = batch.offset_next
            # 0 goes on, 1 is given up, 2 begins in the middle.
            reader.assign({0: positions[0], 2: 7})
            found = read(reader, {0: 10, 2: 10}, begun=positions, records_max=2)
            assert values(found[0]) == [f"0-{number}" for number in range(positions[0], 10)]
            assert values(found[2]) == ["2-7", "2-8", "2-9"]
            # 0 is read again, 1 comes back.
            reader.assign({0: 4, 1: positions[1]})
            found = read(reader, {0: 10, 1: 10}, begun={1: positions[1]})
            assert values(found[0]) == [f"0-{number}" for number in range(4, 10)]
            assert values(found[1]) == [f"1-{number}" for number in range(positions[1], 10)]
            reader.assign({})
            assert list(reader.poll(timeout_ms=10, records_max=10, bytes_max=1_000)) == []
            reader.assign({2: 9})
            assert values(read(reader, {2: 10})[2]) == ["2-9"]

    def test_a_poll_is_bounded_by_records(self, log: Log) -> None:
        for partition in range(PARTITIONS):
            append(log, partition, *(small(f"{partition}-{number}") for number in range(10)))
        batches: list[RecordBatch] = []
        with opened(log, dict.fromkeys(range(PARTITIONS), 0)) as reader:
            while sum(len(batch.records) for batch in batches) < 10 * PARTITIONS:
                polled = list(reader.poll(timeout_ms=200, records_max=4, bytes_max=1_000_000))
                assert sum(len(batch.records) for batch in polled) <= 4
                assert len({batch.partition for batch in polled}) == len(polled)
                batches.extend(polled)
        for partition in range(PARTITIONS):
            records = [
                record for batch in batches if batch.partition == partition for record in batch.records
            ]
            assert values(records) == [f"{partition}-{number}" for number in range(10)]

    def test_a_poll_is_bounded_by_bytes(self, log: Log) -> None:
        for partition in range(2):
            append(log, partition, *(NewRecord(b"k", (), b"v" * 10_000) for _ in range(10)))
        seen = 0
        with opened(log, {0: 0, 1: 0}) as reader:
            while seen < 20:
                polled = reader.poll(timeout_ms=200, records_max=100, bytes_max=35_000)
                records = [record for batch in polled for record in batch.records]
                assert sum(record.size() for record in records) <= 35_000
                seen += len(records)

    def test_a_single_record_over_the_bound_is_given(self, log: Log) -> None:
        append(log, 0, small("a"), NewRecord(b"k", (), b"v" * 10_000), small("b"))
        with opened(log, {0: 0}) as reader:
            found = read(reader, {0: 3}, bytes_max=200)[0]
        assert [record.offset for record in found] == [0, 1, 2]

    def test_a_busy_partition_does_not_starve_another(self, log: Log) -> None:
        append(log, 0, *(small(str(number)) for number in range(100)))
        append(log, 1, small("other"))
        with opened(log, {0: 0, 1: 0}) as reader:
            seen: list[int] = []
            while 1 not in seen:
                polled = reader.poll(timeout_ms=200, records_max=10, bytes_max=1_000_000)
                seen.extend(batch.partition for batch in polled)
                assert len(seen) < 20

    def test_a_waiting_poll_returns_when_a_record_arrives(self, log: Log) -> None:
        with opened(log, {0: 0}) as reader:
            assert not reader.poll(timeout_ms=0, records_max=10, bytes_max=1_000)
            threading.Timer(0.05, lambda: append(log, 0, small("a"))).start()
            polled = reader.poll(timeout_ms=int(WAIT_S * 1000), records_max=10, bytes_max=1_000)
        assert [values(list(batch.records)) for batch in polled] == [["a"]]

    def test_a_waiting_poll_is_woken(self, log: Log) -> None:
        with opened(log, {0: 0}) as reader:
            begun = monotonic()
            timer = threading.Timer(0.05, reader.wake)
            timer.start()
            assert not reader.poll(timeout_ms=int(WAIT_S * 1000), records_max=10, bytes_max=1_000)
            assert monotonic() - begun < WAIT_S
            timer.join()
            # A wake-up that comes while nobody waits is kept for the next poll, and only for that.
            reader.wake()
            assert not reader.poll(timeout_ms=int(WAIT_S * 1000), records_max=10, bytes_max=1_000)
            assert monotonic() - begun < WAIT_S
            append(log, 0, small("a"))
            assert values(read(reader, {0: 1})[0]) == ["a"]

    def test_an_idle_reader_with_nothing_assigned_is_woken(self, log: Log) -> None:
        with opened(log, {}) as reader:
            begun = monotonic()
            timer = threading.Timer(0.05, reader.wake)
            timer.start()
            assert not reader.poll(timeout_ms=int(WAIT_S * 1000), records_max=10, bytes_max=1_000)
            assert monotonic() - begun < WAIT_S
            timer.join()

    def test_the_end_is_a_position_to_begin_from(self, log: Log) -> None:
        append(log, 0, small("old"))
        with opened(log, {0: 1}) as reader:
            assert not reader.poll(timeout_ms=100, records_max=10, bytes_max=1_000)
            append(log, 0, small("new"))
            assert values(read(reader, {0: 2})[0]) == ["new"]

    @pytest.mark.parametrize("low", [True, False])
    def test_an_offset_out_of_range_stops_and_the_others_go_on(self, log: Log, low: bool) -> None:
        append(log, 0, *(small(str(number)) for number in range(5)))
        if low:
            self.trim(log, 0, 3)
        with opened(log, {0: 2 if low else 6, 1: 0}) as reader:
            error = diverged(reader)
            assert (error.code, error.partitions) == ("offset-out-of-range", (0,))
            assert diverged(reader).partitions == (0,)  # nothing was skipped meanwhile
            append(log, 1, small("on"))
            reader.assign({1: 0})
            assert values(read(reader, {1: 1})[1]) == ["on"]
            reader.assign({0: 3, 1: 1})
            assert values(read(reader, {0: 5})[0]) == ["3", "4"]

    def test_all_offsets_out_of_range_are_named(self, log: Log) -> None:
        append(log, 1, small("a"))
        with opened(log, {0: 7, 1: 0, 2: 1}) as reader:
            partitions: tuple[int, ...] = ()
            deadline = monotonic() + WAIT_S
            while not partitions and monotonic() < deadline:
                try:
                    reader.poll(timeout_ms=200, records_max=10, bytes_max=1_000)
                except LogDivergedError as error:
                    partitions = error.partitions
            assert partitions == (0, 2)

    def test_a_trim_below_the_position_changes_nothing(self, log: Log) -> None:
        append(log, 0, *(small(str(number)) for number in range(5)))
        with opened(log, {0: 3}) as reader:
            self.trim(log, 0, 3)
            assert values(read(reader, {0: 5})[0]) == ["3", "4"]
