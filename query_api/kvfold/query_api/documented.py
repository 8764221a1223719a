"""What the OpenAPI document says of many read routes alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvfold.http.positions import POSITION_HEADER
from kvfold.http.routes import Answer, Parameter, problem_answers

__all__ = ["CONDITIONS", "POSITIONED", "not_modified", "read_problems", "value_answer"]

POSITIONED: Final = (POSITION_HEADER,)

CONDITIONS: Final = (
    Parameter("If-Match", "RFC 9110: 412 unless the entry has one of these tags; `*` = any entry"),
    Parameter("If-None-Match", "RFC 9110: 304 where the entry has one of these tags; `*` = any entry"),
)

_ALWAYS: Final[Mapping[int, tuple[str, ...]]] = {
    400: ("malformed-path", "malformed-query", "malformed-position"),
    405: ("method-not-allowed",),
    500: ("internal",),
    503: ("store-unavailable", "not-up-to-position", "partition-paused"),
}


def read_problems(further: Mapping[int, tuple[str, ...]]) -> tuple[Answer, ...]:
    """The problems that every read of the projection can have, and further ones."""
    statuses = sorted({*_ALWAYS, *further})
    return problem_answers({status: _ALWAYS.get(status, ()) + further.get(status, ()) for status in statuses})


def value_answer(*headers: str) -> Answer:
    """The bytes of a value, which may be none at all."""
    return Answer(200, "The value's bytes", "application/octet-stream", headers=(POSITION_HEADER, *headers))


def not_modified(*headers: str) -> Answer:
    """The client has it already."""
    return Answer(304, "If-None-Match names the current tag", headers=(POSITION_HEADER, *headers))
