"""Undeploy: sweeps both tiers at the same time (row D16).

A tier that is away never keeps the other from being swept, and never fails the undeploy: the answer says what became of
each, the log does, too, and repeating it finishes the rest.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import structlog
from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.positions import POSITION_HEADER
from kvfold.http.problems import problem_of_decision
from kvfold.producers import mutations
from kvfold.producers.deployment.volatile import SweepError, VolatileUnavailableError
from kvfold.producers.gateway.answers import undecided_answer
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.documents import SweptTier, UndeployedDocument
from kvfold.producers.gateway.identity import mutation_id_for, refuse_conditions, traceparent_of
from kvfold.producers.gateway.scopes import deployment_scope_of
from kvfold.producers.gateway.writing import Undecided, Written, write
from kvfold.producers.outcomes import Decided
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.outcome import DecisionStatus

__all__ = ["SWEEP_FAILED", "undeploy"]

SWEEP_FAILED: Final = "undeploy_sweep_failed"

_log = structlog.get_logger(__name__)


async def undeploy(context: GatewayContext, call: Call) -> Response:
    """`DELETE /deployments/{id}`: removes every entry of every namespace, and says what was swept.

    503 only where neither tier was reached, so that nothing was done.
    """
    refuse_conditions(call)
    scope = deployment_scope_of(call)
    mutation = replace(
        mutations.deployment_undeployed(scope),
        id=mutation_id_for(call, scope),
        actor=call.actor,
        traceparent=traceparent_of(call),
    )
    written, volatile = await asyncio.gather(
        write(context.producer, mutation, timeout_s=context.write_timeout_s),
        _swept_volatile(context, call.path["id"]),
    )
    if isinstance(written, Decided) and written.decision.status is not DecisionStatus.APPLIED:
        # An idempotency key that was used for something else: the caller's fault, and no tier's.
        problem = problem_of_decision(
            written.decision, position=str(written.position), mutation_id=written.mutation_id
        )
        return problem.response()
    persistent = _swept_persistent(written)
    _report(persistent, tier="persistent")
    _report(volatile, tier="volatile")
    if isinstance(written, Undecided) and written.position is None and volatile.status != "swept":
        return undecided_answer(written)
    document = UndeployedDocument(
        removed=persistent.removed + volatile.removed,
        complete=persistent.status == "swept" and volatile.status in ("swept", "none"),
        persistent=persistent,
        volatile=volatile,
    )
    headers = {} if written.position is None else {POSITION_HEADER: str(written.position)}
    return Response(document.model_dump_json().encode(), 200, headers, media_type="application/json")


async def _swept_volatile(context: GatewayContext, deployment_id: str) -> SweptTier:
    if not context.volatile.is_configured:
        return SweptTier(status="none", removed=0)
    try:
        return SweptTier(status="swept", removed=await context.volatile.sweep(deployment_id))
    except InvalidError:
        # An id that the tier refuses on every verb: nothing of it can be there.
        return SweptTier(status="swept", removed=0)
    except SweepError as error:
        return SweptTier(status="failed", removed=error.removed, code=error.code)
    except VolatileUnavailableError as error:
        return SweptTier(status="failed", removed=0, code=error.code)


def _swept_persistent(written: Written) -> SweptTier:
    match written:
        case Decided(decision=decision):
            return SweptTier(status="swept", removed=decision.removed or 0)
        case Undecided(position=None, error=error):
            return SweptTier(status="failed", removed=0, code=error.code)
        case Undecided(error=error):
            return SweptTier(status="pending", removed=0, code=error.code)


def _report(swept: SweptTier, *, tier: str) -> None:
    if swept.status in ("failed", "pending"):
        _log.warning(SWEEP_FAILED, tier=tier, status=swept.status, removed=swept.removed, code=swept.code)
