"""Decisions about the log's format level."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvfold.projector import batch
from kvfold.projector.batch import FormatAheadError
from support.given import applied, given, rejected
from support.mutations import (
    capsule_set,
    format_raised,
    instance_pruned_before,
    instance_started,
    mutation_id,
    scope_in,
)

__all__: list[str] = []


@pytest.mark.parametrize("level", [1, 3, 100])
def test_any_level_but_the_next_is_malformed(level: int) -> None:
    scenario = given().when(format_raised(level))
    scenario.then(
        rejected("malformed", "the format level is 1: only the next one is accepted"), mutation_id=[]
    )
    assert scenario.state().format_level == 1


@pytest.mark.parametrize("level", [0, -1, 1.0, "2", True, None])
def test_what_is_no_level_is_malformed(level: object) -> None:
    detail = "the JSON body does not have the shape of kvfold.system.format-raised.v1"
    given().when(format_raised(level)).then(rejected("malformed", detail))  # type: ignore[arg-type]


def test_a_level_above_the_binary_stops_at_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "FORMAT_LEVEL", 1)
    scenario = given(capsule_set("a"))
    with pytest.raises(
        FormatAheadError, match="0:1 raises the format level to 2; this release knows 1"
    ) as caught:
        scenario.when(format_raised(2))
    assert caught.value.offset == 1
    assert scenario.state().offset_next == 1


def test_a_partition_that_a_later_release_has_raised_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old binary that gets the partition back, after another one has folded the raise, decides nothing there."""
    scenario = given(format_raised(2))
    monkeypatch.setattr(batch, "FORMAT_LEVEL", 1)
    with pytest.raises(FormatAheadError, match="has format level 2; this release knows 1") as caught:
        scenario.when(capsule_set("a"))
    assert caught.value.offset == scenario.state().offset_next == 1
    assert len(scenario.decisions()) == 1


def test_a_type_above_the_level_is_unknown_whatever_else_is_wrong_with_it() -> None:
    """As for a release that does not know it: no look at its partition, its scope or its body."""
    here, elsewhere = scope_in(1, 4, "o:{}"), scope_in(2, 4, "o:{}")
    bad = [
        instance_pruned_before(2, scope=here),
        instance_pruned_before("x", scope=here),
        instance_pruned_before(2, scope="c:alice:capsule:notes"),
        instance_pruned_before(2, scope=elsewhere),
    ]
    scenario = given(partition=1, partition_count=4).when(*bad)
    scenario.then(*[rejected("unknown-type")] * 4, mutation_id=[])
    for mutation, row in zip(bad, scenario.decisions(), strict=True):
        unknown = given(partition=1, partition_count=4).when(replace(mutation, type="kvfold.none.v1")).last
        same = (row.scope, row.mutation_id, row.code, row.detail, row.namespace, row.subject, row.actor)
        assert same == (
            *(unknown.scope, unknown.mutation_id, unknown.code, unknown.detail),
            *(unknown.namespace, unknown.subject, unknown.actor),
        )
    raised = given(format_raised(2), instance_started()).when(instance_pruned_before("x"))
    raised.then(rejected("malformed"))


def test_a_binary_that_knows_the_level_raises_it_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "FORMAT_LEVEL", 3)
    scenario = given().when(format_raised(2)).then(applied(2))
    assert scenario.state().format_level == 2
    scenario.when(format_raised(2)).then(rejected("malformed"))
    scenario.when(format_raised(4)).then(rejected("malformed"))
    scenario.when(format_raised(3), capsule_set("a")).then(applied(3), applied(1))
    with pytest.raises(FormatAheadError):
        scenario.when(format_raised(4))


def test_what_was_malformed_is_decided_anew_under_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Malformed records never enter the index, so the same record may be accepted once its turn has come."""
    monkeypatch.setattr(batch, "FORMAT_LEVEL", 3)
    early = format_raised(3, id_=mutation_id(1))
    given(early, format_raised(2)).when(early).then(applied(3))


def test_a_repeat_of_an_accepted_level_is_a_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "FORMAT_LEVEL", 2)
    raised = format_raised(2, id_=mutation_id(1))
    scenario = given(raised).when(raised).then(applied(2))
    assert scenario.last.repeat_of == 0


def test_a_level_is_a_partitions_own() -> None:
    wrong = format_raised(3, partition=1, partition_count=4)
    given(partition=2, partition_count=4).when(wrong).then(rejected("wrong-partition"))
    right = format_raised(3, partition=2, partition_count=4)
    given(partition=2, partition_count=4).when(right).then(rejected("malformed"))
