"""What a bulk prune may remove: ended executions by instance, found page by page (row O15).

How old an execution is tells its recorded end, which is a time of the log. What is found here is only proposed: a prune
record names the executions one by one, and the log decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvfold.reads.paging import page_range
from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement
from kvfold.schemas.body import EVENTS_MAX
from kvfold.schemas.names import orchestration_scope

__all__ = ["PRUNABLE_VISITED_MAX", "Prunable", "PrunablePage", "prunable"]

PRUNABLE_VISITED_MAX: Final = 1_000
"""How many instances one page looks at."""

_EVER_MS: Final = 2**63 - 1
_PRUNABLE: Final = statement("prunable")
_SCOPE_PREFIX: Final = orchestration_scope("")


@dataclass(frozen=True, slots=True)
class Prunable:
    """An instance, and which of its executions a prune may name: in order, at most as many as a record may name."""

    instance_id: str
    execution_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PrunablePage:
    """Instances that have something to prune, in byte order of their ids.

    `next_start` is the id at which the next page begins: not handled yet, or not to its end. None where there is no more.
    """

    instances: tuple[Prunable, ...]
    next_start: str | None


def prunable(
    *,
    prefix: str,
    start: str | None,
    keep_last: int,
    ended_before_ms: int | None,
    limit: int,
    visited_max: int = PRUNABLE_VISITED_MAX,
    executions_max: int = EVENTS_MAX,
) -> Query[PrunablePage]:
    """A page of up to `limit` instances from `start` on that have executions to prune.

    To prune are those that ended before the time (whenever, if None), but for the `keep_last` newest numbers of each
    instance; the current one is always among these, so `keep_last` is at least 1.
    """
    assert keep_last >= 1 and limit >= 1
    low, high = page_range(_SCOPE_PREFIX + prefix, None)
    low = low if start is None else max(low, _SCOPE_PREFIX + start)

    def shape(rows: Rows) -> PrunablePage:
        visited = [(row[2].removeprefix(_SCOPE_PREFIX), row[3] or ()) for row in rows if row[2] is not None]
        found: list[Prunable] = []
        for instance_id, execution_ids in visited[:visited_max]:
            if not execution_ids:
                continue
            if len(found) == limit:
                return PrunablePage(tuple(found), instance_id)
            found.append(Prunable(instance_id, tuple(execution_ids)))
            if len(execution_ids) == executions_max:
                return PrunablePage(tuple(found), instance_id)
        is_cut = len(visited) > visited_max
        return PrunablePage(tuple(found), visited[-1][0] if is_cut else None)

    ended_before = _EVER_MS if ended_before_ms is None else ended_before_ms
    parameters = (low, high, visited_max + 1, keep_last, ended_before, executions_max)
    return Query(_PRUNABLE, parameters, shape, None)
