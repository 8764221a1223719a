"""Positions: where a record stands in the log, and how far a reader has come.

A position is `partition:offset`, written `3:1042`. Outside kvfold it always names the last record covered, never
the next one; offset -1 means "nothing of this partition yet". What spans partitions is a sorted list,
`0:12,3:1042`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import INT64_MAX

__all__ = ["Position", "format_positions", "parse_positions"]

_POSITION = re.compile(r"(0|[1-9][0-9]{0,5}):(-1|0|[1-9][0-9]{0,18})", re.ASCII)
_PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the log: partition (0 or more) and offset (-1 = before the first record, or more)."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parses `3:1042`.

        Raises:
            InvalidError: `malformed-position`, for anything else (signs, blanks, leading zeros included).
        """
        match = _POSITION.fullmatch(text)
        if match is None or int(match[2]) > INT64_MAX:
            raise InvalidError(
                f"malformed position {text[:80]!a}: a position is partition:offset, such as 3:1042",
                code="malformed-position",
            )
        return cls(int(match[1]), int(match[2]))


def parse_positions(text: str) -> dict[int, int]:
    """Parses `0:12,3:1042` into the offset last covered by partition; partitions must not repeat.

    Raises:
        InvalidError: `malformed-position`.
    """
    parts = text.split(",")
    positions = [Position.parse(part.strip(" ")) for part in parts[:_PARTITIONS_MAX]]
    result = {position.partition: position.offset for position in positions}
    if len(parts) > _PARTITIONS_MAX or len(result) != len(positions):
        raise InvalidError("malformed positions: each partition may stand once", code="malformed-position")
    return result


def format_positions(positions: Mapping[int, int] | Iterable[Position]) -> str:
    """The list form, sorted by partition: `{3: 1042, 0: 12}` becomes `0:12,3:1042`."""
    if isinstance(positions, Mapping):
        positions = [Position(partition, offset) for partition, offset in positions.items()]
    return ",".join(str(position) for position in sorted(positions))
