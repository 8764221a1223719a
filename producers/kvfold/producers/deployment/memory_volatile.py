"""The volatile tier in the memory of one process: for one machine without Redis, and for tests."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Final

from kvfold.producers.deployment.volatile import (
    VolatileHealth,
    check_volatile_deployment,
    check_volatile_page,
    check_volatile_place,
)
from kvfold.reads.deployment import DeploymentObject, DeploymentValue, ObjectPage
from kvfold.reads.paging import page_range
from kvfold.schemas.limits import PAGE_LIMIT_DEFAULT
from kvfold.schemas.names import utf8_length
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.precondition import Precondition

__all__ = ["MEMORY_BYTES_MAX", "MemoryVolatileTier"]

MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of keys and values, with an allowance for each entry, that are kept before the least recently used ones go."""

_ENTRY_OVERHEAD_BYTES: Final = 256

_Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    version: int
    updated_ms: int


class MemoryVolatileTier:
    """Entries in memory under one lock; beyond `bytes_max` the least recently used ones are evicted, as Redis does."""

    def __init__(self, *, bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._entries = OrderedDict[_Place, _Entry]()  # the least recently used first
        self._bytes = self._hits = self._misses = self._evicted = 0
        # No version is given twice, also over evictions and clocks that step back.
        self._version_last = 0

    def entries(self, deployment_id: str) -> _Entries:
        """As `VolatileTier.entries`."""
        check_volatile_deployment(deployment_id)
        return _Entries(self, deployment_id)

    def sweep(self, deployment_id: str) -> int:
        """As `VolatileTier.sweep`; never fails."""
        check_volatile_deployment(deployment_id)
        with self._lock:
            places = [place for place in self._entries if place[0] == deployment_id]
            for place in places:
                self._remove(place)
        return len(places)

    def health(self) -> VolatileHealth:
        """As `VolatileTier.health`: of this process."""
        with self._lock:
            return VolatileHealth(
                memory_used_bytes=self._bytes,
                memory_max_bytes=self._bytes_max,
                hits=self._hits,
                misses=self._misses,
                evicted_keys=self._evicted,
                keys=len(self._entries),
            )

    def close(self) -> None:
        """Forgets everything: the memory was the only place."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    # --- what the entries of a deployment do ---

    def get(self, place: _Place) -> DeploymentValue | None:
        """One entry, which is then the most recently used one."""
        with self._lock:
            entry = self._entries.get(place)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(place)
            return DeploymentValue(entry.value, entry.version)

    def put(self, place: _Place, value: bytes, expected: Precondition) -> Decision:
        """Compares and writes, as one step."""
        now_us = time.time_ns() // 1_000
        with self._lock:
            entry = self._entries.get(place)
            if not expected.holds(None if entry is None else str(entry.version)):
                return _conflict(entry)
            if entry is None:
                version = max(now_us, self._version_last + 1)
            else:
                version = entry.version + 1
                self._remove(place)
            self._version_last = max(self._version_last, version)
            self._entries[place] = _Entry(value, version, now_us // 1_000)
            self._bytes += _size(place, value)
            while self._bytes > self._bytes_max:
                self._remove(next(iter(self._entries)))
                self._evicted += 1
        return Decision(DecisionStatus.APPLIED, version=version)

    def delete(self, place: _Place, expected: Precondition) -> Decision:
        """Compares and removes, as one step."""
        with self._lock:
            entry = self._entries.get(place)
            if entry is None:
                return Decision(DecisionStatus.APPLIED, version=0)
            if not expected.holds(str(entry.version)):
                return _conflict(entry)
            self._remove(place)
        return Decision(DecisionStatus.APPLIED, version=entry.version)

    def objects(self, deployment_id: str, namespace: str) -> list[DeploymentObject]:
        """All objects of a namespace in byte order."""
        with self._lock:
            found = [
                DeploymentObject(place[2], entry.version, len(entry.value), entry.updated_ms)
                for place, entry in self._entries.items()
                if place[:2] == (deployment_id, namespace)
            ]
        # Code points stand in the order of their bytes.
        return sorted(found, key=lambda item: item.key)

    def namespaces(self, deployment_id: str) -> tuple[str, ...]:
        """The namespaces of a deployment in byte order."""
        with self._lock:
            return tuple(sorted({place[1] for place in self._entries if place[0] == deployment_id}))

    def _remove(self, place: _Place) -> None:
        self._bytes -= _size(place, self._entries.pop(place).value)


class _Entries:
    """`VolatileEntries` of one deployment."""

    def __init__(self, tier: MemoryVolatileTier, deployment_id: str) -> None:
        self._tier = tier
        self._deployment_id = deployment_id

    def get(self, namespace: str, key: str) -> DeploymentValue | None:
        check_volatile_place(namespace, key)
        return self._tier.get((self._deployment_id, namespace, key))

    def put(self, namespace: str, key: str, value: bytes, *, expected: Precondition) -> Decision:
        check_volatile_place(namespace, key, value)
        return self._tier.put((self._deployment_id, namespace, key), bytes(value), expected)

    def delete(self, namespace: str, key: str, *, expected: Precondition) -> Decision:
        check_volatile_place(namespace, key)
        return self._tier.delete((self._deployment_id, namespace, key), expected)

    def list(
        self, namespace: str, *, prefix: str = "", cursor: str | None = None, limit: int = PAGE_LIMIT_DEFAULT
    ) -> ObjectPage:
        check_volatile_page(namespace, prefix=prefix, cursor=cursor, limit=limit)
        start, end = page_range(prefix, cursor)
        found = self._tier.objects(self._deployment_id, namespace)
        within = [item for item in found if start <= item.key < end]
        return ObjectPage(tuple(within[:limit]), within[limit - 1].key if len(within) > limit else None)

    def namespaces(self) -> tuple[str, ...]:
        return self._tier.namespaces(self._deployment_id)


def _conflict(entry: _Entry | None) -> Decision:
    version = 0 if entry is None else entry.version
    return Decision(DecisionStatus.CONFLICT, "version-conflict", version=version)


def _size(place: _Place, value: bytes) -> int:
    return _ENTRY_OVERHEAD_BYTES + sum(map(utf8_length, place)) + len(value)
