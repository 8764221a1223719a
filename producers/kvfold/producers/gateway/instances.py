"""Write routes of orchestration instances (contract, "Writes"; rows O14 to O16, O27)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final, Literal, TypeVar
from urllib.parse import quote

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from starlette.responses import Response

from kvfold.http.bodies import read_body
from kvfold.http.call import Call
from kvfold.producers import mutations
from kvfold.producers.gateway.answers import applied_answer, json_response
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.documents import RemovedDocument, decision_document, read_document
from kvfold.producers.gateway.identity import refuse_conditions
from kvfold.producers.gateway.performing import perform
from kvfold.producers.gateway.scopes import instance_scope, instance_scope_of
from kvfold.producers.orchestration.bulk_prune import prune_many
from kvfold.producers.reading import OwnWritesReader
from kvfold.reads.executor import AsyncReader
from kvfold.reads.query import Query, Read
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import BODY_DRAIN_BYTES_MAX, INT64_MAX
from kvfold.schemas.mutation import Mutation

__all__ = [
    "BulkPruneBody",
    "BulkPrunedDocument",
    "CancelBody",
    "EventBody",
    "InstanceStarted",
    "PruneBody",
    "StartBody",
    "cancel",
    "delete_instance",
    "prune",
    "prune_instances",
    "raise_event",
    "start",
]

T = TypeVar("T")

_COUNT_MAX: Final = 2**31 - 1
_INSTANCES_MAX: Final = 1_000


def _text(value: object) -> object:
    """Times are texts: a number is not taken for seconds."""
    if not isinstance(value, str):
        raise ValueError("a time is a text")
    return value


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class StartBody(_Body):
    """An instance to start: workers run it, unless its mode is `external`. The input is any JSON value, up to 256 KiB."""

    instance_id: str
    name: str
    input: JsonValue = None
    mode: Literal["runtime", "external"] = "runtime"


class EventBody(_Body):
    """An event to raise: it waits until the code waits for one of this name. Up to 256 KiB of data."""

    name: str
    data: JsonValue = None


class CancelBody(_Body):
    """Why an instance is to end; its code is told."""

    reason: str = ""


class PruneBody(_Body):
    """Which executions go: these, or every one below `before` (format level 2). With the keys that they wrote last."""

    execution_ids: list[int] | None = None
    before: int | None = Field(None, ge=1, le=INT64_MAX)
    keep_values: bool = False


class BulkPruneBody(_Body):
    """Of every instance whose id begins with `prefix`, all executions but the `keep_last` newest.

    `older_than` (RFC 3339): only those that ended before. Ends after `limit` instances; `start` is the `next_start` of
    the answer before.
    """

    prefix: str = ""
    older_than: Annotated[AwareDatetime, BeforeValidator(_text)] | None = Field(None, strict=False)
    keep_last: int = Field(1, ge=1, le=_COUNT_MAX)
    limit: int = Field(100, ge=1, le=_INSTANCES_MAX)
    start: str | None = None
    keep_values: bool = False


class InstanceStarted(BaseModel):
    """An instance that was started; its incarnation tells a re-created id from the old one."""

    instance_id: str
    incarnation: int


class BulkPrunedDocument(BaseModel):
    """How many instances lost executions, how many these were, and where to go on; null where nothing is left."""

    instances: int
    executions: int
    next_start: str | None


async def start(context: GatewayContext, call: Call) -> Response:
    """`POST /v1/instances`: 201 with the incarnation; 409 where the id exists."""
    refuse_conditions(call)
    accepted = '{"instance_id": text, "name": text, "input": optional JSON, "mode": optional "runtime" or "external"}'
    body = read_document(StartBody, await _read(call), accepted=accepted)
    scope = instance_scope(body.instance_id)
    mutation = mutations.orchestration_started(scope, body.name, body.input, mode=body.mode)
    decided = await perform(context, call, mutation)
    if isinstance(decided, Response):
        return decided
    assert decided.position is not None, "what is in the log has a place there"
    document = InstanceStarted(instance_id=body.instance_id, incarnation=decided.position.offset)
    response = json_response(document, decided=decided, status=201)
    response.headers["Location"] = f"/v1/instances/{quote(body.instance_id, safe='')}"
    return response


async def raise_event(context: GatewayContext, call: Call) -> Response:
    """`POST /v1/instances/{id}/events`: 200; 404 unknown, 409 finished."""
    scope = instance_scope_of(call)
    accepted = '{"name": text, "data": optional JSON}'
    body = read_document(EventBody, await _read(call), accepted=accepted)
    return await _performed(context, call, mutations.orchestration_event_raised(scope, body.name, body.data))


async def cancel(context: GatewayContext, call: Call) -> Response:
    """`POST /v1/instances/{id}/cancel`: 200; 404 unknown, 409 finished. The body may be left out."""
    scope = instance_scope_of(call)
    raw = await _read(call)
    body = read_document(CancelBody, raw, accepted='{"reason": optional text}') if raw else CancelBody()
    return await _performed(context, call, mutations.orchestration_cancel_requested(scope, body.reason))


async def prune(context: GatewayContext, call: Call) -> Response:
    """`POST /v1/instances/{id}/prune`: how many executions went; 409 where the current one is among them."""
    refuse_conditions(call)
    scope = instance_scope_of(call)
    accepted = '{"execution_ids": [numbers]} or {"before": number}, with "keep_values": optional boolean,'
    body = read_document(PruneBody, await _read(call), accepted=accepted)
    if (body.execution_ids is None) == (body.before is None):
        raise InvalidError(f"the body is not accepted: {accepted} is", code="malformed-body")
    if body.before is not None:
        mutation = mutations.orchestration_executions_pruned_before(
            scope, body.before, keep_values=body.keep_values
        )
    else:
        mutation = mutations.orchestration_executions_pruned(
            scope, body.execution_ids or [], keep_values=body.keep_values
        )
    decided = await perform(context, call, mutation)
    if isinstance(decided, Response):
        return decided
    return json_response(RemovedDocument(removed=decided.decision.removed or 0), decided=decided)


async def delete_instance(context: GatewayContext, call: Call) -> Response:
    """`DELETE /v1/instances/{id}?incarnation=`: 204; 404 unknown, 409 where it is another incarnation."""
    refuse_conditions(call)
    scope = instance_scope_of(call)
    mutation = mutations.orchestration_instance_deleted(scope, incarnation=_incarnation(call))
    decided = await perform(context, call, mutation)
    return decided if isinstance(decided, Response) else applied_answer(mutation, decided)


async def prune_instances(context: GatewayContext, call: Call) -> Response:
    """`POST /v1/executions/prune`: a part of a bulk prune, and where the next one begins (row O15)."""
    refuse_conditions(call)
    assert context.reader is not None, "the route is there only with a reader"
    accepted = (
        '{"prefix": text, "older_than": RFC 3339 time, "keep_last": number, "limit": number, "start": text, '
        '"keep_values": boolean}, each optional,'
    )
    body = read_document(BulkPruneBody, await _read(call), accepted=accepted)
    reader = _LoopReader(context.reader, asyncio.get_running_loop())
    pruned = await asyncio.to_thread(_prune_many, context, reader, body, call.actor)
    return Response(pruned.model_dump_json().encode(), media_type="application/json")


def _prune_many(
    context: GatewayContext, reader: _LoopReader, body: BulkPruneBody, actor: str | None
) -> BulkPrunedDocument:
    pruned = prune_many(
        context.producer,
        OwnWritesReader(context.producer, reader, timeout_s=context.write_timeout_s),
        older_than=body.older_than,
        keep_last=body.keep_last,
        prefix=body.prefix,
        limit=body.limit,
        start=body.start,
        keep_values=body.keep_values,
        actor=actor,
        timeout_s=context.write_timeout_s,
    )
    return BulkPrunedDocument(
        instances=pruned.instances, executions=pruned.executions, next_start=pruned.next_start
    )


class _LoopReader:
    """An event loop's reader, for a thread beside it."""

    def __init__(self, reader: AsyncReader, loop: asyncio.AbstractEventLoop) -> None:
        self._reader = reader
        self._loop = loop

    def read(self, query: Query[T]) -> Read[T]:
        """As the loop's."""
        return asyncio.run_coroutine_threadsafe(self._reader.read(query), self._loop).result()


async def _performed(context: GatewayContext, call: Call, mutation: Mutation) -> Response:
    refuse_conditions(call)
    decided = await perform(context, call, mutation)
    if isinstance(decided, Response):
        return decided
    document = decision_document(decided.mutation_id, mutation.scope, decided.decision, decided.position)
    return applied_answer(mutation, decided, document)


async def _read(call: Call) -> bytes:
    """The body; what is too large is said by the record's own limits."""
    return await read_body(call, limit=BODY_DRAIN_BYTES_MAX)


def _incarnation(call: Call) -> int | None:
    text = call.query.get("incarnation")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > INT64_MAX:
        raise InvalidError(
            f"incarnation is a whole number from 0 to {INT64_MAX}", code="malformed-incarnation"
        )
    return int(text)
