"""The store in memory: fenced, all or nothing, and shared as a database is."""

from __future__ import annotations

import pytest

from kvfold.projector.batch import prepare, project
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.needs import needs
from kvfold.projector.store import FencedError
from kvfold.projector.tables import TABLES
from support.given import fold_all, given, snapshot
from support.mutations import capsule_set, record_of

__all__: list[str] = []


def _commit(store: MemoryStore, *, offset: int = 0, epoch: int = 0) -> None:
    steps = prepare([record_of(capsule_set(f"k{offset}"), offset=offset)], 1)
    batch = project(steps, store.load(0, needs(steps)), partition=0, offset_next=offset + 1)
    store.commit(batch, epoch=epoch)


def test_a_partition_that_was_never_folded_stands_at_zero() -> None:
    assert MemoryStore().state(3).offset_next == 0
    assert MemoryStore().state(3).format_level == 1


def test_a_commit_from_another_offset_is_fenced_and_writes_nothing() -> None:
    store = MemoryStore()
    steps = prepare([record_of(capsule_set("k"))], 1)
    batches = [project(steps, store.load(0, needs(steps)), partition=0, offset_next=1) for _ in "12"]
    store.commit(batches[0], epoch=0)
    before = snapshot(store)
    with pytest.raises(FencedError):
        store.another().commit(batches[1], epoch=0)
    assert snapshot(store) == before


@pytest.mark.row("X3")
def test_a_commit_under_an_old_epoch_is_fenced_and_writes_nothing() -> None:
    store = MemoryStore()
    _commit(store)
    before = snapshot(store)
    store.shared.epochs[0] = 5
    with pytest.raises(FencedError):
        _commit(store, offset=1, epoch=4)
    assert snapshot(store) == before
    _commit(store, offset=1, epoch=5)


def test_stores_share_their_tables() -> None:
    store = MemoryStore()
    _commit(store)
    assert snapshot(store.another()) == snapshot(store)
    assert snapshot(MemoryStore()) != snapshot(store)


def test_rows_come_in_byte_order() -> None:
    """U+FFFD is below U+10000 in UTF-8, and above it in UTF-16."""
    keys = ["\U00010000", "\ufffd", "a", "B", "é"]
    scenario = given(*(capsule_set(key) for key in keys))
    assert [row["key"] for row in scenario.rows("capsule_entry")] == ["B", "a", "é", "\ufffd", "\U00010000"]


def test_every_table_can_be_read() -> None:
    store = MemoryStore()
    for spec in TABLES.values():
        assert list(store.rows(spec.name)) == []
        if spec.has_history:
            assert list(store.rows(f"{spec.name}_history")) == []
    fold_all(store, prepare([record_of(capsule_set("k"))], 1), 0, offset_next=5)
    assert store.state(0).offset_next == 5
