"""Reads of deployments: one value, the namespaces in use, pages of objects (rows D1 to D6, D13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvfold.reads.as_of import VISITED_MAX, past
from kvfold.reads.paging import page_range, past_page
from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement

__all__ = [
    "DeploymentObject",
    "DeploymentValue",
    "ObjectPage",
    "StoreSize",
    "deployment_namespaces",
    "deployment_objects",
    "deployment_value",
    "store_size",
]

_VALUE: Final = statement("deployment_value")
_NAMESPACES: Final = statement("deployment_namespaces")
_OBJECTS: Final = statement("deployment_objects")
_STORE_SIZE: Final = statement("store_size")
_VALUE_AS_OF: Final = statement("deployment_value_as_of")
_NAMESPACES_AS_OF: Final = statement("deployment_namespaces_as_of")
_OBJECTS_AS_OF: Final = statement("deployment_objects_as_of")


@dataclass(frozen=True, slots=True)
class DeploymentValue:
    """A deployment's value as it is now. In a secret namespace the bytes are the envelope, never the plaintext."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class DeploymentObject:
    """What a listing says of an entry; `size` in bytes, `updated_ms` is its record's effective time since 1970.

    `sha256` is the value's digest; None where the tier keeps none (volatile namespaces).
    """

    key: str
    version: int
    size: int
    updated_ms: int
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Objects in byte order of their keys, and the cursor of the next page; None where this is the last one."""

    objects: tuple[DeploymentObject, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class StoreSize:
    """How large the persistent store of all deployments is, in the serving generation.

    `entry_bytes` and `history_bytes` with indexes; `rows` as the statistics know them, tombstones among them.
    """

    entry_bytes: int
    history_bytes: int
    rows: int


def deployment_value(
    scope: str, namespace: str, key: str, *, partition: int, as_of: int | None = None
) -> Query[DeploymentValue | None]:
    """One key's value, now or as of an offset; None where it is absent or deleted. An empty value is a value."""
    if as_of is not None:
        parameters = (partition, scope, namespace, key, as_of)
        return past(_VALUE_AS_OF, parameters, _shape_value, partition=partition, as_of=as_of)
    return Query(_VALUE, (partition, scope, namespace, key), _shape_value, partition)


def deployment_namespaces(scope: str, *, partition: int, as_of: int | None = None) -> Query[tuple[str, ...]]:
    """Every namespace with a live entry, in byte order, secret ones included: the caller knows what may be shown."""
    if as_of is not None:
        parameters = (partition, scope, as_of)
        return past(_NAMESPACES_AS_OF, parameters, _shape_namespaces, partition=partition, as_of=as_of)
    return Query(_NAMESPACES, (partition, scope), _shape_namespaces, partition)


def deployment_objects(
    scope: str,
    namespace: str,
    *,
    prefix: str,
    cursor: str | None,
    limit: int,
    partition: int,
    as_of: int | None = None,
) -> Query[ObjectPage]:
    """Up to `limit` live objects whose keys begin with `prefix`, after `cursor`.

    As of an offset, a page may hold fewer objects than there were: go on while there is a cursor.
    """
    start, end = page_range(prefix, cursor)
    if as_of is not None:

        def past_shape(rows: Rows) -> ObjectPage:
            found, next_cursor = past_page(rows, limit)
            return ObjectPage(tuple(DeploymentObject(*row[2:7]) for row in found), next_cursor)

        parameters = (partition, scope, namespace, start, end, limit + 1, as_of, VISITED_MAX)
        return past(_OBJECTS_AS_OF, parameters, past_shape, partition=partition, as_of=as_of)

    def shape(rows: Rows) -> ObjectPage:
        objects = tuple(DeploymentObject(*row[2:7]) for row in rows if row[2] is not None)
        return ObjectPage(objects[:limit], objects[limit - 1].key if len(objects) > limit else None)

    return Query(_OBJECTS, (partition, scope, namespace, start, end, limit + 1), shape, partition)


def store_size() -> Query[StoreSize]:
    """The size of the tables, and the positions of every partition."""
    return Query(_STORE_SIZE, (), lambda rows: StoreSize(*rows[0][2:5]), None)


def _shape_value(rows: Rows) -> DeploymentValue | None:
    _, _, value, version = rows[0]
    return None if value is None else DeploymentValue(value, version)


def _shape_namespaces(rows: Rows) -> tuple[str, ...]:
    return tuple(row[2] for row in rows if row[2] is not None)
