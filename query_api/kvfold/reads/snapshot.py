"""What a snapshot of a scope is read with (row X11): pages of entries and their values, all as of one offset.

A page says what there is, without the values; these are then asked for by groups of a bounded size. Each is a read of its
own, as of the same offset, so nothing holds a transaction open for the length of a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kvfold.reads.as_of import VISITED_MAX, past
from kvfold.reads.paging import page_range, past_page
from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement

__all__ = [
    "EntryPage",
    "SnapshotEntry",
    "capsule_entries",
    "capsule_values",
    "deployment_entries",
    "deployment_values",
    "instance_entries",
    "partition_position",
]

_POSITION: Final = statement("partition_position")
_CAPSULE_ENTRIES: Final = statement("capsule_keys_as_of")
_CAPSULE_VALUES: Final = statement("capsule_values_as_of")
_DEPLOYMENT_ENTRIES: Final = statement("deployment_objects_as_of")
_DEPLOYMENT_VALUES: Final = statement("deployment_values_as_of")
_INSTANCE: Final = statement("instance_as_of")


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """An entry without its value: `size` in bytes, the offset that wrote it, effective time since 1970.

    `version` is None for an orchestration's keys, which have none.
    """

    key: str
    version: int | None
    size: int
    time_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Entries in byte order of their keys, and the cursor of the next page; None where this is the last one."""

    entries: tuple[SnapshotEntry, ...]
    next_cursor: str | None


def partition_position(partition: int) -> Query[None]:
    """Nothing but how far the partition is folded."""
    return Query(_POSITION, (partition,), lambda rows: None, partition)


def capsule_entries(
    scope: str, *, cursor: str | None, limit: int, partition: int, as_of: int
) -> Query[EntryPage]:
    """Up to `limit` entries after `cursor`; a page may be short."""
    parameters = (partition, scope, *page_range("", cursor), limit + 1, as_of, VISITED_MAX)
    return past(_CAPSULE_ENTRIES, parameters, _page(limit), partition=partition, as_of=as_of)


def deployment_entries(
    scope: str, namespace: str, *, cursor: str | None, limit: int, partition: int, as_of: int
) -> Query[EntryPage]:
    """Up to `limit` entries of a namespace after `cursor`; a page may be short."""
    parameters = (partition, scope, namespace, *page_range("", cursor), limit + 1, as_of, VISITED_MAX)
    return past(_DEPLOYMENT_ENTRIES, parameters, _page(limit), partition=partition, as_of=as_of)


def capsule_values(scope: str, keys: list[str], *, partition: int, as_of: int) -> Query[Mapping[str, bytes]]:
    """The values of keys that were there."""
    parameters = (partition, scope, keys, as_of)
    return past(_CAPSULE_VALUES, parameters, _values, partition=partition, as_of=as_of)


def deployment_values(
    scope: str, namespace: str, keys: list[str], *, partition: int, as_of: int
) -> Query[Mapping[str, bytes]]:
    """The values of keys that were there; of a secret namespace the envelopes."""
    parameters = (partition, scope, namespace, keys, as_of)
    return past(_DEPLOYMENT_VALUES, parameters, _values, partition=partition, as_of=as_of)


def instance_entries(
    scope: str, *, partition: int, as_of: int
) -> Query[tuple[tuple[SnapshotEntry, str], ...]]:
    """All keys of an instance (ten at most) with their values."""

    def shape(rows: Rows) -> tuple[tuple[SnapshotEntry, str], ...]:
        return tuple(
            (SnapshotEntry(key, None, len(value.encode()), time_ms, offset), value)
            for *_, key, value, _, offset, time_ms in rows
            if key is not None
        )

    return past(_INSTANCE, (partition, scope, as_of), shape, partition=partition, as_of=as_of)


def _page(limit: int) -> Callable[[Rows], EntryPage]:
    def shape(rows: Rows) -> EntryPage:
        found, next_cursor = past_page(rows, limit)
        return EntryPage(
            tuple(SnapshotEntry(row[2], row[3], row[4], row[5], row[-2]) for row in found), next_cursor
        )

    return shape


def _values(rows: Rows) -> Mapping[str, bytes]:
    return {row[2]: row[3] for row in rows if row[2] is not None}
