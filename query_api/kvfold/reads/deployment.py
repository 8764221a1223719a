"""Reads of deployments: one value, the namespaces in use, pages of objects (rows D1 to D6, D13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvfold.reads.paging import page_range
from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement

__all__ = [
    "DeploymentObject",
    "DeploymentValue",
    "ObjectPage",
    "deployment_namespaces",
    "deployment_objects",
    "deployment_value",
]

_VALUE: Final = statement("deployment_value")
_NAMESPACES: Final = statement("deployment_namespaces")
_OBJECTS: Final = statement("deployment_objects")


@dataclass(frozen=True, slots=True)
class DeploymentValue:
    """A deployment's value as it is now. In a secret namespace the bytes are the envelope, never the plaintext."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class DeploymentObject:
    """What a listing says of an entry; `size` in bytes, `updated_ms` is its record's effective time since 1970."""

    key: str
    version: int
    size: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Objects in byte order of their keys, and the cursor of the next page; None where this is the last one."""

    objects: tuple[DeploymentObject, ...]
    next_cursor: str | None


def deployment_value(
    scope: str, namespace: str, key: str, *, partition: int
) -> Query[DeploymentValue | None]:
    """One key's value; None where it is absent or deleted. An empty value is a value."""
    return Query(_VALUE, (partition, scope, namespace, key), _shape_value, partition)


def deployment_namespaces(scope: str, *, partition: int) -> Query[tuple[str, ...]]:
    """Every namespace with a live entry, in byte order, secret ones included: the caller knows what may be shown."""
    return Query(_NAMESPACES, (partition, scope), _shape_namespaces, partition)


def deployment_objects(
    scope: str, namespace: str, *, prefix: str, cursor: str | None, limit: int, partition: int
) -> Query[ObjectPage]:
    """Up to `limit` live objects whose keys begin with `prefix`, after `cursor`."""
    start, end = page_range(prefix, cursor)

    def shape(rows: Rows) -> ObjectPage:
        objects = tuple(DeploymentObject(*row[2:6]) for row in rows if row[2] is not None)
        return ObjectPage(objects[:limit], objects[limit - 1].key if len(objects) > limit else None)

    return Query(_OBJECTS, (partition, scope, namespace, start, end, limit + 1), shape, partition)


def _shape_value(rows: Rows) -> DeploymentValue | None:
    _, _, value, version = rows[0]
    return None if value is None else DeploymentValue(value, version)


def _shape_namespaces(rows: Rows) -> tuple[str, ...]:
    return tuple(row[2] for row in rows if row[2] is not None)
