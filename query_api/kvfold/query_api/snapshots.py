"""A whole scope at one position, as lines of JSON (row X11).

The stream is made of reads as of one offset: it holds no transaction, no connection between two of them, and no more in
memory than a page of keys and a group of values. When the client goes away, it ends with the read under way.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from kvfold.http.call import Call
from kvfold.http.positions import POSITION_HEADER
from kvfold.http.routes import Answer, Parameter, Route
from kvfold.query_api import arguments
from kvfold.query_api.answers import rfc3339_ms
from kvfold.query_api.arguments import MIN_POSITION
from kvfold.query_api.as_of import AS_OF, AS_OF_CODES, GONE, as_of_offset
from kvfold.query_api.context import ReadContext
from kvfold.query_api.documented import read_problems
from kvfold.query_api.history import FAMILY_SCOPE
from kvfold.reads.deployment import deployment_namespaces
from kvfold.reads.snapshot import (
    EntryPage,
    SnapshotEntry,
    capsule_entries,
    capsule_values,
    deployment_entries,
    deployment_values,
    instance_entries,
    partition_position,
)
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.position import Position
from kvfold.schemas.rules import is_secret
from kvfold.schemas.types import Family

__all__ = ["snapshot_routes"]

_MEDIA_TYPE: Final = "application/x-ndjson"
_PAGE_ENTRIES: Final = 1_000
_VALUES_BYTES_MAX: Final = 1024 * 1024
"""How many bytes of values are asked for at once; one that is larger comes alone."""

_SEALED: Final = Parameter(
    "sealed",
    "`true`: secret values as ciphertext, for a snapshot that is to be restored; gateways only",
    {"enum": ["true", "false"]},
)


@dataclass(frozen=True)
class _Source:
    """Where a snapshot is read: everything as of one offset."""

    context: ReadContext
    family: Family
    scope: str
    partition: int
    offset: int
    generation: int
    is_sealed: bool


def snapshot_routes(context: ReadContext) -> list[Route]:
    """The stream of a scope."""

    async def endpoint(call: Call) -> Response:
        family, scope = arguments.family_and_scope(call)
        is_sealed = _is_sealed(context, call)
        partition = await context.reader.partition(scope)
        as_of = await as_of_offset(context, call, partition=partition)
        now = await context.reads.read(call, partition_position(partition))
        offset = now.position.offset if as_of is None else as_of
        source = _Source(context, family, scope, partition, offset, now.generation, is_sealed)
        stream = _lines(call, source)
        # The first group is read before the status is sent: what is refused is refused with a problem.
        first = await anext(stream)
        headers = {POSITION_HEADER: str(Position(partition, offset))}
        if call.method == "HEAD":
            await stream.aclose()
            return Response(headers=headers, media_type=_MEDIA_TYPE)
        return StreamingResponse(_rest(first, stream), headers=headers, media_type=_MEDIA_TYPE)

    description = (
        "The first line is `{position, generation, scope}`, every other one an entry: `{namespace?, key, version, size, "
        "value_base64, position, time}` in byte order. Values of secret namespaces are null, unless `sealed` asks for "
        "the ciphertext. A stream that breaks off ends without its last chunk: the connection is cut."
    )
    invalid = ("malformed-family", "malformed-scope", "malformed-sealed", "sealed-not-served", *AS_OF_CODES)
    return [
        Route(
            "GET",
            "/v1/snapshots/{family}/{scope}",
            endpoint,
            "A whole scope at one position",
            "snapshots",
            description=description,
            path=FAMILY_SCOPE,
            query=(AS_OF, _SEALED),
            headers=(MIN_POSITION,),
            answers=(
                Answer(200, "Lines of JSON", _MEDIA_TYPE, headers=(POSITION_HEADER,)),
                *read_problems({400: invalid, 410: GONE}),
            ),
        )
    ]


def _is_sealed(context: ReadContext, call: Call) -> bool:
    text = call.query.get("sealed", "false")
    if text not in ("true", "false"):
        raise InvalidError("sealed is true or false", code="malformed-sealed")
    if text == "true" and not context.gives_ciphertext:
        raise InvalidError(
            "the read-only API gives metadata of secrets only: ask a gateway for their ciphertext",
            code="sealed-not-served",
        )
    return text == "true"


async def _rest(first: bytes, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(stream):
        yield first
        async for chunk in stream:
            yield chunk


async def _lines(call: Call, source: _Source) -> AsyncGenerator[bytes, None]:
    """The first line with the first group of entries, then a chunk a group."""
    position = str(Position(source.partition, source.offset))
    head = _line({"position": position, "generation": source.generation, "scope": source.scope})
    async for chunk in _groups(call, source):
        yield head + chunk
        head = b""
    if head:
        yield head


async def _groups(call: Call, source: _Source) -> AsyncGenerator[bytes, None]:
    reads, scope = source.context.reads, source.scope
    at = {"partition": source.partition, "as_of": source.offset}
    match source.family:
        case Family.CAPSULE:
            cursor: str | None = None
            while True:
                query = capsule_entries(scope, cursor=cursor, limit=_PAGE_ENTRIES, **at)
                page = (await reads.read(call, query)).value
                for group in _by_size(page):
                    keys = [entry.key for entry in group]
                    values = (await reads.read(call, capsule_values(scope, keys, **at))).value
                    yield _entries(source, group, values)
                cursor = page.next_cursor
                if cursor is None:
                    return
        case Family.DEPLOYMENT:
            for namespace in (await reads.read(call, deployment_namespaces(scope, **at))).value:
                async for chunk in _namespace(call, source, namespace):
                    yield chunk
        case Family.ORCHESTRATION | Family.SYSTEM:
            found = (await reads.read(call, instance_entries(scope, **at))).value
            values = {entry.key: value.encode() for entry, value in found}
            yield _entries(source, [entry for entry, _ in found], values)


async def _namespace(call: Call, source: _Source, namespace: str) -> AsyncGenerator[bytes, None]:
    reads, scope = source.context.reads, source.scope
    at = {"partition": source.partition, "as_of": source.offset}
    is_shown = source.is_sealed or not is_secret(namespace)
    cursor: str | None = None
    while True:
        query = deployment_entries(scope, namespace, cursor=cursor, limit=_PAGE_ENTRIES, **at)
        page = (await reads.read(call, query)).value
        for group in _by_size(page):
            values: Mapping[str, bytes] = {}
            if is_shown:
                keys = [entry.key for entry in group]
                values = (await reads.read(call, deployment_values(scope, namespace, keys, **at))).value
            yield _entries(source, group, values, namespace)
        cursor = page.next_cursor
        if cursor is None:
            return


def _by_size(page: EntryPage) -> list[list[SnapshotEntry]]:
    """Entries in order, in groups whose values together are at most `_VALUES_BYTES_MAX`."""
    groups: list[list[SnapshotEntry]] = []
    size = 0
    for entry in page.entries:
        if not groups or size + entry.size > _VALUES_BYTES_MAX:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry.size
    return groups


def _entries(
    source: _Source,
    group: Sequence[SnapshotEntry],
    values: Mapping[str, bytes],
    namespace: str | None = None,
) -> bytes:
    return b"".join(
        _line(
            {
                **({} if namespace is None else {"namespace": namespace}),
                "key": entry.key,
                "version": entry.version,
                "size": entry.size,
                "value_base64": _base64(values.get(entry.key)),
                "position": str(Position(source.partition, entry.offset)),
                "time": rfc3339_ms(entry.time_ms),
            }
        )
        for entry in group
    )


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _line(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
