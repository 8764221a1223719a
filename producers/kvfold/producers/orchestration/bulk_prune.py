"""Pruning executions of many instances (row O15).

Each instance gets a record of its own that names the executions one by one: what a filter found here is decided by the
log, the same in every replay. So a bulk prune that breaks off has done the part that it did, and repeating it does the
rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kvfold.producers import mutations
from kvfold.producers.outcomes import Decided, applied
from kvfold.producers.producer import Producer, Submitted
from kvfold.producers.reading import OwnWritesReader
from kvfold.reads.pruning import Prunable, prunable
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import PAGE_LIMIT_MAX
from kvfold.schemas.names import check_orchestration_name, orchestration_scope
from kvfold.schemas.outcome import DecisionStatus
from kvfold.schemas.times import milliseconds_of

__all__ = ["BulkPruned", "check_prefix", "prune_many"]

_IN_FLIGHT_MAX: Final = 64
_COUNT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BulkPruned:
    """How many instances lost executions, and how many executions these were.

    `next_start` is the instance id to go on with where the limit ended it; None where everything was looked at.
    """

    instances: int
    executions: int
    next_start: str | None


def prune_many(
    producer: Producer,
    reads: OwnWritesReader,
    *,
    older_than: datetime | None,
    keep_last: int,
    prefix: str,
    limit: int | None,
    start: str | None,
    keep_values: bool,
    actor: str | None,
    timeout_s: float,
) -> BulkPruned:
    """As `OrchestrationClient.prune_many`.

    An instance that was deleted, or made anew, since it was found is passed over.
    """
    check_prefix(prefix)
    _check_count("keep_last", keep_last)
    if limit is not None:
        _check_count("limit", limit)
    ended_before_ms = _milliseconds(older_than)
    instances = executions = 0
    counted: str | None = None
    while True:
        query = prunable(
            prefix=prefix,
            start=start,
            keep_last=keep_last,
            ended_before_ms=ended_before_ms,
            limit=PAGE_LIMIT_MAX if limit is None else min(limit - instances, PAGE_LIMIT_MAX),
        )
        found = reads.read_everywhere(query)
        for some in _batches(found.instances):
            sent = [_submitted(producer, one, keep_values, actor, timeout_s) for one in some]
            for one, submitted in zip(some, sent, strict=True):
                removed = _removed(submitted.outcome.result())
                executions += removed
                # An instance that had more than one record may name comes again with the next page.
                if removed and one.instance_id != counted:
                    instances, counted = instances + 1, one.instance_id
        start = found.next_start
        if start is None or (limit is not None and instances >= limit):
            return BulkPruned(instances, executions, start)


def check_prefix(prefix: str) -> None:
    """Raises `InvalidError` `malformed-prefix` for what no instance id can begin with."""
    problem = check_orchestration_name("the prefix", prefix) if prefix else None
    if problem is not None:
        raise InvalidError(problem, code="malformed-prefix")


def _check_count(what: str, count: int) -> None:
    if not 1 <= count <= _COUNT_MAX:
        code = f"malformed-{what.replace('_', '-')}"
        raise InvalidError(f"{what} is {count}: 1 to {_COUNT_MAX} are accepted", code=code)


def _milliseconds(time: datetime | None) -> int | None:
    """Since 1970, as the log's times."""
    if time is None:
        return None
    if time.utcoffset() is None:
        raise InvalidError(f"the time {time} has no zone", code="malformed-older-than")
    return milliseconds_of(time)


def _batches(instances: Sequence[Prunable]) -> Iterator[Sequence[Prunable]]:
    for begin in range(0, len(instances), _IN_FLIGHT_MAX):
        yield instances[begin : begin + _IN_FLIGHT_MAX]


def _submitted(
    producer: Producer, prunable: Prunable, keep_values: bool, actor: str | None, timeout_s: float
) -> Submitted:
    mutation = mutations.orchestration_executions_pruned(
        orchestration_scope(prunable.instance_id),
        prunable.execution_ids,
        keep_values=keep_values,
        actor=actor,
    )
    return producer.submit(mutation, timeout_s=timeout_s)


def _removed(decided: Decided) -> int:
    if decided.decision.status is DecisionStatus.CONFLICT:
        return 0
    removed = applied(decided).removed
    assert removed is not None
    return removed
