"""Decisions about orchestration instances and what they change."""

from __future__ import annotations

import json

import pytest

from support.given import Scenario, applied, conflict, given, rejected
from support.mutations import (
    INSTANCE,
    instance_deleted,
    instance_events,
    instance_pruned,
    instance_started,
    key_cleared,
    key_set,
    keys_cleared,
)

__all__: list[str] = []

CONTINUED = {"kind": "OrchestrationContinuedAsNew", "input": {"n": 2}}
COMPLETED = {"kind": "OrchestrationCompleted", "output": {"b": 1, "a": 2}}
FAILED = {"kind": "OrchestrationFailed", "error": "boom"}


def _keys(scenario: Scenario) -> dict[object, tuple[object, object]]:
    return {row["key"]: (row["value"], row["execution_id"]) for row in scenario.rows("orchestration_kv")}


def test_a_start_makes_instance_and_first_execution() -> None:
    given().when(instance_started(data={"z": 1, "a": [1.5, "x"]})).then(
        applied(),
        orchestration_instance=[
            {
                "scope": INSTANCE,
                "incarnation": 0,
                "execution_id": 1,
                "mode": "external",
                "name": "order",
                "status": "Running",
                "input": '{"a":[1.5,"x"],"z":1}',
                "output": None,
                "failure": None,
                "custom_status": None,
                "worker": None,
                "history_length": 0,
            }
        ],
        orchestration_execution=[{"execution_id": 1, "status": "Running", "kv_seed": "{}", "ended_ms": None}],
    )


def test_an_id_that_is_taken_conflicts_also_after_the_end() -> None:
    scenario = given(instance_started()).when(instance_started()).then(conflict("already-exists"))
    scenario.when(instance_events(COMPLETED)).when(instance_started()).then(conflict("already-exists"))


def test_a_parent_is_accepted() -> None:
    parent = {"instance_id": "p", "incarnation": 0, "execution_id": 1, "event_id": 1}
    given().when(instance_started(parent=parent)).then(applied())


@pytest.mark.parametrize("name", ["", "n" * 257, "a\nb"])
def test_names_are_limited(name: str) -> None:
    given().when(instance_started(name=name)).then(rejected("limit"), orchestration_instance=[])
    parent = {"instance_id": name, "incarnation": 0, "execution_id": 1, "event_id": 1}
    given().when(instance_started(parent=parent)).then(rejected("limit"))


@pytest.mark.row("O1")
@pytest.mark.row("O12")
def test_events_apply_in_order_and_are_kept_as_history() -> None:
    scenario = given(instance_started())
    scenario.when(
        instance_events(key_set("a", "1"), key_set("b", ""), key_cleared("a"), key_set("a", "2"), actor="w1")
    ).then(
        applied(),
        orchestration_kv=[
            {"key": "a", "value": "2", "execution_id": 1, "actor": "w1", "valid_from": 1},
            {"key": "b", "value": "", "execution_id": 1},
        ],
        orchestration_event=[
            {"event_id": 1, "kind": "KeyValueSet", "data": '{"key":"a","kind":"KeyValueSet","value":"1"}'},
            {"event_id": 2, "kind": "KeyValueSet", "record_offset": 1},
            {"event_id": 3, "kind": "KeyValueCleared", "data": '{"key":"a","kind":"KeyValueCleared"}'},
            {"event_id": 4, "kind": "KeyValueSet"},
        ],
        orchestration_instance=[{"history_length": 4, "worker": "w1", "updated_at": 1}],
        orchestration_kv_history=[],
    )


@pytest.mark.row("O1")
def test_setting_the_same_value_is_recorded_and_restamped() -> None:
    scenario = given(instance_started(), instance_events(key_set("a", "1"), CONTINUED))
    scenario.when(instance_events(key_set("a", "1"), execution=2)).then(
        applied(),
        orchestration_kv=[{"value": "1", "execution_id": 2, "valid_from": 2}],
        orchestration_kv_history=[{"value": "1", "execution_id": 1, "valid_from": 1, "valid_to": 2}],
    )


@pytest.mark.row("O5")
@pytest.mark.row("O6")
def test_clears_are_recorded_even_where_nothing_is_set() -> None:
    given(instance_started()).when(instance_events(key_cleared("x"), keys_cleared())).then(
        applied(), orchestration_kv=[], orchestration_event=[{"event_id": 1}, {"kind": "KeyValuesCleared"}]
    )


def test_a_decision_names_the_keys_that_its_record_changed() -> None:
    scenario = given(instance_started()).when(
        instance_events(
            key_set("b", "1"), key_set("\U0001f98a", "2"), key_set("é", "3"), key_set("gone", "4")
        )
    )
    assert scenario.last.keys == '["b","gone","é","\U0001f98a"]'
    # What was set and cleared within the record changed nothing.
    scenario.when(instance_events(key_set("b", "5"), key_cleared("gone"), key_set("n"), key_cleared("n")))
    assert scenario.last.keys == '["b","gone"]'
    scenario.when(instance_events({"kind": "CustomStatusUpdated", "status": "half"}))
    assert scenario.last.keys is None
    scenario.when(instance_events(keys_cleared(), key_set("b", "6")))
    assert scenario.last.keys == '["b","é","\U0001f98a"]'
    scenario.when(instance_events(key_set("c"), execution=9)).then(conflict("wrong-execution"))
    assert scenario.last.keys is None
    scenario.when(instance_events(key_set("c"), CONTINUED)).when(instance_pruned([1])).then(
        applied(removed=1)
    )
    assert scenario.last.keys == '["b","c"]'
    # A whole range is no list of keys.
    scenario.when(instance_deleted()).then(applied(removed=1))
    assert scenario.last.keys is None


@pytest.mark.row("O13")
def test_continue_as_new_steps_the_execution_and_seeds_it() -> None:
    scenario = given(instance_started(data=1))
    status = {"kind": "CustomStatusUpdated", "status": "half"}
    scenario.when(instance_events(key_set("b", "2"), key_set("a", "1"), status, CONTINUED)).then(
        applied(),
        orchestration_instance=[
            {
                "execution_id": 2,
                "status": "Running",
                "input": '{"n":2}',
                "history_length": 0,
                "custom_status": "half",
            }
        ],
        orchestration_execution=[
            {"execution_id": 1, "status": "ContinuedAsNew", "input": "1", "kv_seed": "{}"},
            {"execution_id": 2, "status": "Running", "input": '{"n":2}', "kv_seed": '{"a":"1","b":"2"}'},
        ],
    )
    assert _keys(scenario) == {"a": ("1", 1), "b": ("2", 1)}
    scenario.when(instance_events(key_set("c"), execution=1)).then(conflict("wrong-execution"))
    scenario.when(instance_events(key_set("c"), execution=3)).then(conflict("wrong-execution"))
    scenario.when(instance_events(key_set("b", "3"), execution=2)).then(applied())
    assert _keys(scenario) == {"a": ("1", 1), "b": ("3", 2)}
    scenario.when(instance_events(keys_cleared(), execution=2)).then(applied(), orchestration_kv=[])
    assert [row["event_id"] for row in scenario.rows("orchestration_event") if row["execution_id"] == 2] == [
        1,
        2,
    ]


def test_ends_are_kept_and_final() -> None:
    scenario = given(instance_started()).when(instance_events(key_set("a"), COMPLETED))
    scenario.then(
        applied(),
        orchestration_instance=[{"status": "Completed", "output": '{"a":2,"b":1}', "failure": None}],
        orchestration_execution=[
            {"status": "Completed", "output": '{"a":2,"b":1}', "ended_ms": scenario.time_ms}
        ],
        orchestration_kv=[{"key": "a"}],
    )
    scenario.when(instance_events(key_set("a"))).then(conflict("finished"))
    failed = given(instance_started()).when(instance_events(FAILED))
    failed.then(
        orchestration_instance=[{"status": "Failed", "failure": "boom", "output": None}],
        orchestration_execution=[{"status": "Failed", "failure": "boom"}],
    )
    failed.when(instance_events(CONTINUED)).then(conflict("finished"))


@pytest.mark.parametrize("terminal", [COMPLETED, FAILED, CONTINUED])
def test_a_terminal_event_must_be_the_last(terminal: dict[str, object]) -> None:
    given(instance_started()).when(instance_events(terminal, key_set("a"))).then(
        rejected("malformed", f"{terminal['kind']} must be the last event of its record"),
        orchestration_event=[],
    )


def test_a_custom_status_is_set_and_cleared() -> None:
    scenario = given(instance_started(), instance_events({"kind": "CustomStatusUpdated", "status": "x"}))
    scenario.then(orchestration_instance=[{"custom_status": "x"}])
    scenario.when(instance_events({"kind": "CustomStatusUpdated", "status": None})).then(
        orchestration_instance=[{"custom_status": None}]
    )


def test_events_want_an_external_instance_that_is_known_and_the_same() -> None:
    given().when(instance_events(key_set("a"))).then(conflict("unknown-instance"))
    given(instance_started(mode="runtime")).when(instance_events(key_set("a"))).then(conflict("wrong-mode"))
    scenario = given(instance_started())
    scenario.when(instance_events(key_set("a"), incarnation=1)).then(conflict("wrong-incarnation"))
    scenario.when(instance_events(key_set("a"), incarnation=0)).then(applied())


@pytest.mark.row("O17")
def test_the_key_limit_counts_the_whole_instance_at_the_end_of_the_record() -> None:
    ten = [key_set(f"k{n}") for n in range(10)]
    scenario = given(instance_started()).when(instance_events(*ten)).then(applied())
    message = "KV key count (11) exceeds limit (10)"
    scenario.when(instance_events(key_set("k10"))).then(rejected("limit", message))
    scenario.when(instance_events(key_set("k10"), key_cleared("k0"))).then(applied())
    scenario.when(instance_events(keys_cleared(), *ten)).then(applied())
    assert len(_keys(scenario)) == 10
    scenario.when(instance_events(CONTINUED)).then(applied())
    scenario.when(instance_events(key_set("x"), execution=2)).then(rejected("limit", message))
    # Not failed: an external instance goes on (contract).
    scenario.then(orchestration_instance=[{"status": "Running", "execution_id": 2}])


@pytest.mark.row("O17")
@pytest.mark.row("O18")
def test_the_value_limit_names_the_first_offender_also_where_it_was_overwritten() -> None:
    scenario = given(instance_started())
    scenario.when(instance_events(key_set("k", "x" * 16_384), key_set("é", "é" * 8_192))).then(applied())
    message = "KV value for key 'b' (16386 bytes) exceeds limit (16384 bytes)"
    events = [key_set("a", "x"), key_set("b", "é" * 8_193), key_set("c", "x" * 16_385), key_cleared("b")]
    before = _keys(scenario)
    scenario.when(instance_events(*events)).then(rejected("limit", message))
    assert _keys(scenario) == before
    assert len(scenario.rows("orchestration_event")) == 2


@pytest.mark.row("O17")
def test_the_key_count_is_checked_first() -> None:
    events = [key_set("big", "x" * 16_385)] + [key_set(f"k{n}") for n in range(10)]
    given(instance_started()).when(instance_events(*events)).then(
        rejected("limit", "KV key count (11) exceeds limit (10)")
    )


@pytest.mark.parametrize("key", ["", "\n\x7f", "e\u0301", "k" * 256])
def test_orchestration_keys_are_any_text(key: str) -> None:
    scenario = given(instance_started()).when(instance_events(key_set(key))).then(applied())
    assert set(_keys(scenario)) == {key}


@pytest.mark.parametrize("event", [key_set("k" * 257), key_cleared("é" * 129)])
def test_an_over_long_orchestration_key_is_invalid(event: dict[str, object]) -> None:
    given(instance_started()).when(instance_events(event)).then(rejected("invalid-key"))


def test_an_unknown_kind_is_an_unknown_type() -> None:
    detail = "unknown event kind 'Nov\\xe6'"
    given(instance_started()).when(instance_events({"kind": "Novæ"})).then(rejected("unknown-type", detail))


def _three_executions() -> Scenario:
    return given(
        instance_started(),
        instance_events(key_set("a", "1"), key_set("b", "1"), CONTINUED),
        instance_events(key_set("b", "2"), CONTINUED, execution=2),
        instance_events(key_set("c", "3"), execution=3),
    )


@pytest.mark.row("O14")
def test_a_prune_takes_the_keys_whose_last_writer_is_pruned() -> None:
    scenario = _three_executions().when(instance_pruned([1, 9])).then(applied(removed=1))
    assert _keys(scenario) == {"b": ("2", 2), "c": ("3", 3)}
    assert {row["execution_id"] for row in scenario.rows("orchestration_event")} == {2, 3}
    scenario.then(
        orchestration_execution=[{"execution_id": 2}, {"execution_id": 3, "kv_seed": '{"a":"1","b":"2"}'}],
        orchestration_kv_history=[{"key": "a", "valid_to": 4}, {"key": "b", "valid_from": 1, "valid_to": 2}],
    )
    scenario.when(instance_pruned([1])).then(applied(removed=0))


@pytest.mark.row("O14")
def test_keep_values_prunes_history_only() -> None:
    scenario = _three_executions().when(instance_pruned([1, 2], keep_values=True)).then(applied(removed=2))
    assert _keys(scenario) == {"a": ("1", 1), "b": ("2", 2), "c": ("3", 3)}
    # A later prune without the option takes keys of executions whose rows went before.
    scenario.when(instance_pruned([1])).then(applied(removed=0))
    assert _keys(scenario) == {"b": ("2", 2), "c": ("3", 3)}


@pytest.mark.row("O14")
def test_the_current_execution_is_never_pruned() -> None:
    scenario = _three_executions().when(instance_pruned([2, 3])).then(conflict("current-execution"))
    scenario.when(instance_events(COMPLETED, execution=3)).when(instance_pruned([3])).then(
        conflict("current-execution")
    )
    given().when(instance_pruned([1])).then(conflict("unknown-instance"))


@pytest.mark.row("O16")
def test_a_delete_removes_every_row_and_a_reused_id_starts_empty() -> None:
    scenario = (
        _three_executions()
        .when(instance_deleted())
        .then(
            applied(removed=1),
            orchestration_instance=[],
            orchestration_execution=[],
            orchestration_event=[],
            orchestration_kv=[],
        )
    )
    scenario.when(instance_events(key_set("a"), execution=3)).then(conflict("unknown-instance"))
    scenario.when(instance_deleted()).then(conflict("unknown-instance"))
    scenario.when(instance_started()).then(
        applied(), orchestration_instance=[{"incarnation": 7, "execution_id": 1}], orchestration_kv=[]
    )
    scenario.when(instance_events(key_set("a"), incarnation=0)).then(conflict("wrong-incarnation"))
    scenario.when(instance_deleted(incarnation=0)).then(conflict("wrong-incarnation"))
    scenario.when(instance_deleted(incarnation=7)).then(applied(removed=1))


@pytest.mark.row("O16")
def test_a_delete_leaves_the_neighbour() -> None:
    other = instance_started(scope=INSTANCE + "7")
    given(instance_started(), other).when(instance_deleted()).then(
        orchestration_instance=[{"scope": INSTANCE + "7"}]
    )


def test_history_events_are_canonical_json() -> None:
    scenario = given(
        instance_started(), instance_events({"output": [1, 1.5, "é"], "kind": "OrchestrationCompleted"})
    )
    (event,) = scenario.rows("orchestration_event")
    assert event["data"] == '{"kind":"OrchestrationCompleted","output":[1,1.5,"é"]}'
    assert json.loads(str(event["data"]))["output"] == [1, 1.5, "é"]
