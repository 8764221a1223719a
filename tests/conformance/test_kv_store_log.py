"""The contract of `KvStore` on `LogKvStore`: log in Postgres, real projector, real reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.kv_store_contract import KvStoreContract
from kvfold.producers.capsule.store import PagedKvStore
from kvfold.producers.producer import Producer
from support.capsule_stores import emptied, log_store, set_quota
from support.projectors import postgres_log, running_projector
from support.servers import fresh_database

__all__: list[str] = []


@pytest.fixture(scope="module")
def opened(postgres_admin_dsn: str) -> Iterator[tuple[PagedKvStore, Producer]]:
    """One store for the module: each test begins with its namespaces emptied."""
    with (
        fresh_database(postgres_admin_dsn) as dsn,
        postgres_log(dsn) as log,
        running_projector(log, dsn),
        log_store(log, dsn) as store_and_producer,
    ):
        yield store_and_producer


@pytest.mark.postgres
class TestLogKvStore(KvStoreContract):
    _producer: Producer

    @pytest.fixture
    def store(self, opened: tuple[PagedKvStore, Producer]) -> PagedKvStore:
        store, self._producer = opened
        emptied(store, self._producer)
        return store

    def set_quota(self, store: PagedKvStore, namespace: str, bytes_max: int) -> None:
        set_quota(self._producer, namespace, bytes_max)
