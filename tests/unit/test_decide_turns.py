"""Turns, the messages that they consume, and what they ask for: decisions and what they change."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from kvfold.schemas.mutation import Mutation
from support.given import START_MS, Scenario, applied, conflict, given, rejected
from support.mutations import (
    INSTANCE,
    answer,
    instance_deleted,
    instance_events,
    instance_started,
    key_set,
    orchestration_record,
    turn,
)

__all__: list[str] = []

COMPLETED = {"kind": "OrchestrationCompleted", "output": 7}
CONTINUED = {"kind": "OrchestrationContinuedAsNew", "input": 2}
FAILED = {"kind": "OrchestrationFailed", "error": "boom", "reason": "application"}
TIMER = {"kind": "TimerCreated", "due_ms": START_MS + 10_000}
PARENT = {"instance_id": "p", "incarnation": 3, "execution_id": 1, "event_id": 2}


def started(**more: object) -> Scenario:
    return given(instance_started(mode="runtime", **more))  # type: ignore[arg-type]


def activity(name: str = "a", **more: object) -> dict[str, object]:
    return {"kind": "ActivityScheduled", "name": name, "input": [1]} | more


def child(instance_id: str = "kid") -> dict[str, object]:
    return {"kind": "ChildScheduled", "instance_id": instance_id, "name": "n", "input": 1}


def raised(name: str = "go", data: object = None) -> Mutation:
    return orchestration_record("event-raised", {"name": name, "data": data})


def only(scenario: Scenario, table: str) -> Mapping[str, object]:
    (row,) = scenario.rows(table)
    return row


def test_a_started_runtime_instance_is_runnable() -> None:
    scenario = started()
    assert only(scenario, "orchestration_queue") == {
        "scope": INSTANCE,
        "runnable": True,
        "message_last": 0,
        "events_waiting": 0,
        "children": 0,
        "parent": None,
    }


@pytest.mark.row("O12")
def test_a_turn_writes_history_keys_and_what_it_asks_for() -> None:
    scenario = started().when(turn(key_set("k", "1"), activity(), TIMER, worker="w9")).then(applied())
    assert [(row["event_id"], row["kind"]) for row in scenario.rows("orchestration_event")] == [
        (1, "KeyValueSet"),
        (2, "ActivityScheduled"),
        (3, "TimerCreated"),
    ]
    assert [
        (row["event_id"], row["kind"], row["name"], row["attempt"], row["due_ms"])
        for row in scenario.rows("orchestration_task")
    ] == [
        (2, "activity", "a", 1, START_MS + 2000),
        (3, "timer", "", 1, START_MS + 10_000),
    ]
    instance = only(scenario, "orchestration_instance")
    assert (instance["history_length"], instance["worker"]) == (3, "w9")
    assert only(scenario, "orchestration_queue")["runnable"] is False
    assert only(scenario, "orchestration_kv")["value"] == "1"


@pytest.mark.row("O27")
def test_of_two_turns_at_one_length_the_first_is_applied() -> None:
    scenario = started().when(turn(key_set("k", "1"), worker="w1")).then(applied())
    scenario.when(turn(key_set("k", "2"), worker="w2")).then(conflict("stale-turn"))
    assert only(scenario, "orchestration_kv")["value"] == "1"
    assert only(scenario, "orchestration_instance")["worker"] == "w1"


def test_a_turn_of_another_incarnation_or_execution_conflicts() -> None:
    scenario = started()
    scenario.when(turn(incarnation=5)).then(conflict("wrong-incarnation"))
    scenario.when(turn(execution=2)).then(conflict("wrong-execution"))
    scenario.when(turn(scope="o:other")).then(conflict("unknown-instance"))
    given(instance_started()).when(turn()).then(conflict("wrong-mode"))
    started().when(instance_events(key_set("k"))).then(conflict("wrong-mode"))
    scenario.when(turn(COMPLETED)).then(applied())
    scenario.when(turn(length=1)).then(conflict("finished"))


def test_an_answer_enters_the_inbox_and_the_next_turn_makes_it_history() -> None:
    scenario = started().when(turn(activity())).then(applied())
    scenario.when(answer("activity-completed", 1, attempt=1, result={"b": 1, "a": 2})).then(applied())
    assert scenario.rows("orchestration_task") == []
    message = only(scenario, "orchestration_inbox")
    assert (message["record_offset"], message["kind"]) == (2, "ActivityCompleted")
    assert only(scenario, "orchestration_queue")["runnable"] is True
    scenario.when(turn(COMPLETED, length=1, consumed=[2], seen=2)).then(applied())
    assert scenario.rows("orchestration_inbox") == []
    history = scenario.rows("orchestration_event")
    assert [row["kind"] for row in history] == [
        "ActivityScheduled",
        "ActivityCompleted",
        "OrchestrationCompleted",
    ]
    assert history[1]["data"] == (
        '{"attempt":1,"event_id":1,"kind":"ActivityCompleted","result":{"a":2,"b":1}}'
    )
    assert history[1]["time_ms"] == START_MS + 3000, "the time is the message's"


def test_what_is_not_pending_is_refused() -> None:
    scenario = started().when(turn(activity(), TIMER, child())).then(applied())
    for verb, event_id, more in (
        ("activity-completed", 2, {"attempt": 1}),
        ("activity-completed", 9, {"attempt": 1}),
        ("activity-completed", 1, {"attempt": 2}),
        ("timer-fired", 1, {}),
        ("child-completed", 2, {}),
        ("child-failed", 1, {"error": "e"}),
    ):
        scenario.when(answer(verb, event_id, **more)).then(conflict("not-pending"))
    scenario.when(answer("activity-completed", 1, attempt=1)).then(applied())
    scenario.when(answer("activity-completed", 1, attempt=1)).then(conflict("not-pending"))
    scenario.when(answer("timer-fired", 2, incarnation=1)).then(conflict("wrong-incarnation"))
    scenario.when(answer("timer-fired", 2, execution=2)).then(conflict("wrong-execution"))


def test_a_timer_never_fires_early() -> None:
    scenario = started().when(turn(TIMER)).then(applied())
    scenario.when(answer("timer-fired", 1), at_ms=START_MS + 9_999).then(conflict("early"))
    scenario.when(answer("timer-fired", 1), at_ms=START_MS + 10_000).then(applied())
    assert only(scenario, "orchestration_inbox")["kind"] == "TimerFired"


def test_a_failed_activity_is_tried_again_as_its_policy_says() -> None:
    retry = {"attempts_max": 3, "delay_ms": 100, "factor": 4, "delay_ms_max": 300}
    scenario = started().when(turn(activity(retry=retry))).then(applied())
    for attempt, delay_ms in ((1, 100), (2, 300)):
        scenario.when(answer("activity-failed", 1, attempt=attempt, error="e")).then(applied())
        task = only(scenario, "orchestration_task")
        assert (task["attempt"], task["due_ms"]) == (attempt + 1, scenario.time_ms + delay_ms)
        assert scenario.rows("orchestration_inbox") == []
    scenario.when(answer("activity-failed", 1, attempt=3, error="last")).then(applied())
    assert scenario.rows("orchestration_task") == []
    assert "last" in str(only(scenario, "orchestration_inbox")["data"])


@pytest.mark.parametrize(
    ("retry", "retryable"),
    [
        (None, True),
        ({"attempts_max": 9}, False),
        ({"attempts_max": 9, "delay_ms": 5000, "total_ms": 3000}, True),
    ],
)
def test_a_failure_that_is_final(retry: object, retryable: bool) -> None:
    scenario = started().when(turn(activity(retry=retry))).then(applied())
    scenario.when(answer("activity-failed", 1, attempt=1, error="e", retryable=retryable)).then(applied())
    assert scenario.rows("orchestration_task") == []
    assert only(scenario, "orchestration_inbox")["kind"] == "ActivityFailed"


def test_a_message_newer_than_the_turn_saw_calls_for_another() -> None:
    scenario = started().when(raised()).then(applied())
    scenario.when(turn(seen=0)).then(applied())
    assert only(scenario, "orchestration_queue")["runnable"] is True
    scenario.when(turn(seen=1)).then(applied())
    assert only(scenario, "orchestration_queue")["runnable"] is False
    assert only(scenario, "orchestration_queue")["events_waiting"] == 1, "nobody has waited for it"


def test_events_that_nobody_waited_for_survive_continue_as_new() -> None:
    scenario = started().when(raised("a")).when(raised("b")).when(turn(activity())).then(applied())
    scenario.when(turn(CONTINUED, length=1, consumed=[1], seen=2)).then(applied())
    assert [row["record_offset"] for row in scenario.rows("orchestration_inbox")] == [2]
    assert scenario.rows("orchestration_task") == [], "what the ended execution awaited is dropped"
    queue = only(scenario, "orchestration_queue")
    assert (queue["runnable"], queue["events_waiting"]) == (True, 1)
    scenario.when(answer("activity-completed", 1, attempt=1)).then(conflict("wrong-execution"))
    scenario.when(turn(COMPLETED, execution=2, consumed=[2], seen=2)).then(applied())
    assert scenario.rows("orchestration_inbox") == []


def test_a_message_is_consumed_once() -> None:
    scenario = started().when(raised()).then(applied())
    scenario.when(turn(consumed=[1, 1])).then(rejected("malformed"))
    scenario.when(turn(consumed=[7])).then(conflict("unknown-message"))
    scenario.when(turn(consumed=[1])).then(applied())
    scenario.when(turn(consumed=[1], length=1)).then(conflict("unknown-message"))


@pytest.mark.row("O17")
@pytest.mark.row("O18")
def test_a_current_turn_over_a_limit_fails_its_instance_and_leaves_nothing_else() -> None:
    scenario = started().when(raised()).then(applied())
    text = "KV key count (11) exceeds limit (10)"
    keys = [key_set(f"k{number}") for number in range(11)]
    scenario.when(turn(*keys, activity(), TIMER, child(), consumed=[1])).then(rejected("limit", text))
    instance = only(scenario, "orchestration_instance")
    assert (instance["status"], instance["failure"], instance["history_length"]) == ("Failed", text, 2)
    for table in ("orchestration_kv", "orchestration_task", "orchestration_inbox", "orchestration_outbox"):
        assert scenario.rows(table) == [], table
    assert [row["kind"] for row in scenario.rows("orchestration_event")] == [
        "EventRaised",
        "OrchestrationFailed",
    ]
    assert only(scenario, "orchestration_execution")["status"] == "Failed"


def test_a_stale_turn_over_a_limit_fails_nothing() -> None:
    scenario = started().when(turn(*[key_set(f"k{n}") for n in range(11)], length=4))
    scenario.then(conflict("stale-turn"))
    assert only(scenario, "orchestration_instance")["status"] == "Running"


@pytest.mark.row("O17")
def test_keys_are_counted_over_all_turns() -> None:
    scenario = started().when(turn(*[key_set(f"k{n}") for n in range(10)])).then(applied())
    scenario.when(turn(key_set("k3", "again"), length=10)).then(applied())
    scenario.when(turn(key_set("one more"), length=11)).then(
        rejected("limit", "KV key count (11) exceeds limit (10)")
    )
    assert len(scenario.rows("orchestration_kv")) == 10


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (activity("n" * 257), "the activity's name"),
        (activity(input="x" * (256 * 1024 + 1)), "activity input"),
        (child("c" * 257), "the child's id"),
        ({"kind": "CustomStatusUpdated", "status": "s" * (256 * 1024 + 1)}, "custom status"),
        ({"kind": "OrchestrationCompleted", "output": "x" * (256 * 1024)}, "output (262146 bytes)"),
        ({"kind": "OrchestrationContinuedAsNew", "input": "x" * (256 * 1024)}, "input (262146 bytes)"),
        (FAILED | {"error": "e" * 16_385}, "error (16385 bytes)"),
    ],
)
def test_sizes_and_names_fail_the_instance(event: Mapping[str, object], text: str) -> None:
    scenario = started().when(turn(event))
    failure = only(scenario, "orchestration_instance")["failure"]
    assert isinstance(failure, str) and failure.startswith(text)
    scenario.then(rejected("limit", failure))


@pytest.mark.parametrize(
    "mutation",
    [
        instance_started(mode="runtime", data="x" * (256 * 1024)),
        raised("n" * 257),
        raised("n", "x" * (256 * 1024)),
        answer("activity-completed", 1, attempt=1, result="x" * (256 * 1024)),
        answer("activity-failed", 1, attempt=1, error="e" * 16_385),
    ],
)
def test_what_comes_from_outside_is_bounded(mutation: Mutation) -> None:
    started().when(mutation).then(rejected("limit"))


def test_waiting_events_are_bounded() -> None:
    scenario = given(
        instance_started(mode="runtime"),
        *[raised() for _ in range(10_000)],
    )
    scenario.when(raised()).then(rejected("limit"))
    scenario.when(turn(consumed=[1], seen=10_000)).then(applied())
    scenario.when(raised()).then(applied())


def test_a_cancel_is_a_message() -> None:
    scenario = started().when(orchestration_record("cancel-requested", {"reason": "why"})).then(applied())
    assert json.loads(str(only(scenario, "orchestration_inbox")["data"])) == {
        "kind": "CancelRequested",
        "reason": "why",
    }
    scenario.when(orchestration_record("cancel-requested", {"incarnation": 4})).then(
        conflict("wrong-incarnation")
    )


@pytest.mark.row("O16")
def test_children_are_started_answered_and_deleted_by_messages() -> None:
    scenario = started().when(turn(child())).then(applied())
    message = only(scenario, "orchestration_outbox")
    assert (message["kind"], message["target"], message["event_id"]) == ("start", "o:kid", 1)
    assert message["data"] == '{"input":1,"name":"n"}'
    scenario.when(answer("delivered", 1, kind="completed")).then(conflict("not-pending"))
    scenario.when(answer("delivered", 1, kind="start")).then(applied())
    scenario.when(answer("delivered", 1, kind="start")).then(conflict("not-pending"))
    assert scenario.rows("orchestration_outbox") == []
    scenario.when(answer("child-failed", 1, error="taken")).then(applied())
    scenario.when(instance_deleted()).then(applied(removed=1))
    message = only(scenario, "orchestration_outbox")
    assert (message["kind"], message["target"]) == ("delete", "o:kid")
    for table in ("instance", "execution", "event", "kv", "queue", "inbox", "task", "child"):
        assert scenario.rows(f"orchestration_{table}") == [], table
    scenario.when(answer("delivered", 1, kind="delete")).then(applied())
    assert scenario.rows("orchestration_outbox") == []


@pytest.mark.parametrize(
    ("end", "kind", "data"),
    [(COMPLETED, "completed", {"output": 7}), (FAILED, "failed", {"error": "boom"})],
)
def test_an_end_is_told_to_the_parent(end: Mapping[str, object], kind: str, data: dict[str, object]) -> None:
    scenario = started(parent=PARENT).when(turn(end)).then(applied())
    message = only(scenario, "orchestration_outbox")
    assert (message["kind"], message["target"]) == (kind, "o:p")
    assert json.loads(str(message["data"])) == {"incarnation": 3, "execution_id": 1, "event_id": 2} | data


def test_the_same_parents_start_again_has_had_its_effect() -> None:
    scenario = started(parent=PARENT).when(turn(key_set("k"))).then(applied())
    scenario.when(instance_started(mode="runtime", parent=PARENT)).then(applied())
    assert only(scenario, "orchestration_instance")["history_length"] == 1
    other = PARENT | {"event_id": 3}
    scenario.when(instance_started(mode="runtime", parent=other)).then(conflict("already-exists"))


def test_only_its_own_parents_deletion_reaches_a_child() -> None:
    scenario = started(parent=PARENT)
    stranger = orchestration_record("instance-deleted", {"parent": PARENT | {"incarnation": 9}})
    scenario.when(stranger).then(conflict("wrong-parent"))
    scenario.when(orchestration_record("instance-deleted", {"parent": PARENT})).then(applied(removed=1))


@pytest.mark.row("O16")
def test_what_was_meant_for_a_deleted_incarnation_is_refused() -> None:
    scenario = started().when(turn(activity())).when(instance_deleted()).then(applied(removed=1))
    scenario.when(answer("activity-completed", 1, attempt=1)).then(conflict("unknown-instance"))
    scenario.when(instance_started(mode="runtime")).then(applied())
    incarnation = only(scenario, "orchestration_instance")["incarnation"]
    assert incarnation == 4
    scenario.when(answer("activity-completed", 1, attempt=1)).then(conflict("wrong-incarnation"))
    scenario.when(turn(length=1)).then(conflict("wrong-incarnation"))
    scenario.when(turn(incarnation=4, seen=4)).then(applied())
