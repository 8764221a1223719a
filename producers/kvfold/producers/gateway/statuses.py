"""Which HTTP status a decision has: the same for the key routes and for `POST /v1/mutations?wait=` (contract, "HTTP")."""

from __future__ import annotations

from typing import Final

from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import CONFLICT_CODES, REJECTION_CODES, Decision, DecisionStatus
from kvfold.schemas.precondition import PreconditionKind

__all__ = ["conflict_status", "refused_status", "status_of"]

_REFUSED: Final = {
    "too-large": 413,
    "quota": 422,
    "limit": 422,
    "wrong-partition": 422,
    "id-reused": 422,
}
_CONFLICT: Final = {
    "unknown-instance": 404,
    "cas-mismatch": 412,  # capsules know conditions only as RFC 9110 has them
}
assert _REFUSED.keys() <= REJECTION_CODES
assert _CONFLICT.keys() <= CONFLICT_CODES

_NO_CONTENT: Final = frozenset(
    {
        "kvfold.capsule.deleted.v1",
        "kvfold.deployment.deleted.v1",
        "kvfold.orchestration.instance-deleted.v1",
    }
)


def status_of(mutation: Mutation, decision: Decision) -> int:
    """The status that the mutation's own route gives for the decision."""
    match decision.status:
        case DecisionStatus.APPLIED:
            return _applied_status(mutation, decision)
        case DecisionStatus.CONFLICT:
            return conflict_status(decision.code)
        case DecisionStatus.REJECTED:
            return refused_status(decision.code)
        case DecisionStatus.PENDING:
            return 202


def conflict_status(code: str | None) -> int:
    """409, unless the code says that the instance is unknown or that a condition on the content failed."""
    return _CONFLICT.get(code or "", 409)


def refused_status(code: str | None) -> int:
    """413 and 422 for what is over a limit or does not fit the log's state, 400 for what is wrong in itself."""
    return _REFUSED.get(code or "", 400)


def _applied_status(mutation: Mutation, decision: Decision) -> int:
    if mutation.type in _NO_CONTENT:
        return 204
    match mutation.type:
        case "kvfold.orchestration.started.v1":
            return 201
        case "kvfold.capsule.set.v1" | "kvfold.deployment.put.v1":
            # The decision does not say whether the key was there. Version 1 and `absent` prove that it was not; a key
            # that is made again after a delete, without that condition, counts as replaced.
            created = decision.version == 1 or mutation.expected.kind is PreconditionKind.ABSENT
            return 201 if created else 200
        case _:
            return 200
