"""`LogKvStore`: the store behind the log. Append, wait for the outcome, read with the position demanded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvfold.producers.capsule.checks import (
    checked_key,
    checked_page,
    checked_prefix,
    checked_value,
    parts_of,
)
from kvfold.producers.capsule.client import CapsuleClient
from kvfold.producers.capsule.errors import host_error
from kvfold.producers.capsule.listing import WholeListing
from kvfold.producers.capsule.store import KeyPage
from kvfold.producers.producer import Producer
from kvfold.producers.reading import QueryReader
from kvfold.schemas.errors import KvfoldError
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX

__all__ = ["LogKvStore"]


class LogKvStore(WholeListing):
    """A `PagedKvStore` on kvfold's log and projection. Safe for several threads, which share appends and waits.

    Writes return when they are decided, at the latest after `timeout_s`; reads see every write of this producer.
    """

    def __init__(
        self, producer: Producer, reader: QueryReader, *, timeout_s: float = OPEN_WAIT_SECONDS_MAX
    ) -> None:
        self._producer = producer
        self._reader = reader
        self._timeout_s = timeout_s

    def get(self, namespace: str, key: str) -> bytes | None:
        """See `KvStore`."""
        client = self._client(namespace)
        checked_key(key)
        with _as_host_errors():
            return client.get(key)

    def set(self, namespace: str, key: str, value: bytes) -> None:
        """See `KvStore`."""
        client = self._client(namespace)
        checked_key(key)
        value = checked_value(value)
        with _as_host_errors():
            client.set(key, value)

    def delete(self, namespace: str, key: str) -> bool:
        """See `KvStore`."""
        client = self._client(namespace)
        checked_key(key)
        with _as_host_errors():
            return client.delete(key)

    def exists(self, namespace: str, key: str) -> bool:
        """See `KvStore`."""
        client = self._client(namespace)
        checked_key(key)
        with _as_host_errors():
            return client.exists(key)

    def list_keys_page(self, namespace: str, prefix: str, *, cursor: str | None, limit: int) -> KeyPage:
        """See `PagedKvStore`."""
        client = self._client(namespace)
        checked_page(prefix, cursor, limit)
        with _as_host_errors():
            return client.list_keys_page(prefix, cursor=cursor, limit=limit)

    def compare_and_swap(self, namespace: str, key: str, expected: bytes | None, new: bytes) -> bool:
        """See `KvStore`."""
        client = self._client(namespace)
        checked_key(key)
        new = checked_value(new)
        with _as_host_errors():
            return client.cas(key, expected, new)

    def clear_namespace(self, namespace: str) -> int:
        """See `KvStore`."""
        client = self._client(namespace)
        with _as_host_errors():
            return client.clear_namespace()

    def clear_prefix(self, namespace: str, prefix: str) -> int:
        """See `KvStore`."""
        client = self._client(namespace)
        checked_prefix(prefix)
        with _as_host_errors():
            return client.clear_prefix(prefix)

    def _client(self, namespace: str) -> CapsuleClient:
        principal, capsule_id = parts_of(namespace)
        return CapsuleClient(
            self._producer,
            self._reader,
            principal=principal,
            capsule_id=capsule_id,
            timeout_s=self._timeout_s,
        )


@contextmanager
def _as_host_errors() -> Iterator[None]:
    try:
        yield
    except KvfoldError as error:
        raise host_error(error) from error
