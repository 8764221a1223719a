"""What records changed, in the order of the log: what watchers follow (row X10).

A page of changes is read from a partition's decisions, each with the value that its record gave the key, current or not.
So it tells what a record did even where the key was overwritten since, for as long as decisions and history are kept:
the trim horizons of the offset row are read in the same statement, and a page that begins before them is GoneError.

A record changes one key, several, or a range. A range is one change with the prefix, whatever was under it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement
from kvfold.schemas.errors import GoneError
from kvfold.schemas.limits import (
    CHANGES_KEYS_PAGE,
    CHANGES_OFFSETS_PAGE,
    CHANGES_RECORDS_PAGE,
    CHANGES_VALUE_BYTES_INLINE,
)
from kvfold.schemas.position import Position
from kvfold.schemas.rules import is_secret
from kvfold.schemas.types import MUTATION_TYPES, BodyKind, Family

__all__ = [
    "WATCHED_FAMILIES",
    "Bounds",
    "Change",
    "ChangeKind",
    "ChangePage",
    "bounds_of",
    "change_value",
    "changes",
    "changes_bounds",
    "family_of_scope",
]

_OF_SCOPE: Final = "/*of_scope*/"
_CHANGES: Final = statement("changes").replace(_OF_SCOPE, "")
_CHANGES_OF_SCOPE: Final = statement("changes").replace(_OF_SCOPE, "AND x.scope = $7")
_BOUNDS: Final = statement("changes_bounds")
_VALUE: Final = statement("change_value")
_CLEARS: Final = frozenset(
    {
        "kvfold.capsule.prefix-cleared.v1",
        "kvfold.capsule.namespace-cleared.v1",
        "kvfold.deployment.undeployed.v1",
        "kvfold.orchestration.instance-deleted.v1",
    }
)
WATCHED_FAMILIES: Final = (Family.CAPSULE, Family.DEPLOYMENT, Family.ORCHESTRATION)
"""The families that have keys."""

_FAMILY_OF_LETTER: Final = {"c:": Family.CAPSULE, "d:": Family.DEPLOYMENT, "o:": Family.ORCHESTRATION}


class ChangeKind(StrEnum):
    """What happened to a key, or to all keys that begin with a prefix."""

    PUT = "put"
    DELETE = "delete"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one record.

    - `key`: the key, or for a clear the prefix; the empty prefix is everything, of all namespaces for a deployment.
    - `version`: the version written, or the one that was deleted; None for a clear, and for orchestrations, whose keys
      have none but the `execution_id` that wrote them.
    - `size`: bytes of the value as stored (of a secret: of its envelope); None where there is no value.
    - `value`: None also where it has to be fetched (`is_left_behind`) and in secret namespaces.
    - `removed`: how many entries a clear removed, None where that is not known.
    """

    position: Position
    scope: str
    kind: ChangeKind
    key: str
    actor: str | None
    time_ms: int
    namespace: str | None = None
    version: int | None = None
    execution_id: int | None = None
    size: int | None = None
    value: bytes | None = None
    removed: int | None = None

    @property
    def is_secret(self) -> bool:
        """Whether the value is never told."""
        return self.namespace is not None and is_secret(self.namespace)

    def without_secret(self) -> Change:
        """The change without its value, where that must not be told."""
        return replace(self, value=None) if self.is_secret else self

    @property
    def is_left_behind(self) -> bool:
        """Whether the value was too large for its page: `change_value` fetches it."""
        return self.size is not None and self.value is None and not self.is_secret


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a partition is folded, and the positions from which changes of each family can still be followed.

    `offset` is the last one covered. A reader that has everything up to `followed_from[family]`, or further, misses none.
    """

    partition: int
    offset: int
    followed_from: dict[Family, int]

    def check(self, after: int, families: Iterable[Family]) -> None:
        """Checks that a reader can go on after an offset.

        Raises:
            GoneError: what came right after it was forgotten.
        """
        oldest = max(self.followed_from[family] for family in families)
        if after < oldest:
            raise GoneError(
                f"changes after {self.partition}:{after} are not kept any more; the oldest position to go on from is "
                f"{self.partition}:{oldest}"
            )


@dataclass(frozen=True, slots=True)
class ChangePage:
    """The changes up to an offset, in order; those of one record stand together. `is_last`: the projection has no more."""

    changes: tuple[Change, ...]
    offset: int
    is_last: bool


def changes_bounds(partition: int) -> Query[Bounds]:
    """How far the partition is folded, and how far back its changes go."""
    return Query(_BOUNDS, (partition,), lambda rows: bounds_of(partition, rows[0]), partition)


def changes(
    partition: int, *, after: int, families: Iterable[Family], scope: str | None = None
) -> Query[ChangePage]:
    """The next page of changes after an offset: of one scope, or of all scopes of the partition, also of other families.

    A page may be empty and not the last one: its offset moves on. Running the query raises GoneError where a change of one
    of the families, after that offset, may have been forgotten.
    """
    wanted = tuple(families)
    end = after + CHANGES_OFFSETS_PAGE
    limits = (CHANGES_RECORDS_PAGE, end, CHANGES_KEYS_PAGE, CHANGES_VALUE_BYTES_INLINE)

    def shape(rows: Rows) -> ChangePage:
        bounds_of(partition, rows[0]).check(after, wanted)
        return _page(partition, rows, after=after, end=end)

    if scope is None:
        return Query(_CHANGES, (partition, after, *limits), shape, partition)
    return Query(_CHANGES_OF_SCOPE, (partition, after, *limits, scope), shape, partition)


def change_value(change: Change) -> Query[Change]:
    """The change with its value, where that was left behind. Running the query raises GoneError where it was forgotten."""
    position = change.position

    def shape(rows: Rows) -> Change:
        value = rows[0][2]
        if value is None:
            raise GoneError(f"the value that {position} wrote is not kept any more")
        return replace(change, value=value)

    parameters = (position.partition, change.scope, change.namespace, change.key, position.offset)
    return Query(_VALUE, parameters, shape, position.partition)


def family_of_scope(scope: str) -> Family | None:
    """The family of a scope of entries: `c:…`, `d:…` or `o:…`. None for others."""
    return _FAMILY_OF_LETTER.get(scope[:2])


def bounds_of(partition: int, row: tuple[Any, ...]) -> Bounds:
    """The bounds that a row begins with, behind the serving generation: next offset, and the four horizons."""
    offset_next, decisions, capsule, deployment, orchestration = (number or 0 for number in row[1:6])
    # What records below the horizon changed was forgotten; a reader that has all of them needs none of it.
    followed_from = {
        Family.CAPSULE: max(decisions, capsule) - 1,
        Family.DEPLOYMENT: max(decisions, deployment) - 1,
        Family.ORCHESTRATION: max(decisions, orchestration) - 1,
    }
    return Bounds(partition, offset_next - 1, followed_from)


def _page(partition: int, rows: Rows, *, after: int, end: int) -> ChangePage:
    folded = max((rows[0][1] or 0) - 1, after)
    if rows[0][7] is None:
        return ChangePage((), min(folded, end), folded <= end)
    found = tuple(change for row in rows if (change := _change(partition, row[7:])) is not None)
    counted, given = rows[0][6], len({row[7] for row in rows})
    if counted == CHANGES_RECORDS_PAGE or given < counted:
        return ChangePage(found, rows[-1][7], False)
    return ChangePage(found, min(folded, end), folded <= end)


def _change(partition: int, columns: tuple[Any, ...]) -> Change | None:
    """The change that a row tells; None where the record changed nothing that a watcher follows."""
    offset, scope, type_name, namespace, subject, key, actor, version, removed, time_ms, *value = columns
    is_current, entry_version, execution_id, size, data = value
    change = Change(
        Position(partition, offset), scope, ChangeKind.DELETE, key or "", actor, time_ms, namespace
    )
    if type_name in _CLEARS:
        if removed == 0:
            return None
        known = None if change.scope.startswith("o:") else removed
        return replace(change, kind=ChangeKind.CLEARED, key=subject or "", removed=known)
    if key is None:
        return None
    if is_current and size is not None:
        change = replace(
            change,
            kind=ChangeKind.PUT,
            version=entry_version,
            execution_id=execution_id,
            size=size,
            value=data,
        )
        return change.without_secret()
    if subject is None or is_current:
        return replace(change, version=entry_version)
    if MUTATION_TYPES[type_name].body is not BodyKind.NONE:
        raise GoneError(f"the value that {change.position} wrote is not kept any more")
    return replace(change, version=version) if version else None
