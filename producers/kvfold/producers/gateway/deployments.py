"""Write routes of deployments: entries (contract, "Writes"; rows D3 to D6). The namespace's suffix says which tier."""

from __future__ import annotations

from starlette.responses import Response

from kvfold.http.bodies import read_body
from kvfold.http.call import Call
from kvfold.http.headers import object_version
from kvfold.http.preconditions import version_etag, write_condition
from kvfold.producers import mutations
from kvfold.producers.gateway.answers import applied_answer
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.documents import decision_document
from kvfold.producers.gateway.expectations import expected_by_delete, expected_by_put
from kvfold.producers.gateway.performing import perform
from kvfold.producers.gateway.scopes import deployment_scope_of
from kvfold.schemas.limits import DEPLOYMENT_VALUE_BYTES_MAX

__all__ = ["delete_entry", "put_entry"]


async def put_entry(context: GatewayContext, call: Call) -> Response:
    """`PUT /deployments/{id}/kv/{namespace}/{key}`: 201 or 200; 409 or 412 with the current version."""
    expectation = expected_by_put(object_version(call), write_condition(call, "version"))
    value = await read_body(call, limit=DEPLOYMENT_VALUE_BYTES_MAX)
    mutation = mutations.deployment_put(
        deployment_scope_of(call),
        call.path["namespace"],
        call.path["key"],
        value,
        expected=expectation.precondition,
    )
    decided = await perform(context, call, mutation, expectation)
    if isinstance(decided, Response):
        return decided
    assert decided.decision.version is not None
    document = decision_document(decided.mutation_id, mutation.scope, decided.decision, decided.position)
    return applied_answer(mutation, decided, document, etag=version_etag(decided.decision.version))


async def delete_entry(context: GatewayContext, call: Call) -> Response:
    """`DELETE /deployments/{id}/kv/{namespace}/{key}`: 204, also for an absent key unless If-Match asks for it."""
    expectation = expected_by_delete(object_version(call), write_condition(call, "version"))
    scope = deployment_scope_of(call)
    mutation = mutations.deployment_deleted(scope, call.path["namespace"], call.path["key"])
    decided = await perform(context, call, mutation, expectation)
    return decided if isinstance(decided, Response) else applied_answer(mutation, decided)
