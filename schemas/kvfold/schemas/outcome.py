"""Decisions: what the projector decided about a record, its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["CONFLICT_CODES", "REJECTION_CODES", "Decision", "DecisionStatus"]


class DecisionStatus(StrEnum):
    """The outcome of a record. `pending` is never stored: it says that the record is not folded yet."""

    APPLIED = "applied"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    PENDING = "pending"


CONFLICT_CODES: Final = frozenset(
    {
        "version-conflict",  # deployments: another version, or present / absent where it had to be otherwise
        "cas-mismatch",  # capsules (row C11)
        "already-exists",  # an instance id that is taken
        "unknown-instance",
        "finished",  # the instance has ended
        "wrong-execution",
        "wrong-incarnation",
        "wrong-mode",  # orchestration.events for a runtime instance; turns and messages for an external one
        "stale-turn",  # the history is not as long as the turn takes it to be
        "unknown-message",  # a turn consumes what is not in the inbox
        "not-pending",  # an answer to what was not asked for, or was answered, or to an earlier attempt
        "early",  # a timer fired before effective time had reached it
        "wrong-parent",  # a deletion of another parent's child
        "not-empty",  # restoring an entry into a scope that holds others than those of its snapshot
        "current-execution",  # prune of the current execution
    }
)
REJECTION_CODES: Final = frozenset(
    {
        "malformed",
        "unknown-type",
        "wrong-partition",
        "id-reused",
        "invalid-key",
        "invalid-namespace",
        "secret-and-volatile",
        "volatile-in-log",
        "secret-not-encrypted",
        "too-large",
        "quota",
        "limit",
    }
)


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one record.

    - `code`: None when applied; else one of `CONFLICT_CODES` or `REJECTION_CODES`.
    - `version`: applied: the entry's version now (a delete: the version removed, 0 if there was nothing);
      conflict: the current version, 0 if absent; None where versions have no meaning.
    - `removed`: how many entries a range mutation, or the deletes of a batch, removed; None for others.
    - `detail`: a sentence for people, at most `DETAIL_CHARS_MAX` characters.
    """

    status: DecisionStatus
    code: str | None = None
    version: int | None = None
    removed: int | None = None
    detail: str | None = None
