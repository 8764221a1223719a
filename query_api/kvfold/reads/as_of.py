"""Reads of the past: as of which offset, and whether that is kept (row X8).

A row is true from the offset that wrote it up to, not including, the offset of the record that replaced it. Read as of an
offset, the projection is what it was after that record: every record up to it counts, none behind it does. An offset that
no record has, such as a transaction marker's, means the last record before it; -1 is before the first record.

Each partition has a trim horizon for each family. What was replaced by records below it is forgotten, so a family can be
read as of the horizon - 1 and later; before, the answer is `gone`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement
from kvfold.schemas.errors import GoneError
from kvfold.schemas.position import Position

__all__ = ["VISITED_MAX", "after_horizon", "offset_at_time", "past"]

T = TypeVar("T")

VISITED_MAX: Final = 2_000
"""How many keys a page of the past looks at; those that were not there then count. So a page may be short."""

_OFFSET_AT_TIME: Final = statement("offset_at_time")


def past(
    statement_: str,
    parameters: tuple[object, ...],
    shape: Callable[[Rows], T],
    *,
    partition: int,
    as_of: int,
) -> Query[T]:
    """A read of one partition as of an offset; the shape gets the rows without their horizon (column 2).

    Its shape raises `GoneError` where the horizon is above.
    """

    def checked(rows: Rows) -> T:
        after_horizon(rows[0][2], Position(partition, as_of))
        return shape([(*row[:2], *row[3:]) for row in rows])

    return Query(statement_, parameters, checked, partition, {partition: as_of})


def after_horizon(horizon: int | None, as_of: Position) -> None:
    """Returns where state as of the position is kept.

    Raises:
        GoneError: retention has forgotten it; the text says from which position on it is kept.
    """
    if horizon is not None and as_of.offset < horizon - 1:
        kept = Position(as_of.partition, horizon - 1)
        raise GoneError(f"the state as of {as_of} was trimmed: it is kept as of {kept} and later")


def offset_at_time(time_ms: int, *, partition: int) -> Query[int]:
    """The offset of the partition's last record whose effective time (milliseconds since 1970) is this or before.

    -1 where the first record is later. Where the answer depends on decisions that were trimmed, the shape raises
    `GoneError`.
    """

    def shape(rows: Rows) -> int:
        _, _, kept_from, offset = rows[0]
        if offset is None:
            return -1
        if kept_from > 0 and offset < kept_from:
            raise GoneError(
                f"the time is before {Position(partition, kept_from)}: older decisions were trimmed"
            )
        return int(offset)

    return Query(_OFFSET_AT_TIME, (partition, time_ms), shape, partition)
