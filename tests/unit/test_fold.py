"""The fold asserts what the decision promised, and never decides itself."""

from __future__ import annotations

import pytest

from kvfold.projector.changes import Changes, RangeRemoval
from kvfold.projector.decide.dispatch import decide
from kvfold.projector.decide.state import (
    CapsuleState,
    DeploymentState,
    Head,
    OrchestrationState,
    Place,
    RangeTotals,
    ScopeState,
    SystemState,
)
from kvfold.projector.fold import fold
from kvfold.projector.tables import CapsuleScope, DeploymentScope
from kvfold.schemas.form import Formed, check_form
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision, DecisionStatus
from support.given import applied
from support.mutations import (
    CAPSULE,
    DEPLOYMENT,
    capsule_cleared,
    capsule_deleted,
    capsule_set,
    deployment_deleted,
    deployment_put,
    format_raised,
    instance_events,
    instance_started,
    key_set,
    record_of,
    undeployed,
)

__all__: list[str] = []

PLACE = Place(0, 42, 1_000)


def _formed(mutation: Mutation) -> Formed:
    formed = check_form(record_of(mutation), 1)
    assert isinstance(formed, Formed)
    return formed


@pytest.mark.parametrize(
    ("state", "mutation", "decision"),
    [
        (CapsuleState(), capsule_set("k"), Decision(DecisionStatus.CONFLICT, "cas-mismatch", version=0)),
        (CapsuleState(), capsule_set("k"), applied(2)),
        (CapsuleState(), capsule_set("k"), applied()),
        (CapsuleState(keys=0, bytes=0, entry=Head(1, 3)), capsule_deleted("k"), applied(1)),
        (CapsuleState(range=RangeTotals(2, 9, 1)), capsule_cleared("k"), applied(removed=1)),
        (CapsuleState(keys=1, bytes=3, range=RangeTotals(2, 9, 1)), capsule_cleared("k"), applied(removed=2)),
        (DeploymentState(entry=Head(3, 1)), deployment_put("k"), applied(3)),
        (DeploymentState(version_floor=3), deployment_put("k"), applied(3)),
        (DeploymentState(entry=Head(3, 1)), deployment_deleted("k"), applied(2)),
        (OrchestrationState(None, {}), instance_events(key_set("k")), applied()),
        (SystemState(1), format_raised(2), applied(3)),
    ],
)
def test_a_broken_promise_is_an_assertion(state: ScopeState, mutation: Mutation, decision: Decision) -> None:
    with pytest.raises(AssertionError):
        fold(state, _formed(mutation), decision, PLACE)


@pytest.mark.parametrize(
    ("state", "mutation"),
    [
        (CapsuleState(), capsule_deleted("k")),
        (CapsuleState(), capsule_cleared("k")),
        (DeploymentState(), deployment_deleted("k")),
        (DeploymentState(entry=Head(3, None)), deployment_deleted("k")),
        (DeploymentState(), undeployed()),
    ],
)
def test_what_changes_nothing_has_no_changes(state: ScopeState, mutation: Mutation) -> None:
    formed = _formed(mutation)
    assert fold(state, formed, decide(state, formed), PLACE) == Changes()


def test_a_range_names_what_goes_and_what_the_scope_keeps() -> None:
    state = CapsuleState(keys=5, bytes=50, bytes_max=99, range=RangeTotals(2, 20, 3))
    changes = fold(state, _formed(capsule_cleared("p")), applied(removed=2), PLACE)
    assert changes == Changes(
        puts=(("capsule_scope", CapsuleScope(CAPSULE, 3, 30, 99)),),
        ranges=(RangeRemoval("capsule_entry", CAPSULE, prefix="p"),),
    )
    swept = fold(
        DeploymentState(7, None, RangeTotals(1, 1, 4)), _formed(undeployed()), applied(removed=1), PLACE
    )
    assert swept.puts == (("deployment_scope", DeploymentScope(DEPLOYMENT, 7)),)


def test_a_level_is_changed_alone() -> None:
    assert fold(SystemState(1), _formed(format_raised(2)), applied(2), PLACE) == Changes(format_level=2)


def test_a_start_needs_an_id_that_is_free() -> None:
    state = OrchestrationState(None, {})
    started = fold(state, _formed(instance_started()), applied(), PLACE)
    assert [table for table, _ in started.puts] == ["orchestration_instance", "orchestration_execution"]
