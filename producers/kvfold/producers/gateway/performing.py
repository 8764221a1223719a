"""One mutation of a key route: completed from the request, written, and answered where it was not applied."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.producers.gateway.answers import unless_applied
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.expectations import Expectation
from kvfold.producers.gateway.identity import mutation_id_for, traceparent_of
from kvfold.producers.gateway.writing import write
from kvfold.producers.outcomes import Decided
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.precondition import ANY

__all__ = ["UNCONDITIONAL", "perform"]

UNCONDITIONAL: Final = Expectation(ANY, False)


async def perform(
    context: GatewayContext, call: Call, mutation: Mutation, expectation: Expectation = UNCONDITIONAL
) -> Decided | Response:
    """The decision of an applied mutation, else the problem as a response.

    What the expectation, the idempotency key, the trace and the actor say is put into the mutation here.

    Raises:
        InvalidError, UnavailableError: refused at the door; nothing was appended.
    """
    completed = replace(
        mutation,
        id=mutation_id_for(call, mutation.scope),
        expected=expectation.precondition,
        actor=call.actor,
        traceparent=traceparent_of(call),
    )
    written = await write(context.producer, completed, timeout_s=context.write_timeout_s)
    return unless_applied(
        written,
        is_conditional=expectation.is_conditional,
        needs_presence=expectation.needs_presence and mutation.body is None,
    )
