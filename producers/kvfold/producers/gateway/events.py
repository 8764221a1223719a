"""`POST /v1/mutations`: CloudEvents in binary, structured and batched mode (contract, "Writes"; row X14)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from kvfold.http.bodies import read_body
from kvfold.http.call import Call
from kvfold.http.positions import POSITION_HEADER
from kvfold.producers.cloudevent_http import (
    BATCH_MEDIA_TYPE,
    EVENT_MEDIA_TYPE,
    from_batch,
    from_binary,
    from_structured,
    media_type,
)
from kvfold.producers.gateway.answers import Done, applied_answer, undecided_answer, unless_applied
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.documents import DecisionBatch, DecisionDocument, decision_document
from kvfold.producers.gateway.identity import refuse_conditions, traceparent_of
from kvfold.producers.gateway.performing import is_volatile, write_volatile
from kvfold.producers.gateway.writing import Sent, Undecided, Written, connect, send, write
from kvfold.producers.outcomes import Decided
from kvfold.schemas.errors import InvalidError, KvfoldError, UnavailableError
from kvfold.schemas.limits import BODY_DRAIN_BYTES_MAX, DETAIL_CHARS_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = ["WAIT_SECONDS_MAX", "post_mutations"]

WAIT_SECONDS_MAX: Final = 60

_WAIT: Final = re.compile(r"(0|[1-9][0-9]?)(\.[0-9]{1,6})?", re.ASCII)
_PENDING: Final = Decision(DecisionStatus.PENDING)


async def post_mutations(context: GatewayContext, call: Call) -> Response:
    """One event: 202 without `wait`, else what its key route answers. A batch: 200 with a decision for each event."""
    refuse_conditions(call)
    wait_s = _wait(call)
    body = await read_body(call, limit=BODY_DRAIN_BYTES_MAX)
    kind = media_type(call.headers.get("content-type"))
    if kind == BATCH_MEDIA_TYPE:
        return await _batch(context, call, from_batch(body), wait_s)
    if kind == EVENT_MEDIA_TYPE:
        mutation = from_structured(body)
    elif kind.startswith("application/cloudevents"):
        raise InvalidError(
            f"malformed CloudEvent: {EVENT_MEDIA_TYPE}, {BATCH_MEDIA_TYPE} and binary mode are accepted",
            code="malformed-event",
        )
    else:
        mutation = from_binary(call.scope["headers"], body)
    return await _one(context, _of_call(call, mutation), wait_s)


async def _one(context: GatewayContext, mutation: Mutation, wait_s: float | None) -> Response:
    if is_volatile(mutation):
        # Done when it returns: there is nothing to wait for.
        written: Written | Done = await write_volatile(context, mutation)
    elif wait_s is None:
        sent = await send(context.producer, mutation, timeout_s=context.write_timeout_s)
        return undecided_answer(sent) if isinstance(sent, Undecided) else _accepted(mutation, sent)
    else:
        written = await write(
            context.producer, mutation, timeout_s=context.write_timeout_s, outcome_timeout_s=wait_s
        )
    decided = unless_applied(written, is_conditional=False)
    if isinstance(decided, Response):
        return decided
    document = decision_document(mutation.id, mutation.scope, decided.decision, decided.position)
    return applied_answer(mutation, decided, document)


async def _batch(
    context: GatewayContext, call: Call, events: list[Mutation | InvalidError], wait_s: float | None
) -> Response:
    """Each event for itself, handed to the log in the batch's order."""
    failed = await connect(context.producer, timeout_s=context.write_timeout_s) if events else None
    turn = asyncio.Lock()

    async def decide(event: Mutation | InvalidError) -> DecisionDocument:
        if isinstance(event, InvalidError):
            return _refused(None, event)
        if is_volatile(event):
            async with turn:  # threads keep no order
                return await _decide_volatile(context, event)
        if failed is not None:
            return _unknown(event, Undecided(event.id, None, failed))
        return await _decide(context, _of_call(call, event), wait_s)

    # Tasks begin in the order in which they are made, and each hands its event over before it first waits.
    documents = await asyncio.gather(*(decide(event) for event in events))
    content = DecisionBatch(list(documents)).model_dump_json().encode()
    return Response(content, 200, media_type="application/json")


async def _decide(context: GatewayContext, mutation: Mutation, wait_s: float | None) -> DecisionDocument:
    timeout_s = context.write_timeout_s
    try:
        if wait_s is None:
            outcome: Sent | Undecided | Decided = await send(context.producer, mutation, timeout_s=timeout_s)
        else:
            outcome = await write(context.producer, mutation, timeout_s=timeout_s, outcome_timeout_s=wait_s)
    except (InvalidError, UnavailableError) as error:
        return _refused(mutation, error)
    match outcome:
        case Sent(position=position):
            return decision_document(mutation.id, mutation.scope, _PENDING, position)
        case Decided(decision=decision, position=position):
            return decision_document(mutation.id, mutation.scope, decision, position)
        case Undecided():
            return _unknown(mutation, outcome)


async def _decide_volatile(context: GatewayContext, mutation: Mutation) -> DecisionDocument:
    try:
        done = await write_volatile(context, mutation)
    except (InvalidError, UnavailableError) as error:
        return _refused(mutation, error)
    return decision_document(mutation.id, mutation.scope, done.decision, None)


def _refused(mutation: Mutation | None, error: KvfoldError) -> DecisionDocument:
    """What the door refused: nothing of it is in the log."""
    decision = Decision(DecisionStatus.REJECTED, error.code, detail=str(error)[:DETAIL_CHARS_MAX])
    if mutation is None:
        return decision_document(None, None, decision, None)
    return decision_document(mutation.id, mutation.scope, decision, None)


def _unknown(mutation: Mutation, undecided: Undecided) -> DecisionDocument:
    """Not acknowledged, or acknowledged and not decided: pending either way, with the code of what is away."""
    decision = Decision(DecisionStatus.PENDING, undecided.error.code)
    return decision_document(mutation.id, mutation.scope, decision, undecided.position)


def _accepted(mutation: Mutation, sent: Sent) -> Response:
    """202: in the log; where the decision will be found stands in `Location`."""
    document = decision_document(mutation.id, mutation.scope, _PENDING, sent.position)
    headers = {
        POSITION_HEADER: str(sent.position),
        "Location": f"/v1/mutations/{mutation.id}?scope={quote(mutation.scope, safe='')}",
    }
    return Response(document.model_dump_json().encode(), 202, headers, media_type="application/json")


def _of_call(call: Call, mutation: Mutation) -> Mutation:
    """The event with what the request knows better, or besides."""
    return replace(
        mutation,
        actor=call.actor or mutation.actor,
        traceparent=mutation.traceparent or traceparent_of(call),
    )


def _wait(call: Call) -> float | None:
    """`?wait=` in seconds, 0 to 60; None without it.

    Raises:
        InvalidError: `malformed-wait`.
    """
    text = call.query.get("wait")
    if text is None:
        return None
    if _WAIT.fullmatch(text) is None or float(text) > WAIT_SECONDS_MAX:
        raise InvalidError(f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX}", code="malformed-wait")
    return float(text)
