"""The contract of `KvStore` on `LogKvStore`: log in Postgres, real projector, real reads."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from conformance.kv_store_over_log import KvStoreOverLog
from kvfold.log.port import Log
from kvfold.producers.capsule.store import PagedKvStore
from kvfold.producers.producer import Producer
from support.capsule_stores import log_store

__all__: list[str] = []


@pytest.mark.postgres
class TestLogKvStore(KvStoreOverLog):
    @classmethod
    def open_store(cls, log: Log, dsn: str) -> AbstractContextManager[tuple[PagedKvStore, Producer]]:
        return log_store(log, dsn)
