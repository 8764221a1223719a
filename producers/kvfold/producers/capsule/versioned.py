"""The versioned envelope `{"__sv": N, "data": …}`: stored data says which schema it is of (002; row C16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kvfold.producers.capsule.errors import ApiError, JsonError

__all__ = [
    "SCHEMA_VERSION_MAX",
    "Current",
    "NeedsMigration",
    "NotFound",
    "Unversioned",
    "Versioned",
    "checked_version",
    "enveloped",
    "opened",
]

T = TypeVar("T")

SCHEMA_VERSION_MAX: Final = 2**32 - 1
_VERSION: Final = "__sv"
_DATA: Final = "data"


@dataclass(frozen=True, slots=True)
class Current(Generic[T]):
    """Data of the version that was asked for."""

    data: T


@dataclass(frozen=True, slots=True)
class NeedsMigration:
    """Data of an older version, as JSON."""

    raw: Any
    stored_version: int


@dataclass(frozen=True, slots=True)
class Unversioned:
    """JSON that was written before versions were adopted."""

    raw: Any


@dataclass(frozen=True, slots=True)
class NotFound:
    """The key is missing. An empty value is not: it is no JSON, and an error."""


Versioned = Current[T] | NeedsMigration | Unversioned | NotFound
"""What a versioned read finds; `match` tells which."""


def checked_version(version: int) -> int:
    """The version. Raises ApiError outside 0 to 2^32 - 1."""
    if not _is_version(version):
        raise ApiError(
            f"the schema version is not accepted: a whole number from 0 to {SCHEMA_VERSION_MAX} is"
        )
    return version


def enveloped(data: object, version: int) -> dict[str, object]:
    """The envelope of data at a version. Raises as `checked_version`."""
    return {_VERSION: checked_version(version), _DATA: data}


def opened(stored: Any, current: int) -> Current[Any] | NeedsMigration | Unversioned:
    """What a stored JSON value is, asked for at version `current`.

    Raises:
        JsonError: it has `__sv`, and is no envelope: another member, none of data, a version that is none.
        ApiError: it is of a newer version. Code that does not know a schema must not guess at its data.
    """
    checked_version(current)
    if not isinstance(stored, dict) or _VERSION not in stored:
        return Unversioned(stored)
    version = stored[_VERSION]
    if stored.keys() != {_VERSION, _DATA} or not _is_version(version):
        raise JsonError(
            'the stored envelope is malformed: {"__sv": number, "data": …} is one, '
            f"with a version from 0 to {SCHEMA_VERSION_MAX}"
        )
    if version > current:
        raise ApiError(f"the stored data is of schema version {version}: this code knows up to {current}")
    return Current(stored[_DATA]) if version == current else NeedsMigration(stored[_DATA], version)


def _is_version(number: object) -> bool:
    return type(number) is int and 0 <= number <= SCHEMA_VERSION_MAX
