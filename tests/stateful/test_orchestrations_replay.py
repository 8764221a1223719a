"""Generated orchestrations do the same without replay, replayed at every turn, and with workers that die anywhere."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvfold.producers.orchestration import OrchestrationContext, Registry, RetryPolicy
from support.orchestration_world import World

__all__: list[str] = []

KEYS = st.sampled_from("abc")
EVENTS = st.sampled_from(["go", "stop"])
SMALL = st.integers(1, 3)
STEP = st.one_of(
    st.tuples(st.just("set"), KEYS, st.sampled_from(["", "1", "é"])),
    st.tuples(st.just("count"), KEYS),
    st.tuples(st.just("clear"), KEYS),
    st.just(("clear_all",)),
    st.tuples(st.just("guid"), KEYS),
    st.tuples(st.just("status"), st.sampled_from([None, "busy"])),
    st.tuples(st.just("activities"), SMALL),
    st.tuples(st.just("flaky"), SMALL),
    st.tuples(st.just("timer"), SMALL),
    st.tuples(st.just("event"), EVENTS),
    st.just(("race",)),
    st.tuples(st.just("event_race"), EVENTS),
)
EXECUTIONS = st.lists(st.lists(STEP, max_size=7), min_size=1, max_size=3)

registry = Registry()


@registry.activity
def echo(_: Any, input: Any) -> Any:
    return input


@registry.activity
def flaky(ctx: Any, attempts: int) -> int:
    if ctx.attempt < attempts:
        raise ValueError("not yet")
    return attempts


@registry.orchestration
async def interpret(ctx: OrchestrationContext, left: list[Any]) -> Any:
    """Does the steps of the first execution; the others are its successors'."""
    answers = [await do(ctx, *step) for step in left[0]]
    if len(left) > 1:
        ctx.continue_as_new(left[1:])
    return answers


async def do(ctx: OrchestrationContext, what: str, *of: Any) -> Any:
    if what in ("set", "count", "clear", "clear_all", "guid", "status"):
        return do_at_once(ctx, what, *of)
    match what:
        case "activities":
            return await ctx.when_all(*[ctx.schedule_activity("echo", number) for number in range(of[0])])
        case "flaky":
            retry = RetryPolicy(attempts_max=3, delay_ms=1_000)
            return await ctx.schedule_activity("flaky", of[0], retry=retry)
        case "timer":
            return await ctx.timer(timedelta(seconds=of[0]))
        case "event":
            return await ctx.wait_for_event(of[0])
        case "race":
            # The timer that loses is still awaited by nobody when the execution ends.
            lost = ctx.timer(timedelta(days=1))
            return list(await ctx.when_any(lost, ctx.schedule_activity("echo", "won")))
        case "event_race":
            return list(await ctx.when_any(ctx.timer(timedelta(days=1)), ctx.wait_for_event(of[0])))
    raise AssertionError(what)


def do_at_once(ctx: OrchestrationContext, what: str, *of: Any) -> Any:
    match what:
        case "set":
            ctx.set_value(of[0], of[1])
        case "count":
            text = ctx.get_value(of[0])
            ctx.set_value(of[0], str(int(text) + 1) if text and text.isdigit() else "0")
            return text
        case "clear":
            ctx.clear_value(of[0])
        case "clear_all":
            ctx.clear_all_values()
        case "guid":
            ctx.set_value(of[0], str(ctx.new_guid()))
        case "status":
            ctx.set_custom_status(of[0])
    return None


def begun(executions: list[list[Any]]) -> World:
    """An instance for which every event that it will wait for has been raised before its first turn."""
    world = World(registry)
    world.start("i", "interpret", executions)
    waits = [step for execution in executions for step in execution if step[0] in ("event", "event_race")]
    for number, (_, name) in enumerate(waits):
        world.raise_event("i", name, number)
    return world


def result(world: World) -> Any:
    """All that there is of the instance, but for the times at which it happened."""
    history = [
        (execution, kind, {name: value for name, value in data.items() if name != "due_ms"})
        for execution, kind, data in world.events("i")
    ]
    assert list(world.projection.rows("orchestration_task")) == []
    assert list(world.projection.rows("orchestration_inbox")) == []
    return world.output("i"), history, world.snapshot("i"), world.instance("i").custom_status


@pytest.mark.row("O27")
@settings(max_examples=60, deadline=None)
@given(executions=EXECUTIONS, seed=st.integers(0, 2**32))
def test_replays_and_crashes_change_nothing(executions: list[list[Any]], seed: int) -> None:
    calm = begun(executions)
    calm.run()
    replayed = begun(executions)
    replayed.run(replay_always=True)
    stormy = begun(executions)
    stormy.run_with_crashes(random.Random(seed))
    wanted = result(calm)
    assert result(replayed) == wanted
    assert result(stormy) == wanted
