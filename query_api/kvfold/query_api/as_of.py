"""`?as_of=`: which position a request means (row X8).

A position is the scope's own, as `X-Kvfold-Position` gave it; a time means the longest prefix of the scope's partition whose
effective time is not after it. A time is looked up first, so the answer tells the position that it used, and the same
request with that position gives the same answer for ever.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from kvfold.http.call import Call
from kvfold.http.routes import Parameter
from kvfold.query_api.context import ReadContext
from kvfold.reads.as_of import offset_at_time
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.position import parse_positions
from kvfold.schemas.times import milliseconds_of

__all__ = ["AS_OF", "AS_OF_CODES", "AS_OF_EVERYWHERE", "GONE", "as_of_everywhere", "as_of_offset"]

AS_OF: Final = Parameter(
    "as_of",
    "The past to read: a position of the scope's partition, or a time as RFC 3339 has it, not in the future",
    {"type": "string", "examples": ["3:1042", "2026-01-31T12:00:00Z"]},
)
AS_OF_EVERYWHERE: Final = replace(
    AS_OF,
    description="The past to read: a list of positions, one of every partition, or a time as RFC 3339 has it, not in "
    "the future",
    schema={"type": "string", "examples": ["0:12,1:-1,2:7", "2026-01-31T12:00:00Z"]},
)
AS_OF_CODES: Final = ("malformed-as-of", "as-of-other-partition", "as-of-in-future")
GONE: Final = ("gone",)

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_ACCEPTED: Final = (
    "a position such as 3:1042 or a time such as 2026-01-31T12:00:00Z is accepted, its + written as %2B"
)


async def as_of_offset(context: ReadContext, call: Call, *, partition: int) -> int | None:
    """The offset that `?as_of=` means in a partition; None where it is absent.

    Raises:
        InvalidError: `malformed-as-of`; `as-of-other-partition`: a position of another one; `as-of-in-future`.
        GoneError: the time is before what retention has kept.
    """
    text = call.query.get("as_of")
    if text is None:
        return None
    if not _is_position(text):
        return await _offset_at(context, call, _time_ms(text), partition)
    positions = _positions(text)
    if positions.keys() != {partition}:
        raise InvalidError(
            f"as_of is one position of the scope's own partition, which is {partition}; as of {text[:80]!a} was asked",
            code="as-of-other-partition",
        )
    return positions[partition]


async def as_of_everywhere(context: ReadContext, call: Call) -> Mapping[int, int] | None:
    """The offset that `?as_of=` means in each partition, for reads that span them; None where it is absent.

    Raises: as `as_of_offset`; `as-of-other-partition` where the list does not name every partition.
    """
    text = call.query.get("as_of")
    if text is None:
        return None
    count = await context.reader.partition_count()
    if not _is_position(text):
        time_ms = _time_ms(text)
        return {p: await _offset_at(context, call, time_ms, p) for p in range(count)}
    positions = _positions(text)
    if positions.keys() != set(range(count)):
        raise InvalidError(
            f"as_of names each of the {count} partitions once here, as X-Kvfold-Position does",
            code="as-of-other-partition",
        )
    return positions


async def _offset_at(context: ReadContext, call: Call, time_ms: int, partition: int) -> int:
    return (await context.reads.read(call, offset_at_time(time_ms, partition=partition))).value


def _is_position(text: str) -> bool:
    """Whether it looks like a position; a time has its date before its first colon."""
    return text.partition(":")[0].isascii() and text.partition(":")[0].isdecimal()


def _positions(text: str) -> Mapping[int, int]:
    try:
        return parse_positions(text)
    except InvalidError as error:
        raise InvalidError(f"as_of: {error}", code="malformed-as-of") from error


def _time_ms(text: str) -> int:
    """Milliseconds since 1970, cut down to whole ones, as effective times are."""
    problem = InvalidError(f"malformed as_of {text[:80]!a}: {_ACCEPTED}", code="malformed-as-of")
    if _TIME.fullmatch(text) is None:
        raise problem
    try:
        # Beyond microseconds Python reads nothing; effective times are whole milliseconds anyway.
        at = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper()))
        time_ms = milliseconds_of(at)
    except (ValueError, OverflowError):
        raise problem from None
    if time_ms > time.time() * 1_000:
        raise InvalidError(
            "as_of is in the future: what will be is not known; a position or an earlier time is accepted",
            code="as-of-in-future",
        )
    return time_ms
