"""Reads of decisions: what became of a mutation, by its id or by its position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.position import Position

__all__ = ["SCOPES_MAX", "DecisionView", "decision_at", "decision_of_id", "decisions_of_id"]

SCOPES_MAX: Final = 1_000
"""How many scopes one id is looked up in, where no scope is named."""

_OF_ID: Final = statement("decision_of_id")
_OF_ID_EVERYWHERE: Final = statement("decisions_of_id")
_AT: Final = statement("decision_at")


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision with the record that it is about.

    `position` is the record's, of the first one where the id was repeated. `scope`, `mutation_id` and `type` are None
    where the record was too malformed to have them. `time_ms` is effective time since 1970.
    """

    position: Position
    scope: str | None
    mutation_id: str | None
    type: str | None
    decision: Decision
    time_ms: int


def decision_of_id(mutation_id: UUID, scope: str, *, partition: int) -> Query[DecisionView | None]:
    """What became of a mutation in its scope: of the first record with that id. None until it is folded.

    Ids are found for the dedupe window (7 days of effective time); later by position only.
    """
    return Query(_OF_ID, (partition, mutation_id, scope), _shape_one, partition)


def decisions_of_id(mutation_id: UUID) -> Query[tuple[DecisionView, ...]]:
    """What became of an id in every scope that it was used in, at most `SCOPES_MAX`, in order of the scopes."""
    return Query(_OF_ID_EVERYWHERE, (mutation_id, SCOPES_MAX), _shape_all, None)


def decision_at(position: Position) -> Query[DecisionView | None]:
    """The decision on a record; for a repeat the first record's, with its position. None until it is folded."""
    return Query(_AT, (position.partition, position.offset), _shape_one, position.partition)


def _shape_one(rows: Rows) -> DecisionView | None:
    return None if rows[0][2] is None else _view(rows[0])


def _shape_all(rows: Rows) -> tuple[DecisionView, ...]:
    return tuple(_view(row) for row in rows if row[2] is not None)


def _view(row: tuple[Any, ...]) -> DecisionView:
    _, _, partition, offset, scope, mutation_id, kind, status, code, version, removed, detail, time_ms = row
    decision = Decision(DecisionStatus(status), code, version, removed, detail)
    return DecisionView(
        Position(partition, offset),
        scope,
        None if mutation_id is None else str(mutation_id),
        kind,
        decision,
        time_ms,
    )
