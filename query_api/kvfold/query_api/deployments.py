"""The reads of deployments: values, and the object browser (rows D3, D5, D6, D13, D20)."""

from __future__ import annotations

import base64
from typing import Any, Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.positions import position_headers
from kvfold.http.preconditions import read_condition, version_etag
from kvfold.http.routes import Endpoint, Parameter, Route, json_answer
from kvfold.query_api import arguments
from kvfold.query_api.answers import json_response
from kvfold.query_api.arguments import CURSOR, LIMIT, MIN_POSITION, PREFIX
from kvfold.query_api.as_of import AS_OF, AS_OF_CODES, GONE, as_of_offset
from kvfold.query_api.context import ReadContext
from kvfold.query_api.documented import CONDITIONS, POSITIONED, not_modified, read_problems, value_answer
from kvfold.query_api.shapes import Namespaces, Objects, ObjectValue
from kvfold.query_api.storage_health import storage_health_route
from kvfold.query_api.tiers import VolatileReads, no_key, no_volatile_tier
from kvfold.query_api.times import rfc3339_ms
from kvfold.query_api.values import value_response
from kvfold.reads.deployment import (
    DeploymentObject,
    DeploymentValue,
    ObjectPage,
    deployment_namespaces,
    deployment_objects,
    deployment_value,
)
from kvfold.schemas.errors import InvalidError, UnavailableError
from kvfold.schemas.tiers import Tier

__all__ = ["deployment_routes"]

_ALWAYS_LISTED: Final = ("user", "user_volatile")

_TAG: Final = "deployments"
_BASE: Final = "/deployments/{id}"
_PATH: Final = (
    Parameter("id", "The deployment: no control characters, 1 to 128 bytes"),
    Parameter("namespace", "No control characters, 1 to 128 bytes"),
    Parameter("key", "No control characters, 1 to 1,024 bytes; all the rest of the path, decoded once"),
)
_NAMESPACE: Final = Parameter("namespace", "`user` or `user_volatile`", required=True)
_NAMESPACE_CODES: Final = ("invalid-namespace", "secret-and-volatile")


def deployment_routes(context: ReadContext) -> list[Route]:
    """One value, the browser's namespaces, objects and object, and the tiers' health."""
    return [
        _value(context),
        _namespaces(context),
        _objects(context),
        _entries(context),
        _object(context),
        storage_health_route(context),
    ]


def _value(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        entry, headers = await _read_entry(context, call, call.path["namespace"])
        if entry is None:
            return value_response(call, None, None, headers)
        headers["X-Object-Version"] = str(entry.version)
        return value_response(call, entry.value, version_etag(entry.version), headers)

    invalid = ("malformed-name", *_NAMESPACE_CODES, "invalid-key", "malformed-precondition", *AS_OF_CODES)
    return Route(
        "GET",
        f"{_BASE}/kv/{{namespace}}/{{key:rest}}",
        endpoint,
        "One value",
        _TAG,
        description="An empty value is 200 with an empty body; an absent key, or an evicted one, is 404. The value of a "
        "secret namespace comes decrypted where the process has its key, else 503; what is volatile has no position.",
        path=_PATH,
        query=(AS_OF,),
        headers=(MIN_POSITION, *CONDITIONS),
        answers=(
            value_answer("X-Object-Version", "ETag"),
            not_modified("X-Object-Version", "ETag"),
            *read_problems(
                {
                    400: invalid,
                    404: ("not-found",),
                    410: GONE,
                    412: ("precondition-failed",),
                    500: ("secret-unreadable",),
                    503: ("encryption-key-missing", "volatile-unavailable"),
                }
            ),
        ),
    )


async def _read_entry(
    context: ReadContext, call: Call, namespace: str
) -> tuple[DeploymentValue | None, dict[str, str]]:
    """The entry of `{key}` from the tier of its namespace, decrypted; and the headers that tell its position."""
    scope = arguments.scope_of_deployment(call)
    if "as_of" in call.query:
        arguments.namespace_with_past(namespace)
    tier = arguments.tier_of_namespace(namespace)
    key = arguments.deployment_key(call)
    if tier is Tier.VOLATILE:
        return await _volatile(context).get(call.path["id"], namespace, key), {}
    if tier is Tier.SECRET and context.secrets is None:
        raise no_key()
    partition = await context.reader.partition(scope)
    as_of = await as_of_offset(context, call, partition=partition)
    read = await context.reads.read(
        call, deployment_value(scope, namespace, key, partition=partition, as_of=as_of)
    )
    entry = read.value
    if tier is Tier.SECRET and entry is not None:
        assert context.secrets is not None
        entry = DeploymentValue(context.secrets.open(scope, namespace, key, entry.value), entry.version)
    return entry, position_headers(read)


def _volatile(context: ReadContext) -> VolatileReads:
    if context.volatile is None:
        raise no_volatile_tier()
    return context.volatile


def _namespaces(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        scope = arguments.scope_of_deployment(call)
        partition = await context.reader.partition(scope)
        as_of = await as_of_offset(context, call, partition=partition)
        query = deployment_namespaces(scope, partition=partition, as_of=as_of)
        read = await context.reads.read(call, query)
        found = {name for name in read.value if arguments.is_listed(name)}
        if as_of is None:
            found.update(_ALWAYS_LISTED, await _volatile_namespaces(context, call.path["id"]))
        return json_response({"namespaces": sorted(found)}, read)

    return Route(
        "GET",
        f"{_BASE}/namespaces",
        endpoint,
        "Namespaces of the user family",
        _TAG,
        description="`user` and `user_volatile` always, others that hold something, secret ones never.",
        path=_PATH,
        query=(AS_OF,),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("Namespaces", Namespaces, headers=POSITIONED),
            *read_problems({400: ("malformed-name", *AS_OF_CODES), 410: GONE}),
        ),
    )


async def _volatile_namespaces(context: ReadContext, deployment_id: str) -> list[str]:
    """Those of the volatile tier; none where it is away or refuses the id: the persistent ones are listed all the same."""
    if context.volatile is None:
        return []
    try:
        names = await context.volatile.namespaces(deployment_id)
    except (InvalidError, UnavailableError):
        return []
    return [name for name in names if arguments.is_listed(name)]


async def _listed(context: ReadContext, call: Call, namespace: str) -> Response:
    """A page of a namespace's objects, from its tier."""
    scope = arguments.scope_of_deployment(call)
    prefix, cursor = arguments.plain_prefix(call), arguments.cursor(call)
    limit = arguments.page_limit(call)
    if "as_of" in call.query:
        arguments.namespace_with_past(namespace)
    if arguments.tier_of_namespace(namespace) is Tier.VOLATILE:
        page = await _volatile(context).list(
            call.path["id"], namespace, prefix=prefix, cursor=cursor, limit=limit
        )
        return json_response(_page(page), None)
    partition = await context.reader.partition(scope)
    query = deployment_objects(
        scope,
        namespace,
        prefix=prefix,
        cursor=cursor,
        limit=limit,
        partition=partition,
        as_of=await as_of_offset(context, call, partition=partition),
    )
    read = await context.reads.read(call, query)
    return json_response(_page(read.value), read)


def _entries(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        arguments.scope_of_deployment(call)
        return await _listed(context, call, arguments.listed_namespace(call))

    return _list_route(
        f"{_BASE}/kv/{{namespace}}",
        endpoint,
        "Entries of a namespace in byte order of their keys, by pages",
        "For runtimes: any namespace but a secret one. With `key` in the query it is the key's route.",
    )


def _objects(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        arguments.scope_of_deployment(call)
        return await _listed(context, call, arguments.browsed_namespace(call))

    return _list_route(
        f"{_BASE}/objects", endpoint, "Objects in byte order of their keys, by pages", "", _NAMESPACE
    )


def _list_route(
    template: str, endpoint: Endpoint, summary: str, description: str, *query: Parameter
) -> Route:
    invalid = (
        "malformed-name",
        *_NAMESPACE_CODES,
        "malformed-prefix",
        "malformed-cursor",
        "malformed-limit",
        "invalid-key",
        *AS_OF_CODES,
    )
    return Route(
        "GET",
        template,
        endpoint,
        summary,
        _TAG,
        description=description,
        path=_PATH,
        query=(*query, PREFIX, CURSOR, LIMIT, AS_OF),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("A page of objects", Objects, headers=POSITIONED),
            *read_problems({400: invalid, 410: GONE, 503: ("volatile-unavailable",)}),
        ),
    )


def _object(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        entry, headers = await _read_entry(context, call, arguments.browsed_namespace(call))
        etag = None
        if entry is not None:
            etag = headers["ETag"] = version_etag(entry.version)
            headers["X-Object-Version"] = str(entry.version)
        if entry is None or read_condition(call, etag) is not None:
            return value_response(call, None, etag, headers)
        response = json_response(_value_json(call.path["key"], entry), None)
        response.headers.update(headers)
        return response

    return Route(
        "GET",
        f"{_BASE}/objects/{{key:rest}}",
        endpoint,
        "One object as JSON",
        _TAG,
        path=_PATH,
        query=(_NAMESPACE, AS_OF),
        headers=(MIN_POSITION, *CONDITIONS),
        answers=(
            json_answer("The object", ObjectValue, headers=(*POSITIONED, "X-Object-Version", "ETag")),
            not_modified("X-Object-Version", "ETag"),
            *read_problems(
                {
                    400: (
                        "malformed-name",
                        *_NAMESPACE_CODES,
                        "invalid-key",
                        "malformed-precondition",
                        *AS_OF_CODES,
                    ),
                    404: ("not-found",),
                    410: GONE,
                    412: ("precondition-failed",),
                    503: ("volatile-unavailable",),
                }
            ),
        ),
    )


def _page(page: ObjectPage) -> dict[str, Any]:
    return {"objects": [_item(item) for item in page.objects], "next_cursor": page.next_cursor}


def _item(item: DeploymentObject) -> dict[str, Any]:
    return {
        "key": item.key,
        "version": item.version,
        "size": item.size,
        "updated_at": rfc3339_ms(item.updated_ms),
        "sha256": None if item.sha256 is None else item.sha256.hex(),
    }


def _value_json(key: str, entry: DeploymentValue) -> dict[str, Any]:
    try:
        value, encoding = entry.value.decode("utf-8"), "utf8"
    except UnicodeDecodeError:
        value, encoding = base64.b64encode(entry.value).decode("ascii"), "base64"
    return {"key": key, "value": value, "encoding": encoding, "version": entry.version}
