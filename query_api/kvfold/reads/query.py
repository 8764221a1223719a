"""A read: one statement, its parameters, and how its rows become a value.

Every statement gives at least one row whenever a generation serves, and every row begins with two columns that are not
data: the number of the serving generation, and how far the projection has come. An absent entry is such a row with
nulls behind these two (`LEFT JOIN`), so "absent, as of position 3:1042" is one answer of one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kvfold.schemas.position import Position

__all__ = ["Query", "Read", "Rows"]

T = TypeVar("T")

Rows = Sequence[tuple[Any, ...]]
"""Rows as Postgres gave them: columns 0 and 1 are the serving generation and the progress, data begins at 2."""


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """One read.

    - `statement`: SQL with `$1`, `$2`, … and `{g}` for the generation's schema.
    - `shape`: makes the value of the rows; the rows are never empty.
    - `partition`: whose next offset column 1 tells. None: column 1 is a JSON object of every partition's next offset,
      and the answer's position is the list of all of them.
    - `as_of`: the offset by partition that the data is of; None: of now. Such an answer holds only if the projection has
      come that far, and its position is this one.
    """

    statement: str
    parameters: tuple[Any, ...]
    shape: Callable[[Rows], T]
    partition: int | None
    as_of: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """What a read gave: the value, and the offset last covered (-1 = nothing yet) of each partition that it spans."""

    value: T
    positions: Mapping[int, int]
    generation: int

    @property
    def position(self) -> Position:
        """The position of a read of one partition."""
        assert len(self.positions) == 1, "a read over several partitions has a list of positions"
        return Position(*next(iter(self.positions.items())))
