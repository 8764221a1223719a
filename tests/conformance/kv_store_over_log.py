"""The contract of `KvStore` on a store over a log in Postgres, with a real projector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from conformance.kv_store_contract import KvStoreContract
from kvfold.log.port import Log
from kvfold.producers.capsule.store import PagedKvStore
from kvfold.producers.producer import Producer
from support.capsule_stores import emptied, set_quota
from support.projectors import postgres_log, running_projector
from support.servers import fresh_database

__all__ = ["KvStoreOverLog"]


class KvStoreOverLog(KvStoreContract):
    """Subclasses say how the store is opened."""

    _producer: Producer

    @classmethod
    def open_store(cls, log: Log, dsn: str) -> AbstractContextManager[tuple[PagedKvStore, Producer]]:
        """The store, and the producer that it writes with."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls, postgres_admin_dsn: str) -> Iterator[tuple[PagedKvStore, Producer]]:
        """One store for all: each test begins with its namespaces emptied."""
        with (
            fresh_database(postgres_admin_dsn) as dsn,
            postgres_log(dsn) as log,
            running_projector(log, dsn),
            cls.open_store(log, dsn) as store_and_producer,
        ):
            yield store_and_producer

    @pytest.fixture
    def store(self, opened: tuple[PagedKvStore, Producer]) -> PagedKvStore:
        store, self._producer = opened
        emptied(store, self._producer)
        return store

    def set_quota(self, store: PagedKvStore, namespace: str, bytes_max: int) -> None:
        set_quota(self._producer, namespace, bytes_max)
