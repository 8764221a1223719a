"""The entries of a scope at one position, as changes: what a watcher begins with.

Pages are read while the scope goes on changing, and all of them show it as it was at the one position: an entry that was
replaced since is still in the history, where it is found by when it ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kvfold.reads.changes import Change, ChangeKind, bounds_of, family_of_scope
from kvfold.reads.paging import page_range
from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement
from kvfold.schemas.limits import CHANGES_RECORDS_PAGE, CHANGES_VALUE_BYTES_INLINE
from kvfold.schemas.position import Position
from kvfold.schemas.types import Family

__all__ = ["SnapshotPage", "snapshot_page"]

_CAPSULE: Final = statement("snapshot_capsule")
_DEPLOYMENT: Final = statement("snapshot_deployment")
_ORCHESTRATION: Final = statement("snapshot_orchestration")
_ABOVE_ALL_NAMES: Final = (
    "\U0010ffff" * 33
)  # longer than a namespace can be, of the highest character there is


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Entries in byte order, each as the put that wrote it, and the cursor of the next page; None where this is the last."""

    puts: tuple[Change, ...]
    cursor: tuple[str, str] | None


def snapshot_page(
    scope: str, *, namespace: str | None, prefix: str, cursor: tuple[str, str] | None, at: Position
) -> Query[SnapshotPage]:
    """A page of a scope as it was at a position, of keys with a prefix; of one namespace, or of all where that is None.

    Running the query raises GoneError where that state was forgotten.
    """
    partition, offset = at.partition, at.offset
    limits = (CHANGES_RECORDS_PAGE, CHANGES_VALUE_BYTES_INLINE)
    family = family_of_scope(scope)
    start, end = page_range(prefix, None if cursor is None else cursor[1])

    def shape(rows: Rows) -> SnapshotPage:
        bounds_of(partition, rows[0]).check(offset, () if family is None else (family,))
        found = tuple(_put(scope, partition, row[6:]) for row in rows if row[7] is not None)
        is_cut = family is not Family.ORCHESTRATION and len(found) == CHANGES_RECORDS_PAGE
        last = (found[-1].namespace or "", found[-1].key) if is_cut else None
        return SnapshotPage(tuple(put for put in found if put.key.startswith(prefix)), last)

    match family:
        case Family.CAPSULE:
            return Query(_CAPSULE, (partition, scope, start, end, offset, *limits), shape, partition)
        case Family.DEPLOYMENT:
            first, last = (namespace, start), (namespace, end)
            if namespace is None:
                # All namespaces, each with its keys of the prefix: what lies between is left out above.
                first = ("", "") if cursor is None else (cursor[0], cursor[1] + "\x01")
                last = (_ABOVE_ALL_NAMES, "")
            return Query(_DEPLOYMENT, (partition, scope, *first, *last, offset, *limits), shape, partition)
        case _:
            return Query(_ORCHESTRATION, (partition, scope, offset), shape, partition)


def _put(scope: str, partition: int, columns: tuple[Any, ...]) -> Change:
    namespace, key, version, execution_id, size, value, actor, valid_from, time_ms = columns
    change = Change(
        Position(partition, valid_from),
        scope,
        ChangeKind.PUT,
        key,
        actor,
        time_ms,
        namespace=namespace,
        version=version,
        execution_id=execution_id,
        size=size,
        value=value,
    )
    return change.without_secret()
