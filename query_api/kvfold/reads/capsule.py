"""Reads of capsule namespaces: one value, pages of keys, usage (rows C3, C8 to C10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvfold.reads.as_of import VISITED_MAX, past
from kvfold.reads.paging import page_range, past_page
from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement
from kvfold.schemas.limits import CAPSULE_QUOTA_BYTES_DEFAULT

__all__ = [
    "CapsuleNamespace",
    "CapsuleUsage",
    "CapsuleValue",
    "KeyPage",
    "NamespacePage",
    "capsule_keys",
    "capsule_namespaces",
    "capsule_usage",
    "capsule_value",
]

_VALUE: Final = statement("capsule_value")
_KEYS: Final = statement("capsule_keys")
_VALUE_AS_OF: Final = statement("capsule_value_as_of")
_KEYS_AS_OF: Final = statement("capsule_keys_as_of")
_USAGE: Final = statement("capsule_usage")
_NAMESPACES: Final = statement("capsule_namespaces")
_SCOPE_PREFIX: Final = "c:"


@dataclass(frozen=True, slots=True)
class CapsuleValue:
    """A capsule's value as it is now; `sha256` is the digest of its bytes, 32 bytes long."""

    value: bytes
    sha256: bytes
    version: int


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Keys in byte order, and the cursor of the next page; None where this is the last one."""

    keys: tuple[str, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class CapsuleUsage:
    """Live keys, bytes of keys and values, and the quota in force."""

    keys: int
    bytes: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class CapsuleNamespace:
    """A namespace `PRINCIPAL:capsule:ID` that was written to, or given a quota, and its usage."""

    name: str
    usage: CapsuleUsage

    @property
    def principal(self) -> str:
        """Whose it is."""
        return self.name.split(":")[0]

    @property
    def capsule_id(self) -> str:
        """Of which capsule it is."""
        return self.name.split(":")[2]


@dataclass(frozen=True, slots=True)
class NamespacePage:
    """Namespaces in byte order, and the cursor of the next page; None where this is the last one."""

    namespaces: tuple[CapsuleNamespace, ...]
    next_cursor: str | None


def capsule_value(
    scope: str, key: str, *, partition: int, as_of: int | None = None
) -> Query[CapsuleValue | None]:
    """One key's value, now or as of an offset; None where the key is absent. An empty value is a value."""
    if as_of is not None:
        parameters = (partition, scope, key, as_of)
        return past(_VALUE_AS_OF, parameters, _shape_value, partition=partition, as_of=as_of)
    return Query(_VALUE, (partition, scope, key), _shape_value, partition)


def capsule_keys(
    scope: str, *, prefix: str, cursor: str | None, limit: int, partition: int, as_of: int | None = None
) -> Query[KeyPage]:
    """Up to `limit` keys that begin with `prefix`, after `cursor`. The empty prefix takes every key.

    As of an offset, a page may hold fewer keys than there were: go on while there is a cursor.
    """
    start, end = page_range(prefix, cursor)
    if as_of is not None:

        def past_shape(rows: Rows) -> KeyPage:
            found, next_cursor = past_page(rows, limit)
            return KeyPage(tuple(row[2] for row in found), next_cursor)

        parameters = (partition, scope, start, end, limit + 1, as_of, VISITED_MAX)
        return past(_KEYS_AS_OF, parameters, past_shape, partition=partition, as_of=as_of)

    def shape(rows: Rows) -> KeyPage:
        keys = tuple(row[2] for row in rows if row[2] is not None)
        return KeyPage(keys[:limit], keys[limit - 1] if len(keys) > limit else None)

    return Query(_KEYS, (partition, scope, start, end, limit + 1), shape, partition)


def capsule_usage(scope: str, *, partition: int) -> Query[CapsuleUsage]:
    """Usage of a namespace; zeros and the default quota where nothing was ever written."""
    return Query(_USAGE, (partition, scope), _shape_usage, partition)


def capsule_namespaces(*, prefix: str, cursor: str | None, limit: int) -> Query[NamespacePage]:
    """Up to `limit` namespaces whose names begin with `prefix`, after the name `cursor`, over all partitions.

    A namespace that was emptied is still listed: its capsule, or its quota, was there.
    """
    start, end = page_range(_SCOPE_PREFIX + prefix, None if cursor is None else _SCOPE_PREFIX + cursor)

    def shape(rows: Rows) -> NamespacePage:
        found = tuple(
            CapsuleNamespace(row[2].removeprefix(_SCOPE_PREFIX), _usage(*row[3:6]))
            for row in rows
            if row[2] is not None
        )
        return NamespacePage(found[:limit], found[limit - 1].name if len(found) > limit else None)

    return Query(_NAMESPACES, (start, end, limit + 1), shape, None)


def _shape_value(rows: Rows) -> CapsuleValue | None:
    _, _, value, sha256, version = rows[0]
    return None if value is None else CapsuleValue(value, sha256, version)


def _shape_usage(rows: Rows) -> CapsuleUsage:
    return _usage(*rows[0][2:5])


def _usage(keys: int | None, size: int | None, bytes_max: int | None) -> CapsuleUsage:
    quota = CAPSULE_QUOTA_BYTES_DEFAULT if bytes_max is None else bytes_max
    return CapsuleUsage(keys or 0, size or 0, quota)
