"""The runtime over the fold in memory: the workers' own code, a clock that is set, and workers that die."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from typing import Any

import pytest

from kvfold.producers.orchestration.activity import PermanentError
from kvfold.producers.orchestration.context import OrchestrationContext
from kvfold.producers.orchestration.errors import ActivityError, ChildError, OrchestrationCancelledError
from kvfold.producers.orchestration.registry import Registry
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import JSON_BODY_BYTES_MAX
from kvfold.schemas.orchestration import RetryPolicy
from support.orchestration_world import World

__all__: list[str] = []


def world_of(orchestration: Any, *activities: Any, **more: Any) -> World:
    registry = Registry()
    registry.orchestration(orchestration, name="main")
    for activity in activities:
        registry.activity(activity)
    for name, function in more.items():
        registry.orchestration(function, name=name)
    return World(registry)


def echo(_: Any, input: Any) -> Any:
    return input


@pytest.mark.row("O1")
@pytest.mark.row("O3")
@pytest.mark.row("O5")
@pytest.mark.row("O6")
@pytest.mark.row("O9")
def test_key_values() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        seen = [ctx.get_value("a")]
        ctx.set_value("a", "")
        ctx.set_value("a", "")
        seen.append(ctx.get_value("a"))
        ctx.clear_value("absent")
        ctx.set_value("b", "2")
        ctx.clear_value("a")
        seen.append(ctx.get_value("a"))
        await ctx.schedule_activity("echo", 1)
        ctx.clear_all_values()
        seen.append(ctx.get_value("b"))
        ctx.set_value("c", "3")
        return seen

    world = world_of(main, echo)
    world.start("i", "main")
    world.run(replay_always=True)
    assert world.output("i") == [None, "", None, None]
    assert world.snapshot("i") == {"c": "3"}
    kinds = [kind for _, kind, _ in world.events("i")]
    assert kinds == [
        *["KeyValueSet", "KeyValueSet", "KeyValueCleared", "KeyValueSet", "KeyValueCleared"],
        "ActivityScheduled",
        "ActivityCompleted",
        *["KeyValuesCleared", "KeyValueSet", "OrchestrationCompleted"],
    ]


@pytest.mark.row("O11")
@pytest.mark.row("O13")
@pytest.mark.parametrize("replay_always", [False, True])
def test_read_modify_write_gives_n_over_activities_and_continue_as_new(replay_always: bool) -> None:
    async def main(ctx: OrchestrationContext, rounds: int) -> Any:
        for _ in range(3):
            count = int(ctx.get_value("n") or "0")
            await ctx.schedule_activity("echo", count)
            ctx.set_value("n", str(count + 1))
        if rounds > 1:
            ctx.continue_as_new(rounds - 1)
        return ctx.get_value("n")

    world = world_of(main, echo)
    world.start("i", "main", 4)
    world.run(replay_always=replay_always)
    assert world.output("i") == "12"
    assert world.instance("i").execution_id == 4


def test_all_and_any() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        futures = [ctx.schedule_activity("echo", number) for number in range(5)]
        answers = await ctx.when_all(*reversed(futures))
        first = await ctx.when_any(ctx.timer(timedelta(hours=1)), ctx.schedule_activity("echo", "quick"))
        return [answers, list(first)]

    world = world_of(main, echo)
    world.start("i", "main")
    world.run(replay_always=True)
    assert world.output("i") == [[4, 3, 2, 1, 0], [1, "quick"]]


@pytest.mark.row("O27")
def test_2000_activities_complete() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        return sum(await ctx.when_all(*[ctx.schedule_activity("echo", number) for number in range(2_000)]))

    world = world_of(main, echo)
    world.start("i", "main")
    world.turns.step(1)
    tasks = list(world.due_activities(["echo"], 2_000))
    random.Random(4).shuffle(tasks)
    for task in tasks:
        world.send(
            "activity-completed",
            "i",
            {
                "incarnation": 0,
                "execution_id": 1,
                "event_id": task.event_id,
                "attempt": 1,
                "result": task.data["input"],
            },
        )
    world.restart()
    world.turns.step(1)
    assert world.output("i") == sum(range(2_000))


def test_a_timer_takes_recorded_time() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        before = ctx.now()
        await ctx.timer(timedelta(seconds=90))
        return (ctx.now() - before).total_seconds()

    world = world_of(main)
    world.start("i", "main")
    world.run(replay_always=True)
    assert 90 <= world.output("i") < 90.1


def test_retries_until_one_succeeds_and_a_failure_that_is_final() -> None:
    attempts: list[int] = []

    def flaky(ctx: Any, _: Any) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return "done"

    def hopeless(_: Any, __: Any) -> None:
        raise PermanentError("never")

    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        policy = RetryPolicy(attempts_max=5, delay_ms=1_000, factor=2)
        answer = await ctx.schedule_activity("flaky", retry=policy)
        try:
            await ctx.schedule_activity("hopeless", retry=policy)
        except ActivityError as error:
            return [answer, str(error), error.name]

    world = world_of(main, flaky, hopeless)
    world.start("i", "main")
    world.run()
    assert world.output("i") == ["done", "never", "hopeless"]
    assert attempts == [1, 2, 3]


def test_a_wait_that_lost_a_race_does_not_eat_the_event() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        index, _ = await ctx.when_any(ctx.wait_for_event("go"), ctx.schedule_activity("echo", 1))
        await ctx.timer(timedelta(seconds=5))
        return [index, await ctx.wait_for_event("go")]

    world = world_of(main, echo)
    world.start("i", "main")
    world.turns.step(1)
    world.activities.step(1)
    world.turns.step(1)
    world.raise_event("i", "go", "kept")
    world.run(replay_always=True)
    assert world.output("i") == [1, "kept"]


def test_events_before_the_first_turn_and_around_continue_as_new_come_once_in_order() -> None:
    async def main(ctx: OrchestrationContext, got: list[int]) -> Any:
        for _ in range(20):
            got.append(await ctx.wait_for_event("go"))
            if len(got) == 1_000:
                break
        else:
            ctx.continue_as_new(got)
        return got

    world = world_of(main)
    world.start("i", "main", [])
    chance = random.Random(7)
    sent = 0
    while world.instance("i").status == "Running":
        for _ in range(chance.randrange(60)):
            if sent < 1_000:
                world.raise_event("i", "go", sent)
                sent += 1
        world.step()
        if chance.random() < 0.3:
            world.restart()
    assert world.output("i") == list(range(1_000))
    assert world.instance("i").execution_id == 50


def test_a_storm_of_other_events_does_not_starve_a_turn() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        return await ctx.schedule_activity("echo", "through")

    world = world_of(main, echo)
    world.start("i", "main")
    for number in range(500):
        world.raise_event("i", "noise", number)
    world.run()
    assert world.output("i") == "through"


def test_a_cancel_can_be_tidied_up_after_or_ends_the_instance() -> None:
    async def tidy(ctx: OrchestrationContext, _: Any) -> Any:
        try:
            await ctx.wait_for_event("never")
        except OrchestrationCancelledError as error:
            await ctx.schedule_activity("echo", "undo")
            return f"tidied up: {error}"

    async def plain(ctx: OrchestrationContext, _: Any) -> Any:
        await ctx.wait_for_event("never")

    world = world_of(tidy, echo, plain=plain)
    for name in ("main", "plain"):
        world.start(name, name)
        world.run()
        world.send("cancel-requested", name, {"reason": "why"})
    world.run(replay_always=True)
    assert world.output("main") == "tidied up: why"
    failed = world.instance("plain")
    assert (failed.status, failed.failure) == ("Failed", "why")
    assert world.events("plain")[-1][2]["reason"] == "cancelled"


def test_children_answer_fail_and_are_refused() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        answers: list[Any] = [await ctx.sub_orchestration("kid", 2)]
        for child, id_ in (("bad", None), ("kid", "taken")):
            try:
                await ctx.sub_orchestration(child, 3, instance_id=id_)
            except ChildError as error:
                answers.append(str(error))
        return answers

    async def kid(ctx: OrchestrationContext, number: int) -> Any:
        return number * await ctx.schedule_activity("echo", 10)

    async def bad(ctx: OrchestrationContext, _: Any) -> Any:
        raise ValueError("no luck")

    world = world_of(main, echo, kid=kid, bad=bad)
    world.start("taken", "kid", 1)
    world.start("i", "main")
    world.run(replay_always=True)
    assert world.output("i") == [20, "no luck", "the child was not started: already-exists"]
    assert list(world.projection.rows("orchestration_outbox")) == []
    world.send("instance-deleted", "i", {})
    world.run()
    assert [row[0] for row in world.projection.rows("orchestration_instance")] == ["o:taken"]


def test_children_are_counted_by_the_worker_as_by_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the limit after a replay, the worker appends the failing turn itself: the fold has nothing to refuse."""
    monkeypatch.setattr("kvfold.schemas.turn_limits.ORCHESTRATION_CHILDREN_MAX", 2)

    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        for number in range(3):
            await ctx.sub_orchestration("kid", number)

    async def kid(ctx: OrchestrationContext, number: int) -> Any:
        return number

    world = world_of(main, kid=kid)
    world.start("i", "main")
    world.run(replay_always=True)
    assert world.instance("i").failure == "child count (3) exceeds limit (2)"
    statuses = {row[8] for row in world.projection.rows("decision")}
    assert statuses == {"applied"}


@pytest.mark.row("O10")
@pytest.mark.parametrize(
    ("first", "second", "expected", "found"),
    [
        (("set_value", "a", "1"), ("set_value", "a", "2"), "KeyValueSet", "KeyValueSet"),
        (("set_value", "a", "1"), ("set_value", "b", "1"), "key='a'", "key='b'"),
        (("set_value", "a", "1"), ("clear_value", "a"), "KeyValueSet", "KeyValueCleared"),
        (("set_value", "a", "1"), ("clear_all_values",), "KeyValueSet", "KeyValuesCleared"),
        (("set_value", "a", "1"), None, "KeyValueSet", "ActivityScheduled"),
        (None, ("set_value", "a", "1"), "ActivityScheduled", "KeyValueSet"),
    ],
)
def test_code_that_does_something_else_fails_the_instance(
    first: Any, second: Any, expected: str, found: str
) -> None:
    doing = [first]

    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        if doing[0] is not None:
            getattr(ctx, doing[0][0])(*doing[0][1:])
        await ctx.schedule_activity("echo", "x" * 100)
        ctx.continue_as_new()

    world = world_of(main, echo)
    world.start("i", "main")
    world.turns.step(1)
    world.activities.step(1)
    doing[0] = second
    world.restart()
    world.turns.step(1)
    row = world.instance("i")
    assert row.status == "Failed" and row.failure is not None
    assert row.failure.startswith("nondeterminism: the history has ")
    history, _, code = row.failure.partition(", the code did ")
    assert expected in history and found in code
    assert "xxxx" not in row.failure
    assert world.events("i")[-1][2]["reason"] == "nondeterminism"


@pytest.mark.row("O24")
def test_an_event_of_a_newer_version_is_skipped() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        ctx.set_value("a", "1")
        return await ctx.schedule_activity("echo", 5)

    world = world_of(main, echo)
    world.start("i", "main")
    world.turns.step(1)
    world.activities.step(1)
    history = world.projection.shared.tables["orchestration_event"]
    (key,) = [key for key, row in history.items() if row[3] == "KeyValueSet"]
    newer = json.dumps({"kind": "KeyValueMerged", "key": "a"})
    history[key] = (*history[key][:3], "KeyValueMerged", newer, *history[key][5:])
    world.restart()

    async def older(ctx: OrchestrationContext, _: Any) -> Any:
        return await ctx.schedule_activity("echo", 5)

    world.registry.orchestrations["main"] = older
    world.run()
    assert world.output("i") == 5


def test_awaiting_anything_foreign_is_an_error_that_says_so() -> None:
    class Foreign:
        def __await__(self) -> Any:
            yield "something"

    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        await Foreign()

    world = world_of(main)
    world.start("i", "main")
    world.run()
    failure = world.instance("i").failure
    assert failure is not None and failure.startswith("an orchestration awaits only what its context gives")


@pytest.mark.row("O18")
def test_a_turn_over_a_limit_fails_and_nothing_of_it_goes_out() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        ctx.set_value("kept", "from the turn before")
        await ctx.schedule_activity("echo", 1)
        ctx.set_value("big", "x" * 16_385)
        await ctx.schedule_activity("echo", 2)

    world = world_of(main, echo)
    world.start("i", "main")
    world.run()
    row = world.instance("i")
    assert row.failure == "KV value for key 'big' (16385 bytes) exceeds limit (16384 bytes)"
    assert world.snapshot("i") == {"kept": "from the turn before"}
    assert [kind for _, kind, _ in world.events("i")][-2:] == ["ActivityCompleted", "OrchestrationFailed"]
    assert world.appended[-1].type == "kvfold.orchestration.turn.v1"


def test_too_large_an_output_fails_the_instance() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        return "x" * (256 * 1024)

    world = world_of(main)
    world.start("i", "main")
    world.run()
    assert world.instance("i").failure == "output (262146 bytes) exceeds limit (262144 bytes)"


@pytest.mark.parametrize("where", ["value", "status", "input", "output", "error", "result", "activity error"])
def test_nul_fails_the_instance_and_never_keeps_it_running(where: str) -> None:
    def bad(_: Any, input: Any) -> Any:
        if where == "result":
            return "x\x00"
        raise PermanentError("x\x00")

    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        match where:
            case "value":
                ctx.set_value("a", "x\x00")
            case "status":
                ctx.set_custom_status("x\x00")
            case "input":
                await ctx.schedule_activity("bad", {"x\x00": 1})
            case "output":
                return "x\x00"
            case "error":
                raise ValueError("x\x00")
        await ctx.schedule_activity("bad")
        return None

    world = world_of(main, bad)
    world.start("i", "main")
    world.run(steps_max=20)
    failure = world.instance("i").failure
    assert failure is not None and ("NUL" in failure or failure.endswith("x\ufffd"))


def test_two_workers_run_every_turn_and_one_commits() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        for number in range(5):
            ctx.set_value("n", str(number))
            await ctx.schedule_activity("echo", number)
        return ctx.get_value("n")

    world = world_of(main, echo)
    other = World(world.registry)
    other.projection, other.log = world.projection, world.log
    world.start("i", "main")
    dropped = 0
    while world.instance("i").status == "Running":
        runnable = world.runnable(["main"], 1)
        turns = [worker.turns._turn(instance) for worker in (world, other) for instance in runnable]
        for worker, turn in zip((world, other), turns, strict=False):
            assert turn is not None
            outcome = worker.fold(_turn_mutation("o:i", turn))
            dropped += outcome.decision.code == "stale-turn"
        for worker in (world, other):
            worker.restart()
        world.activities.step(10)
    assert world.output("i") == "4"
    assert dropped == 5, "the last turn's loser finds the instance finished"


def _turn_mutation(scope: str, turn: Any) -> Any:
    from kvfold.producers.orchestration.messages import turn as turn_of

    return turn_of(scope, turn)


@pytest.mark.row("O2")
@pytest.mark.row("O4")
@pytest.mark.row("O7")
@pytest.mark.row("O26")
def test_typed_values_and_those_of_other_instances() -> None:
    async def other(ctx: OrchestrationContext, _: Any) -> Any:
        ctx.set_value_typed("list", [1, 2])
        ctx.set_value("text", "plain")
        with pytest.raises(Exception, match="cannot be stored as JSON"):
            ctx.set_value_typed("list", object())
        assert ctx.get_value_typed("list", list[int]) == [1, 2]
        with pytest.raises(Exception, match="is no"):
            ctx.get_value_typed("text", int)

    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        both = await ctx.get_values_from_instance("other", ["text", "none"])
        typed = await ctx.get_value_from_instance_typed("other", "list", list[int])
        absent = await ctx.get_value_from_instance("nobody", "text")
        try:
            await ctx.get_value_from_instance_typed("other", "text", int)
        except Exception as error:
            return [both, typed, absent, str(error).partition(":")[0]]

    world = world_of(main, other=other)
    world.start("other", "other")
    world.run()
    world.start("i", "main")
    world.run(replay_always=True)
    assert world.output("i") == [
        {"text": "plain", "none": None},
        [1, 2],
        None,
        "Typed deserialization error",
    ]


@pytest.mark.row("O25")
def test_activities_read_keys_and_leave_no_event() -> None:
    def peek(ctx: Any, key: str) -> Any:
        return ctx.client.get_value(ctx.instance_id, key)

    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        ctx.set_value("a", "1")
        seen = await ctx.schedule_activity("peek", "a")
        return [seen, await ctx.schedule_activity("peek", "none")]

    world = world_of(main, peek)
    world.start("i", "main")
    world.run()
    assert world.output("i") == ["1", None]
    assert [kind for _, kind, _ in world.events("i")].count("ActivityCompleted") == 2


@pytest.mark.row("O27")
@pytest.mark.parametrize("seed", range(20))
def test_a_worker_that_dies_anywhere_leaves_the_same_history(seed: int) -> None:
    async def main(ctx: OrchestrationContext, rounds: int) -> Any:
        count = int(ctx.get_value("n") or "0")
        await ctx.when_all(*[ctx.schedule_activity("echo", number) for number in range(3)])
        ctx.set_value("n", str(count + 1))
        await ctx.timer(timedelta(seconds=3))
        kid = await ctx.sub_orchestration("kid", count)
        if rounds > 1:
            ctx.continue_as_new(rounds - 1)
        return [ctx.get_value("n"), kid]

    async def kid(ctx: OrchestrationContext, number: int) -> Any:
        ctx.set_value("seen", str(number))
        return await ctx.schedule_activity("echo", number)

    def run(world: World) -> Any:
        return [
            world.output("i"),
            [(execution, kind) for execution, kind, _ in world.events("i")],
            world.snapshot("i"),
            sorted(row[0] for row in world.projection.rows("orchestration_instance")),
        ]

    calm = world_of(main, echo, kid=kid)
    calm.start("i", "main", 3)
    calm.run()
    stormy = world_of(main, echo, kid=kid)
    stormy.start("i", "main", 3)
    hits = stormy.run_with_crashes(random.Random(seed))
    assert sum(hits.values()) > 0
    assert run(stormy) == run(calm)
    assert list(stormy.projection.rows("orchestration_outbox")) == []


@pytest.mark.row("O18")
@pytest.mark.parametrize("at_the_door", [True, False])
def test_a_turn_that_no_log_accepts_fails_its_instance_and_not_the_others(
    at_the_door: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each input is within its limit, all of them are too much for a record; refused by the producer, or by the fold."""

    async def main(ctx: OrchestrationContext, count: int) -> Any:
        ctx.set_value("k", "v")
        tasks = [ctx.schedule_activity("echo", "x" * 250_000) for _ in range(count)]
        return len(await ctx.when_all(*tasks))

    world = world_of(main, echo)
    append = world.append

    def refusing(mutation: Any) -> Any:
        if len(mutation.body) > JSON_BODY_BYTES_MAX:
            raise InvalidError("the body is too large", code="too-large")
        return append(mutation)

    if at_the_door:
        monkeypatch.setattr(world, "append", refusing)
        world.restart()
    world.start("too-much", "main", 5)
    world.start("fine", "main", 2)
    world.run(steps_max=20)
    failed = world.instance("too-much")
    assert failed.status == "Failed" and failed.failure is not None
    assert "the turn is not accepted" in failed.failure and "too-large" in failed.failure
    assert world.snapshot("too-much") == {}
    assert [kind for _, kind, _ in world.events("too-much")] == ["OrchestrationFailed"]
    assert world.output("fine") == 2


@pytest.mark.row("O27")
def test_what_would_end_the_workers_thread_fails_the_instance() -> None:
    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        await ctx.schedule_activity("echo", 1)
        raise SystemExit("enough")

    world = world_of(main, echo)
    world.start("i", "main")
    world.run(replay_always=True)
    assert (world.instance("i").status, world.instance("i").failure) == ("Failed", "enough")


@pytest.mark.row("O27")
def test_what_code_does_when_it_is_dropped_goes_nowhere() -> None:
    dropped: list[str] = []

    async def main(ctx: OrchestrationContext, _: Any) -> Any:
        try:
            return await ctx.wait_for_event("e")
        finally:
            ctx.set_value("k", "v")
            dropped.append("finally")
            await ctx.timer(timedelta(seconds=1))

    world = world_of(main)
    world.start("i", "main")
    world.run()
    world.turns.close()
    assert dropped == ["finally"]
    assert world.snapshot("i") == {} and world.events("i") == []
    world.raise_event("i", "e", 7)
    world.run()
    assert world.output("i") == 7


@pytest.mark.row("O27")
def test_a_mistake_of_ours_in_one_turn_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(ctx: OrchestrationContext, input: Any) -> Any:
        return await ctx.schedule_activity("echo", input)

    world = world_of(main, echo)
    for number in range(3):
        world.start(f"i{number}", "main", number)
    history = world.history

    def broken(instance: Any) -> Any:
        if instance.instance_id == "i1":
            raise ZeroDivisionError
        return history(instance)

    monkeypatch.setattr(world, "history", broken)
    world.step()
    world.turns.close()  # so that the second turns replay
    world.step()
    assert [world.instance(f"i{number}").status for number in range(3)] == [
        "Completed",
        "Running",
        "Completed",
    ]
    assert world.instance("i1").scope in world.leases, "it waits until its lease has run out"
    monkeypatch.undo()
    world.restart()
    world.run()
    assert world.output("i1") == 1
