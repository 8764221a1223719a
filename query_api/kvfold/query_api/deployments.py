"""The reads of deployments: values, and the object browser (rows D3, D5, D6, D13, D20)."""

from __future__ import annotations

import base64
from typing import Any, Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.positions import position_headers
from kvfold.http.preconditions import read_condition, version_etag
from kvfold.http.routes import Parameter, Route, json_answer
from kvfold.query_api import arguments
from kvfold.query_api.answers import found, json_response
from kvfold.query_api.arguments import CURSOR, LIMIT, MIN_POSITION, PREFIX
from kvfold.query_api.as_of import AS_OF, AS_OF_CODES, GONE, as_of_offset
from kvfold.query_api.context import ReadContext
from kvfold.query_api.documented import CONDITIONS, POSITIONED, not_modified, read_problems, value_answer
from kvfold.query_api.shapes import Namespaces, Objects, ObjectValue
from kvfold.query_api.times import rfc3339_ms
from kvfold.query_api.values import value_response
from kvfold.reads.deployment import (
    DeploymentObject,
    DeploymentValue,
    deployment_namespaces,
    deployment_objects,
    deployment_value,
)

__all__ = ["deployment_routes"]

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
    """One value, and the browser's namespaces, objects and object."""
    return [_value(context), _namespaces(context), _objects(context), _object(context)]


def _value(context: ReadContext) -> Route:
    reader, reads = context.reader, context.reads

    async def endpoint(call: Call) -> Response:
        scope = arguments.scope_of_deployment(call)
        if "as_of" in call.query:
            arguments.namespace_with_past(call.path["namespace"])
        namespace = arguments.served_namespace(call.path["namespace"])
        key = arguments.deployment_key(call)
        partition = await reader.partition(scope)
        as_of = await as_of_offset(context, call, partition=partition)
        query = deployment_value(scope, namespace, key, partition=partition, as_of=as_of)
        read = await reads.read(call, query)
        headers = position_headers(read)
        entry = read.value
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
        description="An empty value is 200 with an empty body; an absent key is 404.",
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
                    503: ("encryption-key-missing", "volatile-unavailable"),
                }
            ),
        ),
    )


def _namespaces(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        scope = arguments.scope_of_deployment(call)
        partition = await context.reader.partition(scope)
        as_of = await as_of_offset(context, call, partition=partition)
        query = deployment_namespaces(scope, partition=partition, as_of=as_of)
        read = await context.reads.read(call, query)
        return json_response({"namespaces": [name for name in read.value if arguments.is_listed(name)]}, read)

    return Route(
        "GET",
        f"{_BASE}/namespaces",
        endpoint,
        "Namespaces of the user family",
        _TAG,
        path=_PATH,
        query=(AS_OF,),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("Namespaces", Namespaces, headers=POSITIONED),
            *read_problems({400: ("malformed-name", *AS_OF_CODES), 410: GONE}),
        ),
    )


def _objects(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        scope = arguments.scope_of_deployment(call)
        partition = await context.reader.partition(scope)
        query = deployment_objects(
            scope,
            arguments.browsed_namespace(call),
            prefix=arguments.plain_prefix(call),
            cursor=arguments.cursor(call),
            limit=arguments.page_limit(call),
            partition=partition,
            as_of=await as_of_offset(context, call, partition=partition),
        )
        read = await context.reads.read(call, query)
        page = read.value
        data = {"objects": [_item(item) for item in page.objects], "next_cursor": page.next_cursor}
        return json_response(data, read)

    invalid = (
        "malformed-name",
        *_NAMESPACE_CODES,
        "malformed-prefix",
        "malformed-cursor",
        "malformed-limit",
        *AS_OF_CODES,
    )
    return Route(
        "GET",
        f"{_BASE}/objects",
        endpoint,
        "Objects in byte order of their keys, by pages",
        _TAG,
        path=_PATH,
        query=(_NAMESPACE, PREFIX, CURSOR, LIMIT, AS_OF),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("A page of objects", Objects, headers=POSITIONED),
            *read_problems({400: invalid, 410: GONE, 503: ("volatile-unavailable",)}),
        ),
    )


def _object(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        scope = arguments.scope_of_deployment(call)
        namespace = arguments.browsed_namespace(call)
        key = arguments.deployment_key(call)
        partition = await context.reader.partition(scope)
        as_of = await as_of_offset(context, call, partition=partition)
        query = deployment_value(scope, namespace, key, partition=partition, as_of=as_of)
        read = await context.reads.read(call, query)
        etag = None if read.value is None else version_etag(read.value.version)
        if read.value is None or read_condition(call, etag) is not None:
            version = {} if read.value is None else {"X-Object-Version": str(read.value.version)}
            return value_response(call, None, etag, {**position_headers(read), **version})
        entry = found(read, "such object")
        response = json_response(_value_json(key, entry), read)
        response.headers["X-Object-Version"] = str(entry.version)
        response.headers["ETag"] = version_etag(entry.version)
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
