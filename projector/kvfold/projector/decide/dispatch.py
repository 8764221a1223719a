"""The one entry to the decisions."""

from __future__ import annotations

from kvfold.projector.decide.capsule import decide_capsule
from kvfold.projector.decide.deployment import decide_deployment
from kvfold.projector.decide.orchestration import decide_orchestration
from kvfold.projector.decide.state import (
    CapsuleState,
    DeploymentState,
    OrchestrationState,
    ScopeState,
    SystemState,
)
from kvfold.projector.decide.system import decide_system
from kvfold.schemas.form import Formed
from kvfold.schemas.outcome import Decision

__all__ = ["decide"]


def decide(state: ScopeState, formed: Formed) -> Decision:
    """The outcome of a valid mutation. Total over valid mutations: expected outcomes are values, never exceptions."""
    match state:
        case CapsuleState():
            return decide_capsule(formed, state)
        case DeploymentState():
            return decide_deployment(formed, state)
        case OrchestrationState():
            return decide_orchestration(formed, state)
        case SystemState():
            return decide_system(formed, state)
