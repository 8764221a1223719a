"""Reads of orchestration instances: one instance, its KV, pages of instances (rows O8, O12, O19)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvfold.reads.as_of import VISITED_MAX, after_horizon, past
from kvfold.reads.paging import page_range
from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement
from kvfold.schemas.names import orchestration_scope
from kvfold.schemas.position import Position

__all__ = [
    "INSTANCE_STATUSES",
    "AwaitedValue",
    "InstancePage",
    "InstanceSummary",
    "InstanceView",
    "KvValue",
    "awaited_value",
    "instance",
    "instance_kv",
    "instance_value",
    "instances",
    "instances_at",
    "instances_ever",
]

INSTANCE_STATUSES: Final = ("Running", "Completed", "Failed")
"""What an instance's status can be."""

_INSTANCE: Final = statement("instance")
_KV: Final = statement("instance_kv")
_VALUE: Final = statement("instance_value")
_AWAITED: Final = statement("awaited_value")
_INSTANCE_AS_OF: Final = statement("instance_as_of")
_VALUE_AS_OF: Final = statement("instance_value_as_of")
_IDS_AS_OF: Final = statement("instances_as_of")
_INSTANCES_AT: Final = statement("instances_at")
_PAGE: Final = statement("instances")
_PAGE_BY_STATUS: Final = statement("instances_by_status")
_SCOPE_PREFIX: Final = orchestration_scope("")


@dataclass(frozen=True, slots=True)
class KvValue:
    """An orchestration key's value and the execution that wrote it last (row O12)."""

    value: str
    execution_id: int


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An instance with its KV. `input` and `output` are JSON text; `worker` is the last one to commit something.

    Times are effective times in milliseconds since 1970.
    """

    name: str
    mode: str
    status: str
    incarnation: int
    execution_id: int
    worker: str | None
    history_length: int
    input: str
    output: str | None
    failure: str | None
    custom_status: str | None
    created_ms: int
    updated_ms: int
    kv: Mapping[str, KvValue]


@dataclass(frozen=True, slots=True)
class AwaitedValue:
    """A key of an instance that may still write it. `status` is None where there is no such instance."""

    status: str | None
    value: KvValue | None

    @property
    def goes_on(self) -> bool:
        """Whether the value may still change."""
        return self.status == "Running"


@dataclass(frozen=True, slots=True)
class InstanceSummary:
    """What a listing says of an instance."""

    instance_id: str
    name: str
    mode: str
    status: str
    execution_id: int
    worker: str | None
    history_length: int
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class InstancePage:
    """Instances in byte order of their ids, and the cursor of the next page; None where this is the last one."""

    instances: tuple[InstanceSummary, ...]
    next_cursor: str | None


def instance(instance_id: str, *, partition: int, as_of: int | None = None) -> Query[InstanceView | None]:
    """An instance with its KV, now or as of an offset; None where there is none of that id."""
    scope = orchestration_scope(instance_id)
    if as_of is not None:
        parameters = (partition, scope, as_of)
        return past(_INSTANCE_AS_OF, parameters, _shape_past_instance, partition=partition, as_of=as_of)
    return Query(_INSTANCE, (partition, scope), _shape_instance, partition)


def instance_kv(
    instance_id: str, *, partition: int, as_of: int | None = None
) -> Query[Mapping[str, KvValue] | None]:
    """All keys of an instance; None where there is no instance of that id (row O19 makes it `{}`)."""
    scope = orchestration_scope(instance_id)
    if as_of is not None:
        parameters = (partition, scope, as_of)
        return past(_INSTANCE_AS_OF, parameters, _shape_kv_of_instance, partition=partition, as_of=as_of)
    return Query(_KV, (partition, scope), _shape_kv, partition)


def instance_value(
    instance_id: str, key: str, *, partition: int, as_of: int | None = None
) -> Query[KvValue | None]:
    """One key's value; None where the instance or the key is unknown (row O8). An empty text is a value."""
    scope = orchestration_scope(instance_id)
    if as_of is not None:
        parameters = (partition, scope, key, as_of)
        return past(_VALUE_AS_OF, parameters, _shape_value, partition=partition, as_of=as_of)
    return Query(_VALUE, (partition, scope, key), _shape_value, partition)


def awaited_value(instance_id: str, key: str, *, partition: int) -> Query[AwaitedValue]:
    """A key's value and its instance's status, as of one moment: what a wait for the value looks at."""

    def shape(rows: Rows) -> AwaitedValue:
        return AwaitedValue(rows[0][2], _shape_value([(*row[:2], *row[3:]) for row in rows]))

    return Query(_AWAITED, (partition, orchestration_scope(instance_id), key), shape, partition)


def instances(*, prefix: str, status: str | None, cursor: str | None, limit: int) -> Query[InstancePage]:
    """Up to `limit` instances whose ids begin with `prefix`, after `cursor`, over all partitions."""
    after = None if cursor is None else _SCOPE_PREFIX + cursor
    start, end = page_range(_SCOPE_PREFIX + prefix, after)

    def shape(rows: Rows) -> InstancePage:
        found = tuple(
            InstanceSummary(row[2].removeprefix(_SCOPE_PREFIX), *row[3:11])
            for row in rows
            if row[2] is not None
        )
        return InstancePage(found[:limit], found[limit - 1].instance_id if len(found) > limit else None)

    if status is None:
        return Query(_PAGE, (start, end, limit + 1), shape, None)
    return Query(_PAGE_BY_STATUS, (start, end, limit + 1, status), shape, None)


def instances_ever(*, prefix: str, cursor: str | None) -> Query[tuple[str, ...]]:
    """Ids of instances that there are or were, up to `VISITED_MAX` of them; `instances_at` says which of them when."""
    after = None if cursor is None else _SCOPE_PREFIX + cursor
    start, end = page_range(_SCOPE_PREFIX + prefix, after)

    def shape(rows: Rows) -> tuple[str, ...]:
        return tuple(row[2].removeprefix(_SCOPE_PREFIX) for row in rows if row[2] is not None)

    return Query(_IDS_AS_OF, (start, end, VISITED_MAX), shape, None)


def instances_at(ids: Mapping[str, int], positions: Mapping[int, int]) -> Query[tuple[InstanceSummary, ...]]:
    """Those of the instances that there were, each as of the offset that is named with its id.

    `positions` is the offset of every partition. The shape raises `GoneError` where one of them is below its horizon.
    """

    def shape(rows: Rows) -> tuple[InstanceSummary, ...]:
        for _, _, partition, horizon in (row[:4] for row in rows if row[2] is not None):
            after_horizon(horizon, Position(partition, positions[partition]))
        return tuple(
            InstanceSummary(row[4].removeprefix(_SCOPE_PREFIX), *row[5:13])
            for row in rows
            if row[4] is not None
        )

    scopes = [_SCOPE_PREFIX + instance_id for instance_id in ids]
    parameters = (scopes, list(ids.values()), list(positions))
    return Query(_INSTANCES_AT, parameters, shape, None, dict(positions))


def _shape_instance(rows: Rows) -> InstanceView | None:
    if rows[0][2] is None:
        return None
    kv = {key: KvValue(value, execution) for *_, key, value, execution in rows if key is not None}
    return InstanceView(*(*rows[0][2:15], kv))


def _shape_kv(rows: Rows) -> Mapping[str, KvValue] | None:
    if not rows[0][2]:
        return None
    return {row[3]: KvValue(row[4], row[5]) for row in rows if row[3] is not None}


def _shape_kv_of_instance(rows: Rows) -> Mapping[str, KvValue] | None:
    view = _shape_past_instance(rows)
    return None if view is None else view.kv


def _shape_past_instance(rows: Rows) -> InstanceView | None:
    # The last two columns say from where and when each key is: snapshots give them.
    return _shape_instance([row[:-2] for row in rows])


def _shape_value(rows: Rows) -> KvValue | None:
    _, _, value, execution_id = rows[0]
    return None if value is None else KvValue(value, execution_id)
