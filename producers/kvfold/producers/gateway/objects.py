"""Write routes of the object browser: JSON over the user family's entries (contract, "Writes"; row D13)."""

from __future__ import annotations

from starlette.responses import Response

from kvfold.http.bodies import read_body
from kvfold.http.call import Call
from kvfold.http.headers import object_version, parse_version
from kvfold.http.preconditions import version_etag, write_condition
from kvfold.producers import mutations
from kvfold.producers.doors import check_tier
from kvfold.producers.gateway.answers import applied_answer
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.documents import ObjectWritten, read_object_body
from kvfold.producers.gateway.expectations import expected_by_delete, expected_by_put
from kvfold.producers.gateway.performing import perform
from kvfold.producers.gateway.scopes import deployment_scope_of
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import BODY_DRAIN_BYTES_MAX
from kvfold.schemas.names import check_deployment_name, namespace_suffixes

__all__ = ["delete_object", "put_object"]


async def put_object(context: GatewayContext, call: Call) -> Response:
    """`PUT /deployments/{id}/objects/{key}`: the version stands in query, body or header; in none: create."""
    namespace = _namespace(call)
    conditional = write_condition(call, "version")
    # As JSON, a value of exactly the limit takes six bytes for each of its own where all are escaped.
    body = read_object_body(await read_body(call, limit=BODY_DRAIN_BYTES_MAX))
    expectation = expected_by_put(_version(call, body.version), conditional)
    mutation = mutations.deployment_put(
        deployment_scope_of(call),
        namespace,
        call.path["key"],
        body.decoded(),
        expected=expectation.precondition,
    )
    decided = await perform(context, call, mutation, expectation)
    if isinstance(decided, Response):
        return decided
    version = decided.decision.version
    assert version is not None
    document = ObjectWritten(key=call.path["key"], version=version)
    return applied_answer(mutation, decided, document, etag=version_etag(version))


async def delete_object(context: GatewayContext, call: Call) -> Response:
    """`DELETE /deployments/{id}/objects/{key}`: 204, also for an absent key unless If-Match asks for it."""
    namespace = _namespace(call)
    expectation = expected_by_delete(_version(call, None), write_condition(call, "version"))
    scope = deployment_scope_of(call)
    mutation = mutations.deployment_deleted(scope, namespace, call.path["key"])
    decided = await perform(context, call, mutation, expectation)
    return decided if isinstance(decided, Response) else applied_answer(mutation, decided)


def _namespace(call: Call) -> str:
    """The namespace asked for: of the user family, and no secret one.

    Raises:
        InvalidError: `secret-and-volatile`; `invalid-namespace`, also where it is missing.
    """
    namespace = call.query.get("namespace")
    if namespace is None:
        raise InvalidError("the parameter namespace is missing", code="invalid-namespace")
    problem = check_deployment_name("the namespace", namespace)
    if problem is not None:
        raise InvalidError(problem, code="invalid-namespace")
    family, suffixes = namespace_suffixes(namespace)
    if len(suffixes) > 1:
        check_tier(namespace)
    if family != "user" or "_secrets" in suffixes:
        raise InvalidError(
            "the object browser knows user and user_volatile only, and no secret namespace",
            code="invalid-namespace",
        )
    return namespace


def _version(call: Call, in_body: int | None) -> int | None:
    """The version that query, body and header agree on; None where none of them says one."""
    in_query = call.query.get("version")
    said = {
        version
        for version in (
            None if in_query is None else parse_version(in_query.encode(), what="version"),
            in_body,
            object_version(call),
        )
        if version is not None
    }
    if len(said) > 1:
        raise InvalidError(
            "the versions in query, body and X-Object-Version differ", code="malformed-version"
        )
    return said.pop() if said else None
