"""One partition's fold as the run loop drives it, and the check at a take-over."""

from __future__ import annotations

import pytest

from kvfold.log.memory import MemoryLog
from kvfold.projector import batch as projection_batch
from kvfold.projector.batch import FormatAheadError, prepare
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.partition import PartitionFold, check_take_over
from kvfold.projector.store import FencedError
from kvfold.schemas.codec import encode
from kvfold.schemas.errors import LogDivergedError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.record import Record
from support.mutations import capsule_set, format_raised, namespace_cleared, record_of

__all__: list[str] = []


def _records(*mutations: Mutation, first: int = 0) -> list[Record]:
    return [record_of(mutation, offset=first + number) for number, mutation in enumerate(mutations)]


def _fold(store: MemoryStore, *, epoch: int = 0) -> PartitionFold:
    return PartitionFold(0, epoch=epoch, state=store.state(0))


def test_each_range_is_a_commit_of_its_own() -> None:
    store = MemoryStore()
    records = _records(capsule_set("a"), capsule_set("b"), namespace_cleared(), capsule_set("c"))
    batches = _fold(store).fold(store, prepare(records, 1), 9)
    assert [(batch.offset_expected, batch.state.offset_next) for batch in batches] == [(0, 2), (2, 3), (3, 9)]
    assert store.state(0).offset_next == 9


def test_a_position_without_records_is_committed() -> None:
    store = MemoryStore()
    fold = _fold(store)
    assert [batch.state.offset_next for batch in fold.fold(store, [], 5)] == [5]
    assert fold.fold(store, [], 5) == []
    assert store.state(0).offset_next == fold.offset_next == 5


@pytest.mark.parametrize("before", [0, 2])
def test_everything_before_a_level_that_is_ahead_is_committed(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection_batch, "FORMAT_LEVEL", 1)
    store = MemoryStore()
    mutations = [capsule_set(f"k{number}") for number in range(before)]
    fold = _fold(store)
    with pytest.raises(FormatAheadError):
        fold.fold(store, prepare(_records(*mutations, format_raised(2), capsule_set("z")), 1), before + 2)
    assert store.state(0).offset_next == fold.offset_next == before
    assert len(list(store.rows("decision"))) == before


@pytest.mark.row("X3")
def test_a_worker_whose_partition_has_moved_on_is_fenced() -> None:
    store = MemoryStore()
    stale = _fold(store)
    store.shared.epochs[0] = 1
    steps = prepare(_records(capsule_set("a")), 1)
    _fold(store, epoch=1).fold(store, steps, 1)
    with pytest.raises(FencedError):
        stale.fold(store, steps, 1)


def _folded(log: MemoryLog, *mutations: Mutation) -> MemoryStore:
    store = MemoryStore()
    for mutation in mutations:
        log.append(0, encode(mutation)).result(0)
    reader = log.reader()
    reader.assign({0: 0})
    for batch in reader.poll(timeout_ms=0, records_max=100, bytes_max=1 << 20):
        _fold(store).fold(store, prepare(batch.records, 1), batch.offset_next)
    return store


def _check(log: MemoryLog, store: MemoryStore) -> None:
    check_take_over(log.reader(), store.state(0), 0, log.bounds([0])[0])


def test_the_same_log_is_taken_over() -> None:
    log = MemoryLog(gap=lambda *_: 1)
    store = _folded(log, capsule_set("a"), capsule_set("b"))
    _check(log, store)
    log.append(0, encode(capsule_set("c"))).result(0)
    _check(log, store)
    log.trim(0, store.state(0).offset_next)
    _check(log, store)


def test_an_empty_log_is_taken_over() -> None:
    _check(MemoryLog(), MemoryStore())


def test_a_log_that_was_trimmed_past_the_offset_stops() -> None:
    log = MemoryLog()
    store = _folded(log, capsule_set("a"))
    log.append(0, encode(capsule_set("b"))).result(0)
    log.trim(0, 2)
    with pytest.raises(LogDivergedError) as caught:
        _check(log, store)
    assert caught.value.code == "offset-out-of-range" and caught.value.partitions == (0,)


def test_a_log_made_anew_stops_also_when_it_has_grown_again() -> None:
    log = MemoryLog()
    store = _folded(log, capsule_set("a"), capsule_set("b"))
    log.remake()
    for key in ("x", "y", "z"):
        with pytest.raises(LogDivergedError) as caught:
            _check(log, store)
        assert caught.value.code == "log-diverged"
        log.append(0, encode(capsule_set(key))).result(0)
    with pytest.raises(LogDivergedError, match="another record stands at 1"):
        _check(log, store)


def test_another_timestamp_of_the_same_record_is_another_record() -> None:
    log = MemoryLog()
    store = _folded(log, capsule_set("a"))
    state = store.state(0)
    shifted = state._replace(last_timestamp_ms=(state.last_timestamp_ms or 0) + 1)
    with pytest.raises(LogDivergedError, match="another record"):
        check_take_over(log.reader(), shifted, 0, log.bounds([0])[0])
