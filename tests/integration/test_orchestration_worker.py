"""Workers over a real Postgres with a projector: whole orchestrations, and two workers that share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from kvfold.producers.orchestration import OrchestrationClient
from kvfold.producers.orchestration.context import OrchestrationContext
from kvfold.producers.orchestration.observing import Observer
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.worker import Worker, WorkerSettings
from kvfold.producers.producer import Producer
from kvfold.reads.executor import Reader, read_pool
from kvfold.reads.waiting import Waiter
from support.kvfold_process import wait_until
from support.projectors import postgres_log, running_projector

__all__: list[str] = []

pytestmark = pytest.mark.postgres

registry = Registry()


@registry.orchestration
async def counting(ctx: OrchestrationContext, rounds: int) -> Any:
    count = int(ctx.get_value("n") or "0")
    await ctx.schedule_activity("echo", count)
    ctx.set_value("n", str(count + 1))
    await ctx.timer(timedelta(milliseconds=30))
    kid = await ctx.sub_orchestration("kid", count)
    if rounds > 1:
        ctx.continue_as_new(rounds - 1)
    return [ctx.get_value("n"), kid]


@registry.orchestration
async def kid(ctx: OrchestrationContext, number: int) -> Any:
    return await ctx.schedule_activity("echo", number)


@registry.orchestration
async def busy(ctx: OrchestrationContext, _: Any) -> Any:
    for number in range(5):
        ctx.set_value(f"k{number}", str(number))
    await ctx.schedule_activity("echo", 1)
    return await ctx.schedule_activity("echo", 2)


@registry.activity
def echo(_: Any, input: Any) -> Any:
    return input


@pytest.fixture
def client(postgres_dsn: str) -> Iterator[OrchestrationClient]:
    """A client of a stack with a projector and two workers."""
    with ExitStack() as stack:
        log = stack.enter_context(postgres_log(postgres_dsn))
        stack.enter_context(running_projector(log, postgres_dsn))
        pool = stack.enter_context(read_pool(postgres_dsn, size_max=8))
        reader = Reader(pool)
        stack.callback(reader.close)
        waiter = Waiter(postgres_dsn)
        stack.callback(waiter.close)
        producer = Producer(log, waiter, source="/tests")
        found = OrchestrationClient(producer, reader)
        for name in ("w1", "w2"):
            worker = Worker(registry, producer, found, postgres_dsn, WorkerSettings(name), Observer())
            worker.start()
            stack.callback(worker.stop)
        yield found


def ended(client: OrchestrationClient, instance_id: str) -> Any:
    def status() -> Any:
        view = client.instance(instance_id)
        assert view is not None
        return view if view.status != "Running" else None

    return wait_until(status, what=lambda: str(client.instance(instance_id)), timeout_s=60)


@pytest.mark.row("O27")
def test_activities_timers_children_and_continue_as_new(client: OrchestrationClient) -> None:
    client.start("i", "counting", 5, mode="runtime")
    view = ended(client, "i")
    assert (view.status, view.output) == ("Completed", '["5",4]')
    assert client.get_value("i", "n") == "5"


def test_many_at_once(client: OrchestrationClient) -> None:
    import time

    began = time.monotonic()
    for number in range(100):
        client.start(f"i{number}", "busy", mode="runtime")
    for number in range(100):
        assert ended(client, f"i{number}").output == "2"
    print("took", time.monotonic() - began)
    began = time.monotonic()
    for number in range(20):
        client.start(f"j{number}", "busy", mode="runtime")
        assert ended(client, f"j{number}").output == "2"
    print("each alone", (time.monotonic() - began) / 20)
