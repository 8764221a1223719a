"""Decisions about deployments (003, "The model", "Secret namespaces"; rows D2 to D5, D12, D16)."""

from __future__ import annotations

from kvfold.projector.decide.restore import decide_restored
from kvfold.projector.decide.state import DeploymentState
from kvfold.schemas.form import Formed
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = ["decide_deployment"]


def decide_deployment(formed: Formed, state: DeploymentState) -> Decision:
    """The outcome of a valid deployment mutation against its scope's state."""
    current = _live_version(state)
    match formed.mutation.type:
        case "kvfold.deployment.put.v1":
            if not formed.mutation.expected.holds(None if current == 0 else str(current)):
                return Decision(DecisionStatus.CONFLICT, "version-conflict", version=current)
            last = 0 if state.entry is None else state.entry.version
            return Decision(DecisionStatus.APPLIED, version=max(last, state.version_floor) + 1)
        case "kvfold.deployment.deleted.v1":
            # Deleting what is absent succeeds whatever the precondition says (row D3).
            if current != 0 and not formed.mutation.expected.holds(str(current)):
                return Decision(DecisionStatus.CONFLICT, "version-conflict", version=current)
            return Decision(DecisionStatus.APPLIED, version=current)
        case "kvfold.deployment.undeployed.v1":
            return Decision(DecisionStatus.APPLIED, removed=state.range.count)
        case "kvfold.deployment.restored.v1":
            return decide_restored(
                formed, is_empty=not state.is_occupied, restoring=state.restoring, version=current
            )
    raise AssertionError(f"no decision for {formed.mutation.type}")


def _live_version(state: DeploymentState) -> int:
    """The version of a live entry; 0 for an absent one and for a tombstone."""
    return 0 if state.entry is None or state.entry.size is None else state.entry.version
