"""`kvfold dev --app`: one command for everything, an application's orchestrations included."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.stack import DevProcess
from kvfold.producers.client import Client
from support.cli import run_command
from support.kvfold_process import wait_until

__all__: list[str] = []

APPLICATION = """
from kvfold.producers.orchestration import Registry

registry = Registry()

@registry.orchestration
async def order(ctx, amount):
    receipt = await ctx.schedule_activity("charge", amount)
    ctx.set_value("state", "waiting")
    approval = await ctx.wait_for_event("approved")
    return [receipt, approval]

@registry.activity
def charge(ctx, amount):
    return f"charged {amount}"
"""


@pytest.mark.row("O27")
def test_an_application_runs_in_it_and_goes_on_after_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    options = ("--app", "shop:registry")
    with DevProcess(tmp_path, *options, environment={"PYTHONPATH": str(tmp_path)}) as dev:
        dev.wait_until_serving()
        wait_until(lambda: "worker    runs order" in dev.text(), what=dev.text)
        settings = {"KVFOLD_POSTGRES": (dev.data / "dsn").read_text("utf-8")}
        with Client.from_env(settings, source="/tests") as kvfold:
            kvfold.orchestration().start("order-1", "order", 5)
            assert kvfold.orchestration().wait_for_value("order-1", "state", 60) == "waiting"
        assert dev.terminate() == 0
        assert "worker stopped" in dev.text(), "in good order"
        dev.start()
        dev.wait_until_serving()
        settings = {"KVFOLD_POSTGRES": (dev.data / "dsn").read_text("utf-8")}
        with Client.from_env(settings, source="/tests") as kvfold:
            kvfold.orchestration().raise_event("order-1", "approved", "by ada")
            view = kvfold.orchestration().wait("order-1", 60)
        assert view is not None and (view.status, view.output) == ("Completed", '["charged 5","by ada"]')


@pytest.mark.parametrize("command", ["dev", "worker"])
@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("shop", "accepted is MODULE:REGISTRY"),
        ("no_such_shop:registry", "No module named 'no_such_shop'"),
        ("json:registry", "has no attribute registry"),
        ("json:loads", "it is a function, and no Registry"),
    ],
)
def test_a_wrong_application_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, app: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_command(command, "--app", app)
    assert result.exit_code == 2 and said in result.stderr
    assert list(tmp_path.iterdir()) == []
