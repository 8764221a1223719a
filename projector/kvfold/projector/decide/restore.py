"""Decisions about restored entries (row X11): into an empty scope only, with their versions, many records to a scope.

The scope itself remembers which snapshot it is being filled from, for as long as nothing else is done to it. So each record
is decided by the log alone: the first finds the scope empty, the next ones find it filled from their own snapshot, and an
ordinary write in between ends the restore: what comes after it is a conflict, `not-empty`.
"""

from __future__ import annotations

from kvfold.schemas.form import Formed
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = ["decide_restored"]


def decide_restored(formed: Formed, *, is_empty: bool, restoring: str | None, version: int) -> Decision:
    """The outcome by the scope's state alone; `version` is the entry's now, 0 where there is none."""
    mutation = formed.mutation
    assert mutation.version is not None and mutation.snapshot is not None
    if not is_empty and restoring != mutation.snapshot:
        return Decision(DecisionStatus.CONFLICT, "not-empty", version=version)
    if version != 0:
        return Decision(DecisionStatus.CONFLICT, "already-exists", version=version)
    return Decision(DecisionStatus.APPLIED, version=mutation.version)
