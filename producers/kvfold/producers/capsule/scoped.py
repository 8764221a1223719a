"""`ScopedKvStore`: a store with its namespace bound, as a host hands it to a capsule (row C4)."""

from __future__ import annotations

from typing import Any

from kvfold.producers.capsule.checks import parts_of
from kvfold.producers.capsule.json_values import from_json, to_json
from kvfold.producers.capsule.store import KeyPage, PagedKvStore

__all__ = ["ScopedKvStore"]


class ScopedKvStore:
    """The operations of `PagedKvStore` without their namespace. What each does and raises stands there."""

    def __init__(self, store: PagedKvStore, namespace: str) -> None:
        """Raises `InvalidKey` for what is no namespace `{principal}:capsule:{capsule_id}`."""
        parts_of(namespace)
        self._store = store
        self._namespace = namespace

    def get(self, key: str) -> bytes | None:
        """The value; None if the key is missing."""
        return self._store.get(self._namespace, key)

    def set(self, key: str, value: bytes) -> None:
        """Sets a key whatever it holds."""
        self._store.set(self._namespace, key, value)

    def delete(self, key: str) -> bool:
        """Removes a key; False if there was none."""
        return self._store.delete(self._namespace, key)

    def exists(self, key: str) -> bool:
        """Whether the key is there."""
        return self._store.exists(self._namespace, key)

    def list_keys(self) -> list[str]:
        """Every key in byte order."""
        return self._store.list_keys(self._namespace)

    def list_keys_with_prefix(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, in byte order."""
        return self._store.list_keys_with_prefix(self._namespace, prefix)

    def list_keys_page(self, prefix: str, *, cursor: str | None, limit: int) -> KeyPage:
        """A page of the keys that start with `prefix`."""
        return self._store.list_keys_page(self._namespace, prefix, cursor=cursor, limit=limit)

    def compare_and_swap(self, key: str, expected: bytes | None, new: bytes) -> bool:
        """Sets a key iff it holds exactly `expected` (None: iff it is missing); False for a lost race."""
        return self._store.compare_and_swap(self._namespace, key, expected, new)

    def clear_namespace(self) -> int:
        """Removes every key, all at once; gives how many there were."""
        return self._store.clear_namespace(self._namespace)

    def clear_prefix(self, prefix: str) -> int:
        """Removes every key that starts with `prefix`, all at once; gives how many there were."""
        return self._store.clear_prefix(self._namespace, prefix)

    def get_json(self, key: str) -> Any:
        """A value that `set_json` wrote; None if the key is missing. Raises `JsonError` for what is no JSON."""
        raw = self.get(key)
        return None if raw is None else from_json(raw)

    def set_json(self, key: str, value: object) -> None:
        """Sets a key to a value's JSON. Raises `JsonError` for what has no JSON form."""
        self.set(key, to_json(value))
