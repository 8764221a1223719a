"""`kvfold instances …` against a `kvfold dev` that runs an application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from click.testing import Result

from e2e.stack import DevProcess
from support.cli import run_command
from support.scripted_server import LOST, Asked, Reply, ScriptedServer

__all__: list[str] = []

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.row("O27")]

APPLICATION = """
from kvfold.producers.orchestration import Registry

registry = Registry()

@registry.orchestration
async def approval(ctx, input):
    ctx.set_value("state", "waiting")
    return [input, await ctx.wait_for_event("approved")]

@registry.orchestration
async def rounds(ctx, left):
    ctx.set_value(f"round {left}", "")
    if left > 1:
        ctx.continue_as_new(left - 1)
    return "done"

@registry.orchestration
async def broken(ctx, input):
    raise ValueError("it is broken")
"""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    folder = tmp_path_factory.mktemp("dev")
    (folder / "commands_app.py").write_text(APPLICATION)
    options = ("--app", "commands_app:registry")
    with DevProcess(folder, *options, environment={"PYTHONPATH": str(folder)}) as process:
        process.wait_until_serving()
        yield process


def instances(dev: DevProcess, *arguments: str, stdin: bytes | None = None) -> Result:
    return run_command("instances", *arguments, environment={"KVFOLD_URL": dev.url}, stdin=stdin)


def told(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def ids(result: Result) -> list[object]:
    return [item["instance_id"] for item in told(result)]


@pytest.mark.parametrize("name", ["plain", "a/b", "%2F", "..", "a?b#c", "שלום 🚀", " spaces ", "-dash"])
def test_a_life_from_start_to_end(dev: DevProcess, name: str) -> None:
    instance_id = f"{name}{uuid4()}" if name != ".." else "../.."
    begun = instances(dev, "start", "--input", '{"n": [1, "é"]}', "--", instance_id, "approval")
    assert begun.exit_code == 0 and begun.output.startswith(f"{instance_id} is started, at ")
    taken = instances(dev, "start", "--", instance_id, "approval")
    assert taken.exit_code == 1 and "already-exists" in taken.stderr
    late = instances(dev, "wait", "--timeout", "0", "--", instance_id)
    assert late.exit_code == 3 and "goes on" in late.stderr
    raised = instances(dev, "raise", "--data", "-", "--", instance_id, "approved", stdin=b'"by ada"')
    assert raised.exit_code == 0, raised.output
    ended = instances(dev, "wait", "--", instance_id)
    assert (ended.exit_code, json.loads(ended.output)) == (0, [{"n": [1, "é"]}, "by ada"])
    assert instances(dev, "get", "--", instance_id, "state").output == "waiting\n"
    assert instances(dev, "kv", "--", instance_id).output == '1  state  "waiting"\n'
    (shown,) = told(instances(dev, "show", "--json", "--", instance_id))
    assert (shown["status"], shown["kv"]) == ("Completed", {"state": {"value": "waiting", "execution_id": 1}})
    for_people = instances(dev, "show", "--", instance_id).output
    assert "status          Completed\n" in for_people and "key             1  state" in for_people
    again = instances(dev, "raise", "--", instance_id, "approved")
    assert again.exit_code == 1 and "the instance has ended (finished)" in again.stderr
    assert instances(dev, "delete", "--", instance_id).exit_code == 0
    assert instances(dev, "show", "--", instance_id).exit_code == 1


def test_a_failure_and_a_cancel_are_told_by_the_exit_code(dev: DevProcess) -> None:
    broken, cancelled = f"b{uuid4()}", f"c{uuid4()}"
    failed = instances(dev, "start", broken, "broken", "--wait", "60")
    assert failed.exit_code == 1 and f"{broken} failed: it is broken" in failed.stderr
    assert instances(dev, "start", cancelled, "approval").exit_code == 0
    assert instances(dev, "cancel", cancelled, "--reason", "sold out").exit_code == 0
    ended = instances(dev, "wait", cancelled, "--json")
    assert ended.exit_code == 1 and json.loads(ended.output.splitlines()[0])["failure"] == "sold out"


def test_executions_are_pruned(dev: DevProcess) -> None:
    name = f"r{uuid4()}"
    assert instances(dev, "start", name, "rounds", "--input", "5", "--wait", "60").output == '"done"\n'
    pruned = instances(dev, "prune", name, "--execution", "1", "--execution", "3")
    assert pruned.output.startswith("2 executions removed, at ")
    (more,) = told(instances(dev, "prune", name, "--execution", "2", "--keep-values", "--json"))
    assert more["removed"] == 1
    assert [item["key"] for item in told(instances(dev, "kv", name, "--json"))] == [
        "round 1",
        "round 2",
        "round 4",
    ]
    current = instances(dev, "prune", name, "--execution", "5")
    assert current.exit_code == 1 and "never pruned (current-execution)" in current.stderr
    early = instances(dev, "prune", name, "--before", "4")
    assert early.exit_code == 1 and "kvfold format raise" in early.stderr
    assert instances(dev, "prune", name).exit_code == 2


def test_instances_are_listed(dev: DevProcess) -> None:
    prefix = f"l{uuid4()}"
    for number in range(3):
        assert instances(dev, "start", f"{prefix}-{number}", "approval").exit_code == 0
    assert instances(dev, "start", f"{prefix}-x", "rounds", "--input", "1", "--wait", "60").exit_code == 0
    everyone = [f"{prefix}-{end}" for end in ("0", "1", "2", "x")]
    assert ids(instances(dev, "list", "--prefix", prefix, "--json")) == everyone
    assert ids(instances(dev, "list", "--prefix", prefix, "--limit", "2", "--json")) == everyone[:2]
    running = instances(dev, "list", "--prefix", prefix, "--status", "Running", "--json")
    assert ids(running) == everyone[:3]
    lines = instances(dev, "list", "--prefix", prefix).output.splitlines()
    assert [line.split()[-1] for line in lines] == everyone
    assert [line.split()[0] for line in lines] == ["Running"] * 3 + ["Completed"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show",), "Missing argument 'ID'"),
        (("show", ""), "the instance id has 0 bytes"),
        (("show", "a\n"), "control character"),
        (("start", "i", "n", "--input", "hello"), "a text is written with quotes"),
        (("start", "i", "n", "--input", "[1,"), "it is no JSON"),
        (("start", "i", "n", "--mode", "other"), "'other' is not one of"),
        (("list", "--status", "Ended"), "'Ended' is not one of"),
        (("prune", "i", "--execution", "0"), "--execution"),
    ],
)
def test_what_is_wrong_is_a_matter_of_usage(arguments: tuple[str, ...], said: str) -> None:
    result = run_command("instances", *arguments, environment={"KVFOLD_URL": "http://127.0.0.1:1"})
    assert result.exit_code == 2 and said in result.stderr


@pytest.mark.parametrize(
    "arguments", [("show", "nobody"), ("wait", "nobody"), ("kv", "nobody"), ("get", "nobody", "k")]
)
def test_an_unknown_instance_ends_at_once_with_1(dev: DevProcess, arguments: tuple[str, ...]) -> None:
    result = instances(dev, *arguments)
    assert result.exit_code == 1 and "there is no" in result.stderr


def test_a_start_that_got_no_answer_can_be_repeated_with_its_id(dev: DevProcess) -> None:
    with ScriptedServer(lambda asked: LOST) as away:
        lost = run_command("instances", "start", "i", "n", environment={"KVFOLD_URL": away.url})
    assert lost.exit_code == 3
    _, _, identity = lost.stderr.partition("repeat it with --id ")
    assert away.asked[0].headers["ce-id"] == identity.strip()
    instance_id = f"again{uuid4()}"
    first = told(instances(dev, "start", instance_id, "approval", "--id", identity.strip(), "--json"))
    assert told(instances(dev, "start", instance_id, "approval", "--id", identity.strip(), "--json")) == first


def test_a_long_wait_asks_again() -> None:
    waits = []

    def answer(asked: Asked) -> Reply:
        waits.append(asked.target)
        status = "Running" if len(waits) < 3 else "Completed"
        found = {"instance_id": "i", "status": status, "output": "late", "failure": None}
        return Reply(200, {"content-type": "application/json"}, json.dumps(found).encode())

    with ScriptedServer(answer) as server:
        result = run_command("instances", "wait", "i", environment={"KVFOLD_URL": server.url})
    assert (result.exit_code, result.output) == (0, '"late"\n')
    assert waits == ["/v1/instances/i?wait=20.000"] * 3
