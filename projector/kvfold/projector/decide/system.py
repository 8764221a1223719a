"""Decisions about records of the log itself: the partition's format level."""

from __future__ import annotations

from kvfold.projector.decide.state import SystemState
from kvfold.schemas.bodies import FormatRaised
from kvfold.schemas.form import Formed, rejected
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = ["decide_system"]


def decide_system(formed: Formed, state: SystemState) -> Decision:
    """Only the current level + 1 is accepted; anything else is malformed."""
    body = formed.body
    assert isinstance(body, FormatRaised), "the only system record of level 1"
    if body.level != state.format_level + 1:
        return rejected(
            "malformed", f"the format level is {state.format_level}: only the next one is accepted"
        )
    return Decision(DecisionStatus.APPLIED, version=body.level)
