"""docs/orchestrations.md as a newcomer uses it: its application under `kvfold worker`, its client, and a worker killed."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from e2e.snippets import run_snippet
from e2e.stack import DevProcess, worker_process
from kvfold.producers.client import Client
from kvfold.producers.orchestration import OrchestrationClient
from support.kvfold_process import wait_until

__all__: list[str] = []

GUIDE = Path(__file__).parent.parent.parent / "docs" / "orchestrations.md"
COUNTING = """
from datetime import timedelta
from kvfold.producers.orchestration import Registry

registry = Registry()

@registry.orchestration
async def counting(ctx, rounds):
    for _ in range(3):
        count = int(ctx.get_value("n") or "0")
        await ctx.schedule_activity("echo", count)
        await ctx.timer(timedelta(milliseconds=20))
        ctx.set_value("n", str(count + 1))
    if rounds > 1:
        ctx.continue_as_new(rounds - 1)
    return ctx.get_value("n")

@registry.activity
def echo(ctx, input):
    return input
"""


@pytest.mark.row("O27")
def test_the_guides_application_and_client(dev: DevProcess, tmp_path: Path) -> None:
    application, *clients = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(clients) == 2
    (tmp_path / "orders.py").write_text(application)
    with worker_process(dev, tmp_path, "orders:registry", "w1") as process:
        process.wait_for_event("worker started")
        for client in clients:
            run_snippet(dev, "python", client, tmp_path)
        (shell,) = re.findall(r"```sh\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
        told = run_snippet(dev, "sh", shell.replace("curl ", "curl --fail-with-body -sS "), tmp_path)
        assert process.terminate() == 0
    assert "HTTP/1.1 201 Created" in told and '"output":"charged 5"' in told and "KeyValueSet" in told
    logged = process.text()
    assert "kv.set" in logged and "approved" not in logged, "keys and lengths are logged, values are not"


@pytest.mark.slow
@pytest.mark.row("O27")
def test_workers_that_are_killed_leave_every_instance_to_the_others(dev: DevProcess, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    settings = {"KVFOLD_POSTGRES": (dev.data / "dsn").read_text("utf-8")}
    with (
        Client.from_env(settings, source="/tests") as kvfold,
        worker_process(dev, tmp_path, "counting:registry", "left") as left,
        worker_process(dev, tmp_path, "counting:registry", "right") as right,
    ):
        client = kvfold.orchestration()
        for process in (left, right):
            process.wait_for_event("worker started")
        for number in range(20):
            client.start(f"c{number}", "counting", 3, mode="runtime")
        for killed in (left, right, left):
            before = _finished(client)
            killed.kill()
            killed.start()
            wait_until(
                partial(_more_than, client, min(before, 19)),
                what=lambda: "no instance has ended since the kill",
                timeout_s=90,
            )
        for number in range(20):
            view = client.wait(f"c{number}", timeout_s=90)
            assert view is not None
            assert (view.status, view.output, view.execution_id) == ("Completed", '"9"', 3)


def _finished(client: OrchestrationClient) -> int:
    views = [client.instance(f"c{number}") for number in range(20)]
    return sum(1 for view in views if view is not None and view.status != "Running")


def _more_than(client: OrchestrationClient, count: int) -> bool:
    return _finished(client) > count
