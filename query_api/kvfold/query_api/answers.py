"""How read models become answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, TypeVar

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.positions import position_headers
from kvfold.http.problems import NotFoundError
from kvfold.query_api.context import ReadContext
from kvfold.query_api.times import rfc3339, rfc3339_ms
from kvfold.reads.decisions import DecisionView
from kvfold.reads.query import Query, Read
from kvfold.schemas.errors import NotUpToPositionError

__all__ = ["decision_json", "found", "json_response", "read_until", "rfc3339", "rfc3339_ms"]

T = TypeVar("T")

_STEP_S: Final = 0.02
_EVERYWHERE_STEP_S: Final = 0.1


def json_response(data: Any, read: Read[T] | None) -> Response:
    """A JSON answer with the read's position; None = it is of no position."""
    body = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    headers = {} if read is None else position_headers(read)
    return Response(body, headers=headers, media_type="application/json")


def found(read: Read[T | None], what: str) -> T:
    """The read's value.

    Raises:
        NotFoundError: with the position as of which there is none.
    """
    if read.value is None:
        raise NotFoundError(f"there is no {what}", headers=position_headers(read))
    return read.value


def decision_json(view: DecisionView) -> Mapping[str, Any]:
    """The shape `DecisionShape`."""
    decision = view.decision
    return {
        "id": view.mutation_id,
        "scope": view.scope,
        "position": str(view.position),
        "status": decision.status.value,
        "code": decision.code,
        "version": decision.version,
        "detail": decision.detail,
        "removed": decision.removed,
    }


async def read_until(
    context: ReadContext, call: Call, query: Query[T], is_enough: Callable[[T], bool], *, wait_s: float
) -> Read[T]:
    """Reads again after each commit of the partition until the value is enough or the time is over; gives the last read.

    Raises:
        PartitionPausedError: the partition is paused and the value not enough.
    """
    deadline = monotonic() + wait_s
    while True:
        read = await context.reads.read(call, query)
        left_s = deadline - monotonic()
        if left_s <= 0 or is_enough(read.value):
            return read
        if query.partition is None:
            await asyncio.sleep(min(left_s, _EVERYWHERE_STEP_S))
            continue
        try:
            further = {query.partition: read.positions[query.partition] + 1}
            await asyncio.wrap_future(context.waiter.position_reached(further, left_s))
        except NotUpToPositionError:
            return read
        # A partition in full swing commits hundreds of times a second; nobody needs to look that often.
        await asyncio.sleep(_STEP_S)
