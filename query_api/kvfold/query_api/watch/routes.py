"""The route `GET /v1/watch`: what is asked, and where the stream begins (row X10)."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.event_stream import EVENT_STREAM, EventStream
from kvfold.http.positions import POSITION_HEADER
from kvfold.http.routes import Answer, Parameter, Route
from kvfold.query_api import arguments
from kvfold.query_api.arguments import MIN_POSITION, PREFIX
from kvfold.query_api.context import ReadContext
from kvfold.query_api.documented import read_problems
from kvfold.query_api.watch.events import WatchFilter, positions_text
from kvfold.query_api.watch.stream import HEARTBEAT_S, watch_stream
from kvfold.reads.changes import WATCHED_FAMILIES, changes_bounds
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.position import parse_positions
from kvfold.schemas.types import Family

__all__ = ["watch_routes"]

_BEGINNING: Final = "beginning"
_SCOPE: Final = Parameter(
    "scope", "Only this scope, a record key: `c:PRINCIPAL:capsule:ID`, `d:DEPLOYMENT` or `o:INSTANCE`"
)
_FAMILY: Final = Parameter(
    "family", "Only this family", {"enum": [str(family) for family in WATCHED_FAMILIES]}
)
_NAMESPACE: Final = Parameter("namespace", "Only this namespace of deployments; undeploys, too")
_AFTER: Final = Parameter(
    "after",
    "The position to go on from, an id of the stream before; `beginning` = from the first change. Absent = from now on",
    {"type": "string", "examples": ["3:1042", "0:12,3:1042", _BEGINNING]},
)
_SNAPSHOT: Final = Parameter(
    "snapshot",
    "`true`: first what the scope holds, each entry as a `put` without an id, then `snapshot-end`",
    {"type": "boolean", "default": False},
)
_LAST_EVENT_ID: Final = Parameter(
    "Last-Event-ID", "The last id that the client has; stands above `after`, and above `snapshot`"
)
_DESCRIPTION: Final = """\
Server-sent events: `put`, `delete` and `cleared` (a range is one event, matched where it overlaps the prefix), and
`snapshot-end`, `progress` and `gone`. In the order of the log in each partition, so of each scope; nothing is left out and
nothing repeated. The id of an event is the position to resume from; of a mutation's events only the last has one."""


def watch_routes(context: ReadContext) -> list[Route]:
    """The stream of changes."""
    return [
        Route(
            "GET",
            "/v1/watch",
            _Watch(context).answer,
            "Every change, as it happens",
            "watch",
            description=_DESCRIPTION,
            query=(_FAMILY, _SCOPE, _NAMESPACE, PREFIX, _AFTER, _SNAPSHOT),
            headers=(_LAST_EVENT_ID, MIN_POSITION),
            answers=(
                Answer(200, "The stream", EVENT_STREAM, headers=(POSITION_HEADER,)),
                *read_problems(
                    {
                        400: (
                            *("malformed-scope", "malformed-family", "invalid-namespace", "malformed-prefix"),
                            *("malformed-position", "malformed-snapshot"),
                        ),
                        410: ("gone",),
                    }
                ),
            ),
        )
    ]


class _Watch:
    def __init__(self, context: ReadContext) -> None:
        self._context = context

    async def answer(self, call: Call) -> Response:
        """The stream, from where the client wants it."""
        wanted = wanted_changes(call)
        begins_with_snapshot = _wants_snapshot(call, wanted)
        positions = await self._begin(call, wanted)
        hub = self._context.watches
        subscription = hub.open(wanted, positions)
        return EventStream(
            watch_stream(hub, subscription, with_snapshot=begins_with_snapshot, heartbeat_s=HEARTBEAT_S),
            headers={POSITION_HEADER: positions_text(positions)},
            ended=lambda: hub.leave(subscription),
        )

    async def _begin(self, call: Call, wanted: WatchFilter) -> dict[int, int]:
        """The position to begin at, of every partition that is watched.

        Raises:
            InvalidError: `malformed-position`.
            GoneError: changes after it were forgotten.
            NotUpToPositionError: the projection is not up to it, nor within 8 seconds.
        """
        context = self._context
        if wanted.scope is None:
            partitions = tuple(range(await context.reader.partition_count()))
        else:
            partitions = (await context.reader.partition(wanted.scope),)
        asked = _asked_positions(call, partitions, of_scope=wanted.scope is not None)
        begun: dict[int, int] = {}
        for partition in partitions:
            after = None if asked is None else asked.get(partition, -1)
            read = await context.reads.read_up_to(
                call, changes_bounds(partition), -1 if after is None else after
            )
            if after is not None:
                read.value.check(after, wanted.families)
            begun[partition] = read.value.offset if after is None else after
        return begun


def wanted_changes(call: Call) -> WatchFilter:
    """`family`, `scope`, `namespace` and `prefix`.

    Raises:
        InvalidError: `malformed-family`, `malformed-scope`, `invalid-namespace`, `malformed-prefix`.
    """
    scope, family = arguments.watched_scope(call)
    named = call.query.get("family")
    if named is not None:
        if named not in WATCHED_FAMILIES:
            raise InvalidError(f"family is one of {', '.join(WATCHED_FAMILIES)}", code="malformed-family")
        if family not in (None, named):
            raise InvalidError(f"the scope is of the family {family}, not {named}", code="malformed-family")
        family = Family(named)
    namespace = call.query.get("namespace")
    if namespace is not None:
        arguments.check_namespace(namespace)
        if family not in (None, Family.DEPLOYMENT):
            raise InvalidError("only deployments have namespaces", code="invalid-namespace")
        family = Family.DEPLOYMENT
    return WatchFilter(family, scope, namespace, arguments.plain_prefix(call))


def _wants_snapshot(call: Call, wanted: WatchFilter) -> bool:
    """`snapshot`; a client that has an id has the snapshot, too. Raises InvalidError `malformed-snapshot`."""
    text = call.query.get("snapshot", "false")
    if text not in ("true", "false"):
        raise InvalidError("snapshot is true or false", code="malformed-snapshot")
    if text == "true" and wanted.scope is None:
        raise InvalidError("a snapshot is of one scope: name it with scope", code="malformed-snapshot")
    if text == "true" and "after" in call.query:
        raise InvalidError(
            "snapshot and after are two places to begin at: name one", code="malformed-snapshot"
        )
    return text == "true" and not any(call.header_values(b"last-event-id"))


def _asked_positions(call: Call, partitions: tuple[int, ...], *, of_scope: bool) -> dict[int, int] | None:
    """The positions that the client names, of the partitions that it watches; None where it names none."""
    last_id = b"".join(call.header_values(b"last-event-id")).decode("latin-1")
    text = last_id or call.query.get("after")
    if text is None:
        return None
    if text == _BEGINNING and not last_id:
        return dict.fromkeys(partitions, -1)
    positions = parse_positions(text)
    if of_scope and partitions[0] not in positions:
        raise InvalidError(
            f"the scope lives in partition {partitions[0]}, and the position {text[:80]!a} is not of it",
            code="malformed-position",
        )
    unknown = [] if of_scope else sorted(positions.keys() - set(partitions))
    if unknown:
        raise InvalidError(
            f"there is no partition {unknown[0]}: the log has {len(partitions)}", code="malformed-position"
        )
    return {partition: positions.get(partition, -1) for partition in partitions}
