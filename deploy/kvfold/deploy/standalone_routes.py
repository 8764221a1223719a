"""The deployment routes over a standalone store: as the gateway has them, but for positions, which need a log.

Entries are in memory, so a handler answers at once; what waits for the disk or looks at all keys runs in a thread.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from kvfold.http.bodies import read_body
from kvfold.http.call import Call
from kvfold.http.headers import object_version, parse_version
from kvfold.http.preconditions import read_condition, version_etag, write_condition
from kvfold.http.problems import Problem
from kvfold.http.routes import Answer, Body, Endpoint, Parameter, Route, json_answer, problem_answers
from kvfold.producers.deployment.standalone import StandaloneStorage
from kvfold.producers.deployment.standalone.storage import StandaloneEntries
from kvfold.producers.gateway.documents import ObjectBody, ObjectWritten, RemovedDocument, read_object_body
from kvfold.producers.gateway.expectations import Expectation, expected_by_delete, expected_by_put
from kvfold.producers.gateway.identity import mutation_id_for, refuse_conditions
from kvfold.query_api import arguments
from kvfold.query_api.answers import rfc3339_ms
from kvfold.query_api.arguments import CURSOR, LIMIT, PREFIX
from kvfold.query_api.shapes import Health, Namespaces, Objects, ObjectValue
from kvfold.query_api.values import value_response
from kvfold.reads.deployment import DeploymentValue, ObjectPage
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import BODY_DRAIN_BYTES_MAX, DEPLOYMENT_VALUE_BYTES_MAX
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.precondition import PreconditionKind

__all__ = ["standalone_routes"]

_Handler = Callable[[StandaloneStorage, Call], Awaitable[Response]]

_TAG: Final = "deployments"
_KEY: Final = "/deployments/{id}/kv/{namespace}/{key:rest}"
_OBJECT: Final = "/deployments/{id}/objects/{key:rest}"
_NAMESPACE: Final = Parameter("namespace", "`user` or `user_volatile`", required=True)
_VERSION: Final = Parameter("version", "As X-Object-Version.", {"type": "integer", "minimum": 0})
_CONDITIONS: Final = (
    Parameter(
        "X-Object-Version",
        "0 or absent: PUT creates, DELETE is unconditional",
        {"type": "integer", "minimum": 0},
    ),
    Parameter("If-Match", "RFC 9110"),
    Parameter("If-None-Match", "RFC 9110"),
)
_READ_CONDITIONS: Final = _CONDITIONS[1:]
_VERSIONED: Final = ("X-Object-Version", "ETag")
_WRITTEN: Final = tuple(
    json_answer("Written", ObjectWritten, status=status, headers=_VERSIONED) for status in (200, 201)
)
_GONE: Final = Answer(204, "Not there any more")
_PAGE: Final = json_answer("A page of objects", Objects)
_ALWAYS_SHOWN: Final = ("user", "user_volatile")
_PROBLEMS: Final = problem_answers(
    {
        400: (
            *(
                "malformed-path",
                "malformed-query",
                "malformed-name",
                "invalid-namespace",
                "secret-and-volatile",
            ),
            *(
                "invalid-key",
                "malformed-version",
                "malformed-precondition",
                "malformed-limit",
                "malformed-value",
            ),
        ),
        404: ("not-found",),
        409: ("version-conflict",),
        412: ("version-conflict", "precondition-failed"),
        413: ("too-large",),
        422: ("limit",),
        503: ("store-unavailable",),
    }
)


def standalone_routes(storage: StandaloneStorage) -> list[Route]:
    """Every deployment route, and liveness and readiness."""

    def bound(handler: _Handler) -> Endpoint:
        return partial(handler, storage)

    return [*_key_routes(bound), *_object_routes(bound), *_other_routes(bound)]


def _route(
    method: str, template: str, endpoint: Endpoint, summary: str, *answers: Answer, **parts: Any
) -> Route:
    return Route(method, template, endpoint, summary, _TAG, answers=(*answers, *_PROBLEMS), **parts)


def _key_routes(bound: Callable[[_Handler], Endpoint]) -> list[Route]:
    value = Answer(200, "The value's bytes", "application/octet-stream", headers=_VERSIONED)
    body = Body({"application/octet-stream": None}, "The value: any bytes, at most 1 MiB.")
    return [
        _route("GET", _KEY, bound(_get), "One value", value, headers=_READ_CONDITIONS),
        _route("PUT", _KEY, bound(_put), "Put an entry", *_WRITTEN, headers=_CONDITIONS, body=body),
        _route("DELETE", _KEY, bound(_delete), "Delete an entry", _GONE, headers=_CONDITIONS),
        _route(
            "GET",
            "/deployments/{id}/kv/{namespace}",
            bound(_list),
            "Entries of a namespace, by pages",
            _PAGE,
            query=(PREFIX, CURSOR, LIMIT),
        ),
    ]


def _object_routes(bound: Callable[[_Handler], Endpoint]) -> list[Route]:
    browsed: dict[str, Any] = {"query": (_NAMESPACE, _VERSION), "headers": _CONDITIONS}
    return [
        _route(
            "GET",
            "/deployments/{id}/objects",
            bound(_list_objects),
            "Objects by pages",
            _PAGE,
            query=(_NAMESPACE, PREFIX, CURSOR, LIMIT),
        ),
        _route(
            "GET",
            _OBJECT,
            bound(_get_object),
            "One object as JSON",
            json_answer("The object", ObjectValue, headers=_VERSIONED),
            query=(_NAMESPACE,),
            headers=_READ_CONDITIONS,
        ),
        _route(
            "PUT",
            _OBJECT,
            bound(_put_object),
            "Put an object",
            *_WRITTEN,
            body=Body({"application/json": ObjectBody}),
            **browsed,
        ),
        _route("DELETE", _OBJECT, bound(_delete_object), "Delete an object", _GONE, **browsed),
    ]


def _other_routes(bound: Callable[[_Handler], Endpoint]) -> list[Route]:
    return [
        _route(
            "GET",
            "/deployments/{id}/namespaces",
            bound(_namespaces),
            "Namespaces of the user family",
            json_answer("Namespaces", Namespaces),
        ),
        _route(
            "DELETE",
            "/deployments/{id}",
            bound(_undeploy),
            "Undeploy: remove every entry",
            json_answer("How many entries went", RemovedDocument),
        ),
        _route("GET", "/healthz", bound(_alive), "Liveness", json_answer("It is", Health)),
        _route("GET", "/readyz", bound(_alive), "Readiness", json_answer("It is", Health)),
    ]


# --- the plain routes ---


async def _get(storage: StandaloneStorage, call: Call) -> Response:
    entry = _entries(storage, call).get(call.path["namespace"], call.path["key"])
    if entry is None:
        return value_response(call, None, None, {})
    headers = {"X-Object-Version": str(entry.version)}
    return value_response(call, entry.value, version_etag(entry.version), headers)


async def _put(storage: StandaloneStorage, call: Call) -> Response:
    expectation = expected_by_put(object_version(call), write_condition(call, "version"))
    value = await read_body(call, limit=DEPLOYMENT_VALUE_BYTES_MAX)
    return _written(storage, call, call.path["namespace"], value, expectation)


async def _delete(storage: StandaloneStorage, call: Call) -> Response:
    expectation = expected_by_delete(object_version(call), write_condition(call, "version"))
    return _deleted(storage, call, call.path["namespace"], expectation)


async def _list(storage: StandaloneStorage, call: Call) -> Response:
    return await _page(storage, call, call.path["namespace"])


async def _undeploy(storage: StandaloneStorage, call: Call) -> Response:
    refuse_conditions(call)
    removed = await asyncio.to_thread(storage.undeploy, call.path["id"])
    return JSONResponse({"removed": removed})


async def _alive(storage: StandaloneStorage, call: Call) -> Response:
    del storage, call
    return JSONResponse({"status": "ok"})


# --- the object browser ---


async def _namespaces(storage: StandaloneStorage, call: Call) -> Response:
    entries = _entries(storage, call)
    found = await asyncio.to_thread(entries.namespaces)
    shown = {name for name in found if arguments.is_listed(name)}
    return JSONResponse({"namespaces": sorted(shown.union(_ALWAYS_SHOWN))})


async def _list_objects(storage: StandaloneStorage, call: Call) -> Response:
    return await _page(storage, call, _browsed(call))


async def _get_object(storage: StandaloneStorage, call: Call) -> Response:
    key = call.path["key"]
    entry = _entries(storage, call).get(_browsed(call), key)
    etag = None if entry is None else version_etag(entry.version)
    if entry is None or read_condition(call, etag) is not None:
        return value_response(call, None, etag, {})
    headers = {"X-Object-Version": str(entry.version), "ETag": version_etag(entry.version)}
    return JSONResponse(_shown(key, entry), headers=headers)


async def _put_object(storage: StandaloneStorage, call: Call) -> Response:
    namespace = _browsed(call)
    conditional = write_condition(call, "version")
    body = read_object_body(await read_body(call, limit=BODY_DRAIN_BYTES_MAX))
    expectation = expected_by_put(_stated_version(call, body.version), conditional)
    return _written(storage, call, namespace, body.decoded(), expectation)


async def _delete_object(storage: StandaloneStorage, call: Call) -> Response:
    namespace = _browsed(call)
    expectation = expected_by_delete(_stated_version(call, None), write_condition(call, "version"))
    return _deleted(storage, call, namespace, expectation)


# --- what they have in common ---


def _entries(storage: StandaloneStorage, call: Call) -> StandaloneEntries:
    return storage.entries(call.path["id"])


def _written(
    storage: StandaloneStorage, call: Call, namespace: str, value: bytes, expectation: Expectation
) -> Response:
    mutation_id_for(call, call.path["id"])  # a malformed key is refused; nothing here remembers a good one
    key = call.path["key"]
    decision = _entries(storage, call).put(namespace, key, value, expected=expectation.precondition)
    if decision.status is not DecisionStatus.APPLIED:
        return _conflict(decision.version or 0, expectation)
    assert decision.version is not None
    headers = {"X-Object-Version": str(decision.version), "ETag": version_etag(decision.version)}
    created = expectation.precondition.kind is PreconditionKind.ABSENT or decision.version == 1
    return JSONResponse(
        {"key": key, "version": decision.version}, status_code=201 if created else 200, headers=headers
    )


def _deleted(storage: StandaloneStorage, call: Call, namespace: str, expectation: Expectation) -> Response:
    mutation_id_for(call, call.path["id"])
    decision: Decision = _entries(storage, call).delete(
        namespace, call.path["key"], expected=expectation.precondition
    )
    is_absent = decision.version == 0 and expectation.needs_presence
    if decision.status is not DecisionStatus.APPLIED or is_absent:
        return _conflict(decision.version or 0, expectation)
    return Response(status_code=204)


def _conflict(current: int, expectation: Expectation) -> Response:
    problem = Problem(
        412 if expectation.is_conditional else 409,
        "version-conflict",
        "the precondition does not hold for the current version",
        {"X-Object-Version": str(current)},
        {"version": current},
    )
    return problem.response()


async def _page(storage: StandaloneStorage, call: Call, namespace: str) -> Response:
    page: ObjectPage = await asyncio.to_thread(
        _entries(storage, call).list,
        namespace,
        prefix=arguments.plain_prefix(call),
        cursor=arguments.cursor(call),
        limit=arguments.page_limit(call),
    )
    objects = [
        {
            "key": item.key,
            "version": item.version,
            "size": item.size,
            "updated_at": rfc3339_ms(item.updated_ms),
        }
        for item in page.objects
    ]
    return JSONResponse({"objects": objects, "next_cursor": page.next_cursor})


def _browsed(call: Call) -> str:
    """The browser's namespace. Raises InvalidError `invalid-namespace`, `secret-and-volatile`."""
    namespace = call.query.get("namespace", "")
    if namespace not in _ALWAYS_SHOWN:
        arguments.browsed_namespace(call)
    return namespace


def _stated_version(call: Call, in_body: int | None) -> int | None:
    """The version that query, body and header agree on; None where none of them says one."""
    in_query = call.query.get("version")
    said = {
        object_version(call),
        in_body,
        None if in_query is None else parse_version(in_query.encode(), what="version"),
    }
    said.discard(None)
    if len(said) > 1:
        raise InvalidError(
            "the versions in query, body and X-Object-Version differ", code="malformed-version"
        )
    return said.pop() if said else None


def _shown(key: str, entry: DeploymentValue) -> Mapping[str, Any]:
    try:
        value, encoding = entry.value.decode("utf-8"), "utf8"
    except UnicodeDecodeError:
        value, encoding = base64.b64encode(entry.value).decode("ascii"), "base64"
    return {"key": key, "value": value, "encoding": encoding, "version": entry.version}
