"""The contract of `KvStore` on `MemoryKvStore` (row C5)."""

from __future__ import annotations

import pytest

from conformance.kv_store_contract import KvStoreContract
from kvfold.producers.capsule.memory_store import MemoryKvStore
from kvfold.producers.capsule.store import PagedKvStore
from support.capsule_stores import ALICE

__all__: list[str] = []


@pytest.mark.row("C5")
class TestMemoryKvStore(KvStoreContract):
    @pytest.fixture
    def store(self) -> PagedKvStore:
        return MemoryKvStore()

    def set_quota(self, store: PagedKvStore, namespace: str, bytes_max: int) -> None:
        assert isinstance(store, MemoryKvStore)
        store.set_quota(namespace, bytes_max)

    def test_usage_is_a_recount(self) -> None:
        store = MemoryKvStore()
        for key, value in (("a", b"1"), ("é", b"22"), ("a", b"333"), ("b", b"")):
            store.set(ALICE, key, value)
        store.delete(ALICE, "b")
        store.clear_prefix(ALICE, "b")
        usage = store.usage(ALICE)
        assert (usage.keys, usage.bytes) == (2, 1 + 3 + 2 + 2)
