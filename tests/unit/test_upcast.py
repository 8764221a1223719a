"""Upcasting: an older version of a body, in the newest shape, means what it always meant."""

from __future__ import annotations

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from kvfold.projector.decide.orchestration import pruned_executions
from kvfold.schemas.bodies import BODY_MODELS, parse_body
from kvfold.schemas.orchestration import ExecutionsPruned, ExecutionsPrunedV2
from kvfold.schemas.upcast import upcast
from support.bodies import ACCEPTED
from support.given import applied, conflict, given, rejected
from support.mutations import (
    format_raised,
    instance_events,
    instance_pruned,
    instance_pruned_before,
    instance_started,
    key_set,
)

__all__: list[str] = []

_NEXT: dict[str, object] = {"kind": "OrchestrationContinuedAsNew", "input": None}
_numbers = st.sets(st.integers(min_value=1, max_value=30))


@pytest.mark.row("X12")
@drawn(executions=_numbers, named=_numbers, keep_values=st.booleans())
def test_version_1_of_a_prune_means_exactly_the_executions_it_names(
    executions: set[int], named: set[int], keep_values: bool
) -> None:
    body = upcast(ExecutionsPruned.model_construct(execution_ids=tuple(named), keep_values=keep_values))
    assert isinstance(body, ExecutionsPrunedV2)
    assert pruned_executions(body, executions) == executions & named
    assert body.keep_values == keep_values


@pytest.mark.parametrize("type_", sorted(BODY_MODELS))
def test_a_body_is_upcast_once(type_: str) -> None:
    for text in ACCEPTED[type_]:
        newest = upcast(parse_body(type_, text.encode()))
        assert upcast(newest) is newest


@pytest.mark.row("X12")
def test_both_versions_decide_the_same_where_they_mean_the_same() -> None:
    """A fold of version 1 before the raise, of version 1 after it, and of version 2, leave the same."""
    story = (
        instance_started(),
        instance_events(key_set("a"), _NEXT),
        instance_events(key_set("b"), _NEXT, execution=2),
    )
    kept = []
    for prune in (instance_pruned([1]), instance_pruned_before(2)):
        for raises in ([], [format_raised(2)]):
            scenario = given(*raises, *story).when(prune)
            if prune.type.endswith(".v2") and not raises:
                scenario.then(rejected("unknown-type"))
                continue
            scenario.then(applied(removed=1))
            kept.append([row["key"] for row in scenario.rows("orchestration_kv")])
            assert [row["execution_id"] for row in scenario.rows("orchestration_execution")] == [2, 3]
    assert kept == [["b"], ["b"], ["b"]]


@pytest.mark.row("O14")
def test_what_is_below_never_reaches_the_current_execution() -> None:
    scenario = given(format_raised(2), instance_started(), instance_events(key_set("a"), _NEXT))
    scenario.when(instance_pruned_before(3)).then(conflict("current-execution"))
    scenario.when(instance_pruned_before(2)).then(applied(removed=1), orchestration_kv=[])
    scenario.when(instance_pruned_before(2, scope="o:none")).then(conflict("unknown-instance"))
