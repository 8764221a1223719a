"""Reads of a scope's history: who asked for what when, and what became of it (row X9).

One entry a record, refused ones and repeats included. What is older than the family's trim horizon is forgotten.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement
from kvfold.schemas.errors import GoneError
from kvfold.schemas.limits import INT64_MAX
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.position import Position

__all__ = ["HISTORY_VISITED_MAX", "HistoryEntry", "HistoryPage", "history"]

HISTORY_VISITED_MAX: Final = 5_000
"""How many decisions a page of one key's history looks at; so a page may be short."""

_HISTORY: Final = statement("history")


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A record's decision. `subject` is the key, or the prefix of what clears one; `keys` those of a record without it.

    `repeat_of` is the first record's position where this one repeated its id; `time_ms` is effective time since 1970.
    """

    position: Position
    mutation_id: str | None
    type: str | None
    namespace: str | None
    subject: str | None
    keys: tuple[str, ...]
    actor: str | None
    decision: Decision
    repeat_of: Position | None
    time_ms: int


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Entries, newest first; the offset that the next page goes on below, None where this is the last one.

    `kept_from` is the horizon: the first record of which the history is kept.
    """

    entries: tuple[HistoryEntry, ...]
    next_below: int | None
    kept_from: Position


def history(
    scope: str, *, namespace: str | None, key: str | None, below: int | None, limit: int, partition: int
) -> Query[HistoryPage]:
    """Up to `limit` entries of a scope, from those below an offset on (None = from the newest).

    With a key, the entries that name it and those that swept it; with a namespace, those of it and undeploys. The shape
    raises `GoneError` where `below` is under the horizon.
    """
    is_filtered = namespace is not None or key is not None
    visited_max = HISTORY_VISITED_MAX if is_filtered else limit + 1

    def shape(rows: Rows) -> HistoryPage:
        _, _, horizon, count, lowest = rows[0][:5]
        kept_from = Position(partition, horizon or 0)
        if below is not None and below < kept_from.offset:
            raise GoneError(f"the history below {kept_from} was trimmed")
        entries = tuple(_entry(row[5:], partition) for row in rows if row[5] is not None)
        if len(entries) > limit:
            return HistoryPage(entries[:limit], entries[limit - 1].position.offset, kept_from)
        return HistoryPage(entries, lowest if count >= visited_max else None, kept_from)

    before = INT64_MAX if below is None else below
    parameters = (partition, scope, before, namespace, key, visited_max, scope[:1])
    return Query(_HISTORY, parameters, shape, partition)


def _entry(row: tuple[Any, ...], partition: int) -> HistoryEntry:
    offset, mutation_id, type_, namespace, subject, actor, status, code, version, removed, detail, *rest = row
    repeat_of, keys, time_ms = rest
    return HistoryEntry(
        Position(partition, offset),
        None if mutation_id is None else str(mutation_id),
        type_,
        namespace,
        subject,
        () if keys is None else tuple(json.loads(keys)),
        actor,
        Decision(DecisionStatus(status), code, version, removed, detail),
        None if repeat_of is None else Position(partition, repeat_of),
        time_ms,
    )
