"""Write routes of capsules: keys, and clearing a prefix (contract, "Writes"; rows C3, C15, C21)."""

from __future__ import annotations

import hashlib

from starlette.responses import Response

from kvfold.http.bodies import read_body
from kvfold.http.call import Call
from kvfold.http.preconditions import digest_etag, write_condition
from kvfold.producers import mutations
from kvfold.producers.gateway.answers import applied_answer, json_response
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.documents import RemovedDocument, decision_document
from kvfold.producers.gateway.expectations import expected_of_content
from kvfold.producers.gateway.identity import refuse_conditions
from kvfold.producers.gateway.performing import perform
from kvfold.producers.gateway.scopes import capsule_scope_of
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import CAPSULE_VALUE_BYTES_MAX

__all__ = ["clear_prefix", "delete_key", "put_key"]


async def put_key(context: GatewayContext, call: Call) -> Response:
    """`PUT /v1/capsules/{principal}/{capsule_id}/kv/{key}`: 201 or 200 with the value's tag; 412 for a lost race."""
    refuse_conditions(call, "X-Object-Version")
    expectation = expected_of_content(write_condition(call, "sha256"))
    scope = capsule_scope_of(call)
    value = await read_body(call, limit=CAPSULE_VALUE_BYTES_MAX)
    mutation = mutations.capsule_set(scope, call.path["key"], value, expected=expectation.precondition)
    decided = await perform(context, call, mutation, expectation)
    if isinstance(decided, Response):
        return decided
    document = decision_document(decided.mutation_id, scope, decided.decision, decided.position)
    return applied_answer(mutation, decided, document, etag=digest_etag(hashlib.sha256(value).digest()))


async def delete_key(context: GatewayContext, call: Call) -> Response:
    """`DELETE /v1/capsules/{principal}/{capsule_id}/kv/{key}`: 204, also for an absent key."""
    refuse_conditions(call, "X-Object-Version")
    expectation = expected_of_content(write_condition(call, "sha256"))
    mutation = mutations.capsule_deleted(capsule_scope_of(call), call.path["key"])
    decided = await perform(context, call, mutation, expectation)
    return decided if isinstance(decided, Response) else applied_answer(mutation, decided)


async def clear_prefix(context: GatewayContext, call: Call) -> Response:
    """`DELETE /v1/capsules/{principal}/{capsule_id}/keys?prefix=`: removes all at once, and says how many.

    Raises:
        InvalidError: `malformed-query` without a prefix: `?prefix=` is every key, and never by an oversight.
    """
    refuse_conditions(call)
    prefix = call.query.get("prefix")
    if prefix is None:
        raise InvalidError(
            "prefix is missing: an empty one (?prefix=) clears every key", code="malformed-query"
        )
    mutation = mutations.capsule_prefix_cleared(capsule_scope_of(call), prefix)
    decided = await perform(context, call, mutation)
    if isinstance(decided, Response):
        return decided
    return json_response(RemovedDocument(removed=decided.decision.removed or 0), decided=decided)
