"""The events of an execution: what its code did, and what it was told, in order (row O12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement
from kvfold.schemas.names import orchestration_scope

__all__ = ["EVENTS_PAGE_BYTES_MAX", "ExecutionEvent", "ExecutionEvents", "execution_events"]

EVENTS_PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A page ends with the event that reaches so many bytes of JSON."""

_EVENTS: Final = statement("instance_events")


@dataclass(frozen=True, slots=True)
class ExecutionEvent:
    """An event, numbered from 1; `data` is its canonical JSON, and the record at `record_offset` wrote it."""

    event_id: int
    kind: str
    data: str
    record_offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class ExecutionEvents:
    """A page of an execution's events; `next_after` is the event after which the next page begins, None for the last."""

    execution_id: int
    events: tuple[ExecutionEvent, ...]
    next_after: int | None


def execution_events(
    instance_id: str,
    *,
    execution_id: int | None,
    after: int,
    limit: int,
    partition: int,
    bytes_max: int = EVENTS_PAGE_BYTES_MAX,
) -> Query[ExecutionEvents | None]:
    """Up to `limit` events behind the event `after`, of the current execution if none is named.

    None where there is no such instance, or no such execution of it (any more).
    """

    def shape(rows: Rows) -> ExecutionEvents | None:
        execution = rows[0][2]
        if execution is None:
            return None
        found = tuple(ExecutionEvent(*row[3:8]) for row in rows if row[3] is not None)
        size = sum(len(event.data.encode()) for event in found)
        goes_on = len(found) > limit or size >= bytes_max
        page = found[:limit]
        return ExecutionEvents(execution, page, page[-1].event_id if goes_on else None)

    parameters = (partition, orchestration_scope(instance_id), execution_id, after, limit + 1, bytes_max)
    return Query(_EVENTS, parameters, shape, partition)
