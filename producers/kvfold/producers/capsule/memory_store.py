"""`MemoryKvStore`: the same operations in this process's memory (002, "In-Memory Store"; row C5)."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import takewhile

from kvfold.producers.capsule.checks import (
    checked_key,
    checked_page,
    checked_prefix,
    checked_value,
    parts_of,
)
from kvfold.producers.capsule.errors import Quota
from kvfold.producers.capsule.listing import WholeListing
from kvfold.producers.capsule.store import KeyPage
from kvfold.reads.capsule import CapsuleUsage
from kvfold.schemas.limits import CAPSULE_QUOTA_BYTES_DEFAULT
from kvfold.schemas.names import utf8_length

__all__ = ["MemoryKvStore"]


@dataclass(slots=True)
class _Namespace:
    """`ordered` has the keys of `values` in byte order, which is the order of Python's text."""

    values: dict[str, bytes] = field(default_factory=dict)
    ordered: list[str] = field(default_factory=list)
    bytes: int = 0
    bytes_max: int = CAPSULE_QUOTA_BYTES_DEFAULT


class MemoryKvStore(WholeListing):
    """A `PagedKvStore` for tests and for what may be lost. Safe for several threads: every call holds one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._namespaces = defaultdict[str, _Namespace](_Namespace)

    def get(self, namespace: str, key: str) -> bytes | None:
        """See `KvStore`."""
        parts_of(namespace)
        checked_key(key)
        with self._lock:
            return self._namespaces[namespace].values.get(key)

    def set(self, namespace: str, key: str, value: bytes) -> None:
        """See `KvStore`."""
        parts_of(namespace)
        checked_key(key)
        value = checked_value(value)
        with self._lock:
            _set(self._namespaces[namespace], key, value)

    def delete(self, namespace: str, key: str) -> bool:
        """See `KvStore`."""
        parts_of(namespace)
        checked_key(key)
        with self._lock:
            space = self._namespaces[namespace]
            start = bisect_left(space.ordered, key)
            return _remove(space, start, start + (key in space.values)) == 1

    def exists(self, namespace: str, key: str) -> bool:
        """See `KvStore`."""
        return self.get(namespace, key) is not None

    def list_keys_page(self, namespace: str, prefix: str, *, cursor: str | None, limit: int) -> KeyPage:
        """See `PagedKvStore`."""
        parts_of(namespace)
        checked_page(prefix, cursor, limit)
        with self._lock:
            ordered = self._namespaces[namespace].ordered
            start = bisect_left(ordered, prefix)
            if cursor is not None:
                start = max(start, bisect_right(ordered, cursor))
            found = [key for key in ordered[start : start + limit + 1] if key.startswith(prefix)]
        return KeyPage(tuple(found[:limit]), found[limit - 1] if len(found) > limit else None)

    def compare_and_swap(self, namespace: str, key: str, expected: bytes | None, new: bytes) -> bool:
        """See `KvStore`."""
        parts_of(namespace)
        checked_key(key)
        new = checked_value(new)
        with self._lock:
            space = self._namespaces[namespace]
            if space.values.get(key) != expected:
                return False
            _set(space, key, new)
            return True

    def clear_namespace(self, namespace: str) -> int:
        """See `KvStore`."""
        return self.clear_prefix(namespace, "")

    def clear_prefix(self, namespace: str, prefix: str) -> int:
        """See `KvStore`."""
        parts_of(namespace)
        checked_prefix(prefix)
        with self._lock:
            space = self._namespaces[namespace]
            start = bisect_left(space.ordered, prefix)
            matching = takewhile(lambda key: key.startswith(prefix), space.ordered[start:])
            return _remove(space, start, start + sum(1 for _ in matching))

    # --- what an operator does ---

    def usage(self, namespace: str) -> CapsuleUsage:
        """Live keys, bytes of keys and values, and the quota in force."""
        parts_of(namespace)
        with self._lock:
            space = self._namespaces[namespace]
            return CapsuleUsage(len(space.values), space.bytes, space.bytes_max)

    def set_quota(self, namespace: str, bytes_max: int) -> None:
        """Sets the most bytes of keys and values; below the usage is allowed, and only shrinking is then."""
        parts_of(namespace)
        with self._lock:
            self._namespaces[namespace].bytes_max = bytes_max


def _set(space: _Namespace, key: str, value: bytes) -> None:
    key_bytes = utf8_length(key)
    before = space.values.get(key)
    growth = key_bytes + len(value) - (0 if before is None else key_bytes + len(before))
    if growth > 0 and space.bytes + growth > space.bytes_max:
        raise Quota(f"{space.bytes + growth} bytes would be above the quota of {space.bytes_max}")
    if before is None:
        insort(space.ordered, key)
    space.values[key] = value
    space.bytes += growth


def _remove(space: _Namespace, start: int, end: int) -> int:
    """Removes the keys at these places of the order; gives how many."""
    keys = space.ordered[start:end]
    del space.ordered[start:end]
    for key in keys:
        space.bytes -= utf8_length(key) + len(space.values.pop(key))
    return len(keys)
