"""Compares the decisions that a rebuild makes with those that the serving generation has recorded.

The same log gives the same decisions, always; a difference is a mistake of ours, and stops the rebuild at its position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from psycopg import Connection

from kvfold.projector.loops import CommitCheckError
from kvfold.projector.postgres_store import translated
from kvfold.projector.statements import sql_file
from kvfold.projector.tables import DecisionRow
from kvfold.schemas.position import Position
from kvfold.schemas.projection import schema_name

__all__ = ["DecisionComparison", "DecisionsDifferError"]

_PAGE_OFFSETS: Final = 10_000
_COLUMNS: Final = tuple(name for name in DecisionRow._fields if name not in ("partition", "record_offset"))
# What is told of a decision: no key, no actor, and no value, of which it has none.
_TOLD: Final = ("type", "status", "code", "version", "removed", "repeat_of", "time_ms")


class DecisionsDifferError(CommitCheckError):
    """A rebuilt decision is not the recorded one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="decisions-differ")


class DecisionComparison:
    """A `CommitCheck`: after each commit, the decisions that both generations have and that were not compared yet.

    It works on a connection of its own, in autocommit mode. How far it came stands in `kvfold.rebuild_partition`, so that
    nothing is left out when a rebuild is interrupted between a commit and its comparison.
    """

    def __init__(self, connect: Callable[[], Connection[Any]], *, generation: int, recorded: int) -> None:
        self._connect = connect
        self._connection: Connection[Any] | None = None
        self._generation = generation
        self._recorded = recorded
        statement = sql_file("rebuild/compare", generation)
        self._statement = statement.replace("{o}", schema_name(recorded))

    def committed(self, partition: int, offset_next: int) -> None:
        """Compares what can be compared up to `offset_next`.

        Raises:
            DecisionsDifferError: names the position, the recorded decision and the new one.
            StoreUnavailableError: Postgres is away.
        """
        params = {"partition": partition, "generation": self._generation, "page": _PAGE_OFFSETS}
        with translated():
            while True:
                row = self._open().execute(self._statement, params).fetchone()
                if row is None:
                    return
                compared_next, difference = row
                if difference is not None:
                    raise DecisionsDifferError(self._described(Position(partition, difference)))
                if compared_next >= offset_next:
                    return

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()

    def _described(self, position: Position) -> str:
        recorded, new = (self._decision(each, position) for each in (self._recorded, self._generation))
        return (
            f"at position {position} generation {self._recorded} recorded {recorded}, and generation {self._generation} "
            f"decides {new}"
        )

    def _decision(self, generation: int, position: Position) -> str:
        row = (
            self._open()
            .execute(
                f"SELECT {', '.join(_COLUMNS)} FROM {schema_name(generation)}.decision "
                "WHERE partition = %s AND record_offset = %s",
                (position.partition, position.offset),
            )
            .fetchone()
        )
        if row is None:
            return "none"
        columns = dict(zip(_COLUMNS, row, strict=True))
        return ", ".join(f"{name} {columns[name]}" for name in _TOLD if columns[name] is not None)

    def _open(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection
