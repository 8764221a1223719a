"""`kvfold rebuild|generations|swap|drop` beside a running `kvfold dev`, as docs/replay.md shows them (row X6)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import Result

from e2e.stack import DevProcess
from support.cli import run_command

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
DOCUMENT = Path(__file__).parents[2] / "docs" / "replay.md"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("dev"), environment={"KVFOLD_PARTITIONS": "3"}) as running:
        running.wait_until_serving()
        yield running


def operate(dev: DevProcess, *arguments: str) -> Result:
    """A command with no more than the data folder to go by."""
    return run_command(*arguments, environment={"KVFOLD_DATA": str(dev.data), "KVFOLD_POSTGRES": None})


def states(dev: DevProcess) -> dict[int, str]:
    found = operate(dev, "generations", "--json")
    assert found.exit_code == 0, found.output
    generations = [json.loads(line) for line in found.stdout.splitlines()]
    assert httpx.get(f"{dev.url}/v1/generations").json()["generations"] == generations
    return {each["id"]: each["state"] for each in generations}


@pytest.mark.row("X6")
def test_the_procedure_of_the_document(dev: DevProcess) -> None:
    key = f"{dev.url}/deployments/demo/kv/user/a"
    assert httpx.put(key, content=b"kept").status_code == 201
    block = re.search(r"```sh\n(kvfold rebuild --workers 2.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert block is not None
    commands = [line.partition("#")[0].split()[1:] for line in block[1].splitlines()]
    seen = []
    for command in commands:
        done = operate(dev, *command)
        assert done.exit_code == 0, done.output
        seen.append(states(dev))
        assert httpx.get(key).content == b"kept"
    assert seen == [
        {1: "serving", 2: "verified"},
        {1: "serving", 2: "verified"},
        {1: "retired", 2: "serving"},
        {1: "serving", 2: "retired"},
        {1: "retired", 2: "serving"},
        {2: "serving"},
    ]
    assert operate(dev, "drop", "2").exit_code == 1
    assert "generation 2 serves" in operate(dev, "drop", "2").stderr
    assert operate(dev, "swap").exit_code == 1
    assert operate(dev, "swap", "7").exit_code == 1
    assert operate(dev, "rebuild", "--cancel").exit_code == 1


def test_a_position_to_stop_at(dev: DevProcess) -> None:
    assert operate(dev, "rebuild", "--to-position", "0:x").exit_code == 1
    assert operate(dev, "rebuild", "--to-position", "0:99").exit_code == 1
    assert operate(dev, "rebuild", "--cancel", "--rate", "5").exit_code == 2


def test_without_a_database_it_says_where_it_looked(tmp_path: Path) -> None:
    told = run_command("rebuild", environment={"KVFOLD_DATA": str(tmp_path), "KVFOLD_POSTGRES": None})
    assert told.exit_code == 2
    assert f"there is no {tmp_path / 'dsn'}" in told.stderr
