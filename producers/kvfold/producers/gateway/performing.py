"""One mutation of a key route: completed from the request, written, and answered where it was not applied."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.producers.gateway.answers import Done, unless_applied
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.expectations import Expectation
from kvfold.producers.gateway.identity import mutation_id_for, traceparent_of
from kvfold.producers.gateway.writing import Written, write
from kvfold.producers.outcomes import Decided
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.form import check_mutation
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision
from kvfold.schemas.precondition import ANY
from kvfold.schemas.tiers import Tier, tier_of

__all__ = ["UNCONDITIONAL", "is_volatile", "perform", "write_volatile"]

_VOLATILE_TYPES: Final = frozenset({"kvfold.deployment.put.v1", "kvfold.deployment.deleted.v1"})

UNCONDITIONAL: Final = Expectation(ANY, False)


async def perform(
    context: GatewayContext, call: Call, mutation: Mutation, expectation: Expectation = UNCONDITIONAL
) -> Decided | Done | Response:
    """The outcome of an applied mutation, else the problem as a response.

    What the expectation, the idempotency key, the trace and the actor say is put into the mutation here. A volatile
    namespace's goes to its own tier, where an idempotency key is read and has no effect: nothing remembers it.

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
    if is_volatile(completed):
        written: Written | Done = await write_volatile(context, completed)
    else:
        written = await write(context.producer, completed, timeout_s=context.write_timeout_s)
    return unless_applied(
        written,
        is_conditional=expectation.is_conditional,
        needs_presence=expectation.needs_presence and mutation.body is None,
    )


def is_volatile(mutation: Mutation) -> bool:
    """Whether the suffix of the mutation's namespace sends it to the volatile tier (row D8)."""
    return (
        mutation.type in _VOLATILE_TYPES
        and mutation.namespace is not None
        and tier_of(mutation.namespace) is Tier.VOLATILE
    )


async def write_volatile(context: GatewayContext, mutation: Mutation) -> Done:
    """A put or a delete in the volatile tier.

    Raises:
        InvalidError: as `VolatileEntries`; what the log's door would say of its form.
        VolatileUnavailableError: the tier is away.
    """
    # Whichever partition it would be: it goes to none.
    formed = check_mutation(mutation, 1)
    if isinstance(formed, Decision):
        raise InvalidError(formed.detail or "malformed", code=formed.code or "malformed")
    return Done(await context.volatile.write(mutation.scope.removeprefix("d:"), formed.mutation))
