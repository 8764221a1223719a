"""The reads of orchestration instances (rows O8, O12, O19)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.routes import Parameter, Route, json_answer
from kvfold.query_api import arguments
from kvfold.query_api.answers import found, json_response, read_until
from kvfold.query_api.arguments import CURSOR, LIMIT, MIN_POSITION, PREFIX, WAIT
from kvfold.query_api.as_of import AS_OF, AS_OF_CODES, AS_OF_EVERYWHERE, GONE, as_of_everywhere, as_of_offset
from kvfold.query_api.context import ReadContext
from kvfold.query_api.documented import POSITIONED, read_problems
from kvfold.query_api.shapes import Instance, InstanceEvents, InstanceKv, Instances, KvEntry
from kvfold.query_api.times import rfc3339_ms
from kvfold.reads.as_of import VISITED_MAX
from kvfold.reads.instance_history import ExecutionEvent, execution_events
from kvfold.reads.orchestration import (
    INSTANCE_STATUSES,
    AwaitedValue,
    InstancePage,
    InstanceSummary,
    InstanceView,
    KvValue,
    awaited_value,
    instance,
    instance_kv,
    instance_value,
    instances,
    instances_at,
    instances_ever,
)
from kvfold.reads.query import Read
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.position import Position

__all__ = ["instance_routes"]

_TAG: Final = "instances"
_BASE: Final = "/v1/instances"
_PATH: Final = (
    Parameter("id", "The instance: no control characters, 1 to 256 bytes"),
    Parameter(
        "key", "Any text without NUL, at most 256 bytes, the empty one included; all the rest of the path"
    ),
)
_STATUS: Final = Parameter("status", "Only of this status", {"enum": list(INSTANCE_STATUSES)})
_EXECUTION: Final = Parameter("execution_id", "Which execution", {"type": "integer", "minimum": 1})
_EVENT_CURSOR: Final = Parameter("cursor", "The `next_cursor` of the page before")
_NAME: Final = ("malformed-name",)


def instance_routes(context: ReadContext) -> list[Route]:
    """The list, one instance, its KV, one key of it, its history."""
    return [_instances(context), _instance(context), _kv(context), _value(context), _events(context)]


def _instances(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        positions = await as_of_everywhere(context, call)
        read = await (_live(context, call) if positions is None else _past(context, call, positions))
        page = read.value
        data = {"instances": [_item(item) for item in page.instances], "next_cursor": page.next_cursor}
        return json_response(data, read)

    invalid = ("malformed-status", "malformed-prefix", "malformed-cursor", "malformed-limit", *AS_OF_CODES)
    return Route(
        "GET",
        _BASE,
        endpoint,
        "Instances in byte order of their ids, by pages",
        _TAG,
        query=(_STATUS, PREFIX, CURSOR, LIMIT, AS_OF_EVERYWHERE),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("A page of instances", Instances, headers=POSITIONED),
            *read_problems({400: invalid, 410: GONE}),
        ),
    )


async def _live(context: ReadContext, call: Call) -> Read[InstancePage]:
    query = instances(
        prefix=arguments.plain_prefix(call),
        status=_status(call),
        cursor=arguments.cursor(call),
        limit=arguments.page_limit(call),
    )
    return await context.reads.read(call, query)


async def _past(context: ReadContext, call: Call, positions: Mapping[int, int]) -> Read[InstancePage]:
    """A page of the instances that there were, each as of the position of its own partition."""
    status, limit = _status(call), arguments.page_limit(call)
    ever = instances_ever(prefix=arguments.plain_prefix(call), cursor=arguments.cursor(call))
    ids = (await context.reads.read(call, ever)).value
    offsets = {name: positions[await context.reader.partition("o:" + name)] for name in ids}
    read = await context.reads.read(call, instances_at(offsets, positions))
    found = [item for item in read.value if status is None or item.status == status]
    cursor = ids[-1] if len(ids) >= VISITED_MAX else None
    if len(found) > limit:
        cursor = found[limit - 1].instance_id
    return Read(InstancePage(tuple(found[:limit]), cursor), read.positions, read.generation)


def _instance(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        name = arguments.instance_id(call)
        wait_s = arguments.wait_seconds(call)
        partition = await context.reader.partition("o:" + name)
        as_of = await as_of_offset(context, call, partition=partition)
        if as_of is not None:
            wait_s = 0.0  # the past does not change
        query = instance(name, partition=partition, as_of=as_of)
        read = await read_until(context, call, query, _has_ended, wait_s=wait_s)
        return json_response(_instance_json(name, found(read, "such instance")), read)

    return Route(
        "GET",
        f"{_BASE}/{{id}}",
        endpoint,
        "One instance",
        _TAG,
        description="With `wait`, answers when it has ended, or as it is when the time is over; at once if unknown.",
        path=_PATH,
        query=(WAIT, AS_OF),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("The instance", Instance, headers=POSITIONED),
            *read_problems({400: (*_NAME, "malformed-wait", *AS_OF_CODES), 404: ("not-found",), 410: GONE}),
        ),
    )


def _kv(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        name = arguments.instance_id(call)
        partition = await context.reader.partition("o:" + name)
        as_of = await as_of_offset(context, call, partition=partition)
        query = instance_kv(name, partition=partition, as_of=as_of)
        read = await context.reads.read(call, query)
        return json_response({"kv": _kv_json(found(read, "such instance"))}, read)

    return Route(
        "GET",
        f"{_BASE}/{{id}}/kv",
        endpoint,
        "All keys of an instance",
        _TAG,
        path=_PATH,
        query=(AS_OF,),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("The keys", InstanceKv, headers=POSITIONED),
            *read_problems({400: (*_NAME, *AS_OF_CODES), 404: ("not-found",), 410: GONE}),
        ),
    )


def _value(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        name, key = arguments.instance_id(call), arguments.instance_key(call)
        wait_s = arguments.wait_seconds(call)
        partition = await context.reader.partition("o:" + name)
        as_of = await as_of_offset(context, call, partition=partition)
        if wait_s > 0 and as_of is None:  # the past does not change
            query = awaited_value(name, key, partition=partition)
            awaited = await read_until(context, call, query, _is_settled, wait_s=wait_s)
            read = Read(awaited.value.value, awaited.positions, awaited.generation)
        else:
            value = instance_value(name, key, partition=partition, as_of=as_of)
            read = await context.reads.read(call, value)
        entry = found(read, "such instance or key")
        return json_response({"key": key, "value": entry.value, "execution_id": entry.execution_id}, read)

    return Route(
        "GET",
        f"{_BASE}/{{id}}/kv/{{key:rest}}",
        endpoint,
        "One key of an instance",
        _TAG,
        description="With `wait`, answers when the key is set; at once if the instance has ended or is unknown.",
        path=_PATH,
        query=(WAIT, AS_OF),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("The value", KvEntry, headers=POSITIONED),
            *read_problems(
                {
                    400: (*_NAME, "invalid-key", "malformed-wait", *AS_OF_CODES),
                    404: ("not-found",),
                    410: GONE,
                }
            ),
        ),
    )


def _events(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        name = arguments.instance_id(call)
        partition = await context.reader.partition("o:" + name)
        query = execution_events(
            name,
            execution_id=arguments.positive_number(call, "execution_id", "malformed-execution"),
            after=arguments.positive_number(call, "cursor", "malformed-cursor") or 0,
            limit=arguments.page_limit(call),
            partition=partition,
        )
        read = await context.reads.read(call, query)
        page = found(read, "such instance or execution")
        data = {
            "execution_id": page.execution_id,
            "events": [_event_json(event, partition) for event in page.events],
            "next_cursor": None if page.next_after is None else str(page.next_after),
        }
        return json_response(data, read)

    invalid = (*_NAME, "malformed-execution", "malformed-cursor", "malformed-limit")
    return Route(
        "GET",
        f"{_BASE}/{{id}}/history",
        endpoint,
        "The events of an execution, in order",
        _TAG,
        description="Of the current execution unless one is named. A page may hold fewer events than `limit`: go on while "
        "there is a `next_cursor`. Who asked for what is told by `/v1/history/orchestration/o:{id}`.",
        path=_PATH[:1],
        query=(_EXECUTION, _EVENT_CURSOR, LIMIT),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("A page of events", InstanceEvents, headers=POSITIONED),
            *read_problems({400: invalid, 404: ("not-found",)}),
        ),
    )


def _status(call: Call) -> str | None:
    status = call.query.get("status")
    if status is not None and status not in INSTANCE_STATUSES:
        accepted = ", ".join(INSTANCE_STATUSES)
        raise InvalidError(f"no instance has such a status; accepted: {accepted}", code="malformed-status")
    return status


def _has_ended(view: InstanceView | None) -> bool:
    """Nothing is worth waiting for: the instance has ended, or there is none."""
    return view is None or view.status != "Running"


def _is_settled(awaited: AwaitedValue) -> bool:
    """Nothing is worth waiting for: the key is set, or its instance sets none any more."""
    return awaited.value is not None or not awaited.goes_on


def _event_json(event: ExecutionEvent, partition: int) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "position": str(Position(partition, event.record_offset)),
        "time": rfc3339_ms(event.time_ms),
        "event": json.loads(event.data),
    }


def _kv_json(kv: Mapping[str, KvValue]) -> dict[str, Any]:
    return {key: {"value": entry.value, "execution_id": entry.execution_id} for key, entry in kv.items()}


def _item(item: InstanceSummary) -> dict[str, Any]:
    return {
        "instance_id": item.instance_id,
        "name": item.name,
        "mode": item.mode,
        "status": item.status,
        "execution_id": item.execution_id,
        "owner": item.worker,
        "history_length": item.history_length,
        "created_at": rfc3339_ms(item.created_ms),
        "updated_at": rfc3339_ms(item.updated_ms),
    }


def _instance_json(name: str, view: InstanceView) -> dict[str, Any]:
    return {
        "instance_id": name,
        "name": view.name,
        "mode": view.mode,
        "status": view.status,
        "incarnation": view.incarnation,
        "execution_id": view.execution_id,
        "owner": view.worker,
        "history_length": view.history_length,
        # The fold wrote both with the strict encoder: finite numbers, bounded depth.
        "input": json.loads(view.input),
        "output": None if view.output is None else json.loads(view.output),
        "failure": view.failure,
        "custom_status": view.custom_status,
        "created_at": rfc3339_ms(view.created_ms),
        "updated_at": rfc3339_ms(view.updated_ms),
        "kv": _kv_json(view.kv),
    }
