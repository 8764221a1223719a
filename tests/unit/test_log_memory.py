"""What `MemoryLog` can do beyond the contract: gaps, transactions, faults, remaking."""

from __future__ import annotations

import pytest

from conformance.log_contract import append, opened, read, small, values
from kvfold.log.memory import AppendFault, MemoryLog
from kvfold.log.port import Bounds
from kvfold.schemas.errors import LogUnavailableError

__all__: list[str] = []


def test_gaps_are_left_after_each_record_also_at_the_end() -> None:
    log = MemoryLog(gap=lambda _partition, offset_next: 2 if offset_next == 1 else 1)
    appended = append(log, 0, small("a"), small("b"))
    assert [one.offset for one in appended] == [0, 3]
    assert log.bounds([0])[0] == Bounds(0, 5, 5)
    with opened(log, {0: 0}) as reader:
        [batch] = reader.poll(timeout_ms=0, records_max=10, bytes_max=1_000)
        assert [record.offset for record in batch.records] == [0, 3]
        assert batch.offset_next == 5
        assert not reader.poll(timeout_ms=0, records_max=10, bytes_max=1_000)


def test_a_bounded_poll_stops_behind_its_last_record_and_not_behind_the_gap() -> None:
    log = MemoryLog(gap=lambda _partition, _offset_next: 4)
    append(log, 0, small("a"), small("b"))
    with opened(log, {0: 0}) as reader:
        [batch] = reader.poll(timeout_ms=0, records_max=1, bytes_max=1_000)
        assert batch.offset_next == 1
        [batch] = reader.poll(timeout_ms=0, records_max=1, bytes_max=1_000)
        assert (batch.records[0].offset, batch.offset_next) == (5, 10)


def test_an_offset_in_a_gap_is_a_position_to_begin_from() -> None:
    log = MemoryLog(gap=lambda _partition, _offset_next: 3)
    append(log, 0, small("a"), small("b"))
    with opened(log, {0: 2}) as reader:
        assert values(read(reader, {0: 8})[0]) == ["b"]


@pytest.mark.parametrize(
    ("commit", "seen"), [(True, ["before", "in", "after"]), (False, ["before", "after"])]
)
def test_an_open_transaction_hides_what_follows(commit: bool, seen: list[str]) -> None:
    log = MemoryLog()
    append(log, 0, small("before"))
    log.begin_transaction(0, [small("in")])
    append(log, 0, small("after"))
    assert log.bounds([0])[0] == Bounds(0, 1, 3)
    assert log.open_transactions([0]) == [(0, 1, 0)]
    with opened(log, {0: 0}) as reader:
        found = read(reader, {0: 1})[0]
        assert not reader.poll(timeout_ms=0, records_max=10, bytes_max=1_000)
        log.end_transaction(0, commit=commit)
        assert log.bounds([0])[0] == Bounds(0, 4, 4)
        assert log.open_transactions([0]) == []
        assert values(found + read(reader, {0: 4})[0]) == seen


def test_an_aborted_transaction_at_the_end_moves_the_position_alone() -> None:
    log = MemoryLog()
    log.begin_transaction(0, [small("never")])
    log.end_transaction(0, commit=False)
    with opened(log, {0: 0}) as reader:
        [batch] = reader.poll(timeout_ms=0, records_max=10, bytes_max=1_000)
        assert (list(batch.records), batch.offset_next) == ([], 2)


def test_faults_of_an_append() -> None:
    faults = iter([AppendFault.NOT_APPENDED, AppendFault.ANSWER_LOST, None])
    log = MemoryLog(fault=lambda _partition, _record: next(faults))
    for text in ("never", "lost"):
        with pytest.raises(LogUnavailableError):
            log.append(0, small(text)).result(0)
    [appended] = append(log, 0, small("answered"))
    assert appended.offset == 1
    with opened(log, {0: 0}) as reader:
        assert values(read(reader, {0: 2})[0]) == ["lost", "answered"]


def test_the_clock_is_the_callers_and_may_step_back() -> None:
    times = iter([1_000, 900])
    log = MemoryLog(clock=lambda: next(times))
    assert [one.timestamp_ms for one in append(log, 0, small("a"), small("b"))] == [1_000, 900]


def test_a_log_without_a_clock_is_the_same_in_every_run() -> None:
    first, second = (append(MemoryLog(), 0, small("a"), small("b")) for _ in range(2))
    assert first == second
