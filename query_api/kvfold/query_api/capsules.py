"""The reads of capsules (rows C3, C8 to C10)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.positions import position_headers
from kvfold.http.preconditions import digest_etag
from kvfold.http.routes import Parameter, Route, json_answer
from kvfold.query_api import arguments
from kvfold.query_api.answers import json_response
from kvfold.query_api.arguments import CURSOR, LIMIT, MIN_POSITION, PREFIX
from kvfold.query_api.as_of import AS_OF, AS_OF_CODES, GONE, as_of_offset
from kvfold.query_api.context import ReadContext
from kvfold.query_api.documented import CONDITIONS, POSITIONED, not_modified, read_problems, value_answer
from kvfold.query_api.shapes import Capsules, KeyPage, Usage
from kvfold.query_api.values import value_response
from kvfold.reads.capsule import capsule_keys, capsule_namespaces, capsule_usage, capsule_value

__all__ = ["capsule_routes"]

_TAG: Final = "capsules"
_BASE: Final = "/v1/capsules/{principal}/{capsule_id}"
_PATH: Final = (
    Parameter("principal", "NFC, no control characters, no `:`, no `/`, 1 to 128 bytes"),
    Parameter("capsule_id", "NFC, no control characters, no `:`, no `/`, 1 to 128 bytes"),
    Parameter("key", "NFC, no control characters, 1 to 256 bytes; all the rest of the path, decoded once"),
)


def capsule_routes(context: ReadContext) -> list[Route]:
    """The list of namespaces; of one: keys, one value, usage."""
    return [_namespaces(context), _keys(context), _value(context), _usage(context)]


def _namespaces(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        query = capsule_namespaces(
            prefix=arguments.plain_prefix(call),
            cursor=arguments.cursor(call),
            limit=arguments.page_limit(call),
        )
        read = await context.reads.read(call, query)
        capsules = [
            {"principal": found.principal, "capsule_id": found.capsule_id} | asdict(found.usage)
            for found in read.value.namespaces
        ]
        return json_response({"capsules": capsules, "next_cursor": read.value.next_cursor}, read)

    return Route(
        "GET",
        "/v1/capsules",
        endpoint,
        "Namespaces of capsules with their usage, by pages",
        _TAG,
        description="In byte order of PRINCIPAL:capsule:ID, which `prefix` is compared with: `alice:` is all of alice's. "
        "What was emptied is listed with 0 keys.",
        query=(PREFIX, CURSOR, LIMIT),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("A page of namespaces", Capsules, headers=POSITIONED),
            *read_problems({400: ("malformed-prefix", "malformed-cursor", "malformed-limit")}),
        ),
    )


def _keys(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        scope = arguments.scope_of_capsule(call)
        partition = await context.reader.partition(scope)
        query = capsule_keys(
            scope,
            prefix=arguments.capsule_prefix(call),
            cursor=arguments.cursor(call),
            limit=arguments.page_limit(call),
            partition=partition,
            as_of=await as_of_offset(context, call, partition=partition),
        )
        read = await context.reads.read(call, query)
        return json_response({"keys": read.value.keys, "next_cursor": read.value.next_cursor}, read)

    invalid = ("malformed-name", "invalid-key", "malformed-cursor", "malformed-limit", *AS_OF_CODES)
    return Route(
        "GET",
        f"{_BASE}/keys",
        endpoint,
        "Keys in byte order, by pages",
        _TAG,
        path=_PATH,
        query=(PREFIX, CURSOR, LIMIT, AS_OF),
        headers=(MIN_POSITION,),
        answers=(
            json_answer("A page of keys", KeyPage, headers=POSITIONED),
            *read_problems({400: invalid, 410: GONE}),
        ),
    )


def _value(context: ReadContext) -> Route:
    reader, reads = context.reader, context.reads

    async def endpoint(call: Call) -> Response:
        scope = arguments.scope_of_capsule(call)
        key = arguments.capsule_key(call)
        partition = await reader.partition(scope)
        as_of = await as_of_offset(context, call, partition=partition)
        read = await reads.read(call, capsule_value(scope, key, partition=partition, as_of=as_of))
        headers = position_headers(read)
        entry = read.value
        if entry is None:
            return value_response(call, None, None, headers)
        return value_response(call, entry.value, digest_etag(entry.sha256), headers)

    return Route(
        "GET",
        f"{_BASE}/kv/{{key:rest}}",
        endpoint,
        "One value",
        _TAG,
        description="An empty value is 200 with an empty body; an absent key is 404.",
        path=_PATH,
        query=(AS_OF,),
        headers=(MIN_POSITION, *CONDITIONS),
        answers=(
            value_answer("ETag"),
            not_modified("ETag"),
            *read_problems(
                {
                    400: ("malformed-name", "invalid-key", "malformed-precondition", *AS_OF_CODES),
                    404: ("not-found",),
                    410: GONE,
                    412: ("precondition-failed",),
                }
            ),
        ),
    )


def _usage(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        scope = arguments.scope_of_capsule(call)
        query = capsule_usage(scope, partition=await context.reader.partition(scope))
        read = await context.reads.read(call, query)
        return json_response(asdict(read.value), read)

    return Route(
        "GET",
        f"{_BASE}/usage",
        endpoint,
        "Keys, bytes and quota",
        _TAG,
        path=_PATH,
        headers=(MIN_POSITION,),
        answers=(json_answer("Usage", Usage, headers=POSITIONED), *read_problems({400: ("malformed-name",)})),
    )
