"""The contract of `KvStore` on `HttpKvStore`: a gateway over a log in Postgres, with a real projector."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from conformance.kv_store_over_log import KvStoreOverLog
from kvfold.log.port import Log
from kvfold.producers.capsule.store import PagedKvStore
from kvfold.producers.producer import Producer
from support.capsule_stores import http_store

__all__: list[str] = []


@pytest.mark.postgres
class TestHttpKvStore(KvStoreOverLog):
    @classmethod
    def open_store(cls, log: Log, dsn: str) -> AbstractContextManager[tuple[PagedKvStore, Producer]]:
        return http_store(log, dsn)
