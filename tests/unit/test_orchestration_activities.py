"""Attempts of activities that hang, fall silent, or break: on threads, with a clock that is set."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from kvfold.producers.orchestration import activities as module
from kvfold.producers.orchestration.activities import Activities
from kvfold.producers.orchestration.activity import ActivityContext
from kvfold.producers.orchestration.context import OrchestrationContext
from kvfold.producers.orchestration.errors import ActivityError
from kvfold.producers.orchestration.observing import Observer
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.tracing import Traces
from kvfold.schemas.orchestration import RetryPolicy
from support.orchestration_world import World

__all__: list[str] = []

WAIT_S = 30.0  # a bound against hanging, never a measure


class Stage:
    """A world whose activities run on threads, hang until they are let go, and are timed by `now_s`."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.now_s = 1_000.0
        self.executor = ThreadPoolExecutor(4)
        self.activities = Activities(
            world.registry,
            world,
            world.append,
            client=world,
            executor=self.executor,
            limit=4,
            observer=Observer(),
            traces=Traces(),
        )
        monkeypatch.setattr(module, "monotonic", lambda: self.now_s)

    def begin(self) -> None:
        """Begins what is due, and waits until it runs."""
        for _ in range(self.activities.step(10)):
            assert started.acquire(timeout=WAIT_S)

    def finish(self) -> None:
        """Lets every attempt go to its end."""
        for let_go in held:
            let_go.set()
        self.executor.shutdown(wait=True)


started = threading.Semaphore(0)
held: list[threading.Event] = []
contexts: list[ActivityContext] = []


def hang(ctx: ActivityContext, input: Any) -> Any:
    """Ends when the test says so."""
    let_go = threading.Event()
    contexts.append(ctx)
    held.append(let_go)
    started.release()
    assert let_go.wait(WAIT_S)
    return f"attempt {ctx.attempt}"


async def main(ctx: OrchestrationContext, timeouts: dict[str, int]) -> Any:
    given = {name: timedelta(milliseconds=time_ms) for name, time_ms in timeouts.items()}
    retry = RetryPolicy(attempts_max=2, delay_ms=1)
    try:
        return await ctx.schedule_activity("hang", retry=retry, **given)
    except ActivityError as error:
        return str(error)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    registry = Registry()
    registry.orchestration(main)
    registry.activity(hang)
    held.clear()
    contexts.clear()
    found = Stage(World(registry), monkeypatch)
    yield found
    found.finish()


@pytest.mark.row("O27")
def test_an_attempt_that_takes_too_long_is_tried_again_and_its_late_answer_is_dropped(stage: Stage) -> None:
    world = stage.world
    world.start("i", "main", {"attempt_timeout": 500})
    world.turns.step(1)
    stage.begin()
    stage.now_s += 0.5
    assert stage.activities.expire() == 0
    stage.now_s += 0.01
    assert stage.activities.expire() == 1
    assert stage.activities.expire() == 0, "once"
    assert world.skip_time()
    stage.begin()
    assert stage.activities.running == 2
    appended = len(world.appended)
    held[0].set()  # the late one, which nobody waits for any more
    held[1].set()
    stage.finish()
    assert len(world.appended) == appended + 1
    world.turns.step(1)
    assert world.output("i") == "attempt 2"


@pytest.mark.row("O27")
def test_an_attempt_that_gives_no_heartbeat_has_failed(stage: Stage) -> None:
    world = stage.world
    world.start("i", "main", {"heartbeat_timeout": 500})
    world.turns.step(1)
    stage.begin()
    for _ in range(5):
        stage.now_s += 0.4
        contexts[0].heartbeat()
        assert stage.activities.expire() == 0
    stage.now_s += 0.51
    assert stage.activities.expire() == 1
    assert world.skip_time()
    stage.begin()
    stage.now_s += 0.51
    assert stage.activities.expire() == 1
    world.turns.step(1)
    assert "no heartbeat for 500 ms" in world.output("i")


@pytest.mark.row("O27")
def test_leases_are_kept_for_attempts_that_are_not_given_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = stage.world
    renewed: list[list[str]] = []
    monkeypatch.setattr(world, "renew", lambda leases: renewed.append(list(leases)))
    world.start("i", "main", {"attempt_timeout": 500})
    world.turns.step(1)
    stage.begin()
    stage.activities.renew()
    assert [len(leases) for leases in renewed] == [1]
    stage.now_s += 1
    stage.activities.expire()
    stage.activities.renew()
    assert len(renewed) == 1


@pytest.mark.row("O27")
def test_what_would_end_a_thread_is_a_failed_attempt() -> None:
    def leave(_: ActivityContext, input: Any) -> Any:
        raise SystemExit("no more")

    async def give_up(_: ActivityContext, input: Any) -> Any:
        raise asyncio.CancelledError

    async def slow(_: ActivityContext, input: Any) -> Any:
        raise TimeoutError("the bank did not answer")

    async def endless(_: ActivityContext, input: Any) -> Any:
        await asyncio.Event().wait()

    async def calling(ctx: OrchestrationContext, name: str) -> Any:
        timeout = timedelta(milliseconds=1) if name == "endless" else None
        try:
            await ctx.schedule_activity(name, attempt_timeout=timeout)
        except ActivityError as error:
            return str(error)

    registry = Registry()
    registry.orchestration(calling)
    for function in (leave, give_up, slow, endless):
        registry.activity(function)
    world = World(registry)
    for name in ("leave", "give_up", "slow", "endless"):
        world.start(name, "calling", name)
    world.run()
    assert "no more" in world.output("leave")
    assert "CancelledError" in world.output("give_up")
    assert "the bank did not answer" in world.output("slow")
    assert "took longer than 1 ms" in world.output("endless")
