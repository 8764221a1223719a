"""Capsule stores for tests: behind the log and behind a gateway, over a real projector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import httpx

from kvfold.http.app import App
from kvfold.log.port import Log
from kvfold.producers import mutations
from kvfold.producers.capsule.http_store import HttpKvStore
from kvfold.producers.capsule.log_store import LogKvStore
from kvfold.producers.capsule.store import PagedKvStore
from kvfold.producers.gateway.context import build_gateway_context
from kvfold.producers.gateway.routes import write_routes
from kvfold.producers.outcomes import applied
from kvfold.producers.producer import Producer
from kvfold.query_api.context import ReadContext
from kvfold.query_api.routes import read_routes
from kvfold.query_api.serve import opened
from kvfold.reads.executor import AsyncReader, Reader, async_read_pool, read_pool
from kvfold.reads.waiting import Waiter
from kvfold.schemas.limits import CAPSULE_QUOTA_BYTES_DEFAULT, OPEN_WAIT_SECONDS_MAX
from support.asgi_client import AsgiClient
from support.asgi_transport import AsgiTransport

__all__ = ["ALICE", "BOB", "emptied", "http_store", "log_store", "set_quota"]

ALICE: Final = "alice:capsule:notes"
BOB: Final = "bob:capsule:notes"


@contextmanager
def log_store(
    log: Log, dsn: str, *, timeout_s: float = OPEN_WAIT_SECONDS_MAX
) -> Iterator[tuple[LogKvStore, Producer]]:
    """A store over a log and its database, and the producer that it writes with."""
    with ExitStack() as parts:
        pool = parts.enter_context(read_pool(dsn, size_max=8))
        reader = Reader(pool)
        parts.callback(reader.close)
        waiter = Waiter(dsn)
        parts.callback(waiter.close)
        producer = Producer(log, waiter, source="/tests")
        yield LogKvStore(producer, reader, timeout_s=timeout_s), producer


@contextmanager
def http_store(
    log: Log,
    dsn: str,
    between: Callable[[httpx.BaseTransport], httpx.BaseTransport] = lambda transport: transport,
) -> Iterator[tuple[HttpKvStore, Producer]]:
    """A store over a gateway that serves reads and writes, and the gateway's producer.

    `between` may put a transport of its own before the gateway's.
    """
    waiter = Waiter(dsn)
    writes = build_gateway_context(log, waiter)
    reads = ReadContext(AsyncReader(async_read_pool(dsn, size_max=8)), waiter, writes.producer.acknowledged)
    app = App([*read_routes(reads), *write_routes(writes)], lifespans=[lambda: opened(reads)])
    with (
        AsgiClient(app) as client,
        HttpKvStore("http://gateway", transport=between(AsgiTransport(client))) as store,
    ):
        yield store, writes.producer


def set_quota(producer: Producer, namespace: str, bytes_max: int) -> None:
    """Sets a quota through the log, as an operator does."""
    applied(producer.execute(mutations.capsule_quota_set(f"c:{namespace}", bytes_max)))


def emptied(store: PagedKvStore, producer: Producer) -> None:
    """Empties both namespaces, and gives them the quota that a new one has."""
    for namespace in (ALICE, BOB):
        store.clear_namespace(namespace)
        set_quota(producer, namespace, CAPSULE_QUOTA_BYTES_DEFAULT)
