"""The history of a scope (row X9)."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.routes import Parameter, Route, json_answer
from kvfold.query_api import arguments
from kvfold.query_api.answers import json_response
from kvfold.query_api.arguments import LIMIT, MIN_POSITION
from kvfold.query_api.as_of import GONE
from kvfold.query_api.context import ReadContext
from kvfold.query_api.documented import POSITIONED, read_problems
from kvfold.query_api.shapes import History
from kvfold.query_api.times import rfc3339_ms
from kvfold.reads.history import HistoryEntry, history
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.position import Position
from kvfold.schemas.types import Family

__all__ = ["FAMILY_SCOPE", "history_routes"]

FAMILY_SCOPE: Final = (
    Parameter("family", "Of the scope", {"enum": ["capsule", "deployment", "orchestration"]}),
    Parameter("scope", "The record key: `d:dep-1`, `c:alice:capsule:notes` or `o:order-17`"),
)
"""The path parameters of the routes over a whole scope."""

_NAMESPACE: Final = Parameter("namespace", "Only of this namespace of a deployment, and undeploys")
_KEY: Final = Parameter("key", "Only what named this key, or swept it: a cleared prefix, an undeploy")
_CURSOR: Final = Parameter(
    "cursor", "The `next_cursor` of the page before: a position, which older entries follow"
)


def history_routes(context: ReadContext) -> list[Route]:
    """Who asked for what when."""

    async def endpoint(call: Call) -> Response:
        family, scope = arguments.family_and_scope(call)
        namespace = call.query.get("namespace")
        if namespace is not None and family is not Family.DEPLOYMENT:
            raise InvalidError("only deployments have namespaces", code="invalid-namespace")
        partition = await context.reader.partition(scope)
        query = history(
            scope,
            namespace=namespace,
            key=call.query.get("key"),
            below=_below(call, partition),
            limit=arguments.page_limit(call),
            partition=partition,
        )
        read = await context.reads.read(call, query)
        page = read.value
        cursor = None if page.next_below is None else str(Position(partition, page.next_below))
        entries = [_entry_json(entry) for entry in page.entries]
        return json_response(
            {"history": entries, "next_cursor": cursor, "kept_from": str(page.kept_from)}, read
        )

    description = (
        "Newest first, refused attempts and repeats included. A page may hold fewer entries than `limit`: go on while "
        "there is a `next_cursor`. `kept_from` is the first record whose history retention has kept. A value is read "
        "with `as_of` the entry's position."
    )
    invalid = (
        "malformed-scope",
        "malformed-family",
        "malformed-cursor",
        "malformed-limit",
        "invalid-namespace",
    )
    return [
        Route(
            "GET",
            "/v1/history/{family}/{scope}",
            endpoint,
            "Who asked for what when, and what became of it",
            "history",
            description=description,
            path=FAMILY_SCOPE,
            query=(_NAMESPACE, _KEY, _CURSOR, LIMIT),
            headers=(MIN_POSITION,),
            answers=(
                json_answer("A page of the history", History, headers=POSITIONED),
                *read_problems({400: invalid, 410: GONE}),
            ),
        )
    ]


def _below(call: Call, partition: int) -> int | None:
    text = call.query.get("cursor")
    if text is None:
        return None
    try:
        position = Position.parse(text)
    except InvalidError as error:
        raise InvalidError(f"cursor: {error}", code="malformed-cursor") from error
    if position.partition != partition:
        raise InvalidError("the cursor is not of this scope", code="malformed-cursor")
    return position.offset


def _entry_json(entry: HistoryEntry) -> dict[str, Any]:
    is_prefix = entry.type == "kvfold.capsule.prefix-cleared.v1"
    decision = entry.decision
    return {
        "position": str(entry.position),
        "time": rfc3339_ms(entry.time_ms),
        "id": entry.mutation_id,
        "type": entry.type,
        "namespace": entry.namespace,
        "key": None if is_prefix else entry.subject,
        "prefix": (entry.subject or "") if is_prefix else None,
        "keys": list(entry.keys),
        "actor": entry.actor,
        "status": decision.status.value,
        "code": decision.code,
        "version": decision.version,
        "removed": decision.removed,
        "detail": decision.detail,
        "repeat_of": None if entry.repeat_of is None else str(entry.repeat_of),
    }
