"""Which status an applied mutation has: the same for its key route and for `POST /v1/mutations?wait=`."""

from __future__ import annotations

from typing import Final

from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.precondition import PreconditionKind

__all__ = ["applied_status"]

_NO_CONTENT: Final = frozenset(
    {
        "kvfold.capsule.deleted.v1",
        "kvfold.deployment.deleted.v1",
        "kvfold.orchestration.instance-deleted.v1",
    }
)


def applied_status(mutation: Mutation, decision: Decision) -> int:
    """201 for what was made, 204 for what is gone, 200 for the rest."""
    assert decision.status is DecisionStatus.APPLIED
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
