"""`kvfold history`, `--as-of`, `kvfold snapshot`: looking back, and moving a scope to another installation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from e2e.stack import DevProcess
from kvfold.deploy.http_client import KvfoldClient
from kvfold.deploy.snapshots import read_head, restore
from kvfold.deploy.stopping import StopRequest
from kvfold.schemas.errors import KvfoldError
from support.cli import run_command

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

HERE, THERE = "here", "there"


@pytest.fixture(scope="module")
def devs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, DevProcess]]:
    """Two installations, each with a log and a database of its own."""
    with (
        DevProcess(tmp_path_factory.mktemp(HERE)) as here,
        DevProcess(tmp_path_factory.mktemp(THERE)) as there,
    ):
        here.wait_until_serving()
        there.wait_until_serving()
        yield {HERE: here, THERE: there}


def kvfold(dev: DevProcess, *arguments: str) -> Result:
    return run_command(*arguments, environment={"KVFOLD_URL": dev.url})


def ok(dev: DevProcess, *arguments: str) -> str:
    result = kvfold(dev, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def put(dev: DevProcess, scope: str, key: str, value: str, *more: str) -> dict[str, Any]:
    decision: dict[str, Any] = json.loads(ok(dev, "put", scope, key, value, "--json", *more))
    return decision


@pytest.mark.row("X8", "X9")
def test_history_and_the_past_of_a_key(devs: dict[str, DevProcess]) -> None:
    dev = devs[HERE]
    first = put(dev, "d:back", "greeting", "hello")
    put(dev, "d:back", "greeting", "good day")
    refused = kvfold(dev, "put", "d:back", "greeting", "x", "--expect", "version:9")
    assert refused.exit_code == 1
    ok(dev, "delete", "d:back", "greeting")
    ok(dev, "put", "d:back", "other", "o")

    assert ok(dev, "get", "d:back", "greeting", "--as-of", first["position"]) == "hello"
    assert ok(dev, "list", "d:back", "--as-of", first["position"]) == "greeting\n"
    assert ok(dev, "list", "d:back") == "other\n"
    entries = [json.loads(line) for line in ok(dev, "history", "d:back", "greeting", "--json").splitlines()]
    assert [(entry["status"], entry["version"]) for entry in entries] == [
        *(("applied", 2), ("conflict", 2), ("applied", 2), ("applied", 1)),
    ]
    # Each entry's time is one of the past: just before it, what was before it.
    assert ok(dev, "get", "d:back", "greeting", "--as-of", entries[-1]["time"]) in ("hello", "good day")
    shown = ok(dev, "history", "d:back")
    assert len(shown.splitlines()) == 5
    assert "deployment.put user greeting  conflict, version-conflict, version 2" in shown
    gone = kvfold(dev, "get", "d:back", "greeting", "--as-of", "2999-01-01T00:00:00Z")
    assert gone.exit_code == 1 and "as-of-in-future" in gone.output


def entries(dev: DevProcess, scope: str, family: str) -> list[dict[str, Any]]:
    """What a scope holds, without the places that differ between installations."""
    answer = httpx.get(f"{dev.url}/v1/snapshots/{family}/{scope}", params={"sealed": "true"}, trust_env=False)
    lines = [json.loads(line) for line in answer.text.splitlines()[1:]]
    return [{name: line[name] for name in line if name not in ("position", "time")} for line in lines]


@pytest.mark.row("X11")
def test_a_deployment_moves_with_its_versions_and_goes_on(
    devs: dict[str, DevProcess], tmp_path: Path
) -> None:
    here, there = devs[HERE], devs[THERE]
    for number in range(3):
        put(here, "d:moved", "a/ü", f"v{number}")
    put(here, "d:moved", "empty", "")
    put(here, "d:moved", "elsewhere", "x", "--namespace", "other")
    ok(here, "put", "d:moved", "gone", "x")
    ok(here, "delete", "d:moved", "gone")
    file = tmp_path / "moved.ndjson"
    assert "saved 3 entries" in ok(here, "snapshot", "save", "d:moved", str(file))
    assert list(tmp_path.iterdir()) == [file]
    assert kvfold(here, "snapshot", "save", "d:moved", str(file)).exit_code == 2

    assert "restored 3 entries" in ok(there, "snapshot", "restore", str(file))
    assert entries(there, "d:moved", "deployment") == entries(here, "d:moved", "deployment")
    assert "3 of them were there" in ok(there, "snapshot", "restore", str(file)), "repeating it is harmless"
    assert put(there, "d:moved", "a/ü", "more", "--expect", "version:3")["version"] == 4

    again = kvfold(there, "snapshot", "restore", str(file))
    assert again.exit_code == 1
    assert "d:moved is not empty" in again.output and "not-empty" in again.output
    assert ok(there, "get", "d:moved", "a/ü") == "more"
    # An undeploy empties it: the same file may come once more, though its records came before.
    httpx.delete(f"{there.url}/deployments/moved", trust_env=False).raise_for_status()
    assert json.loads(ok(there, "snapshot", "restore", str(file), "--json"))["restored"] == 3
    assert put(there, "d:moved", "a/ü", "later")["version"] == 5, "above all that was swept"


@pytest.mark.row("X11")
def test_a_capsule_moves_and_a_stopped_restore_goes_on(devs: dict[str, DevProcess], tmp_path: Path) -> None:
    here, there = devs[HERE], devs[THERE]
    scope = "c:alice:capsule:moved"
    lines = [
        json.dumps(
            {
                "specversion": "1.0",
                "id": f"0190e000-0000-7000-8000-{number:012d}",
                "type": "kvfold.capsule.set.v1",
                "source": "/test",
                "partitionkey": scope,
                "subject": f"k{number:04d}",
                "datacontenttype": "text/plain",
                "data": f"value {number}",
            }
        )
        for number in range(900)
    ]
    events = tmp_path / "events.ndjson"
    events.write_text("\n".join(lines))
    ok(here, "emit", str(events))
    file = tmp_path / "capsule.ndjson"
    ok(here, "snapshot", "save", scope, str(file))
    head = read_head(file)
    assert (head.scope, head.entries) == (scope, 900)

    stop = StopRequest()

    def stop_after_some(step: str, done: int, total: int | None) -> None:
        assert (step, total) == ("restored", 900)
        if done == 300 and not stop.is_set():
            stop.set()

    with KvfoldClient(there.url) as client:
        restored = restore(client, head, file, stop, stop_after_some, patience_s=20)
        assert 300 <= restored.applied < 900, "the batch under way is waited for, and no other is sent"
        went_on = restore(client, head, file, StopRequest(), lambda *_: None, patience_s=20)
    assert (went_on.present, went_on.applied) == (restored.applied, 900 - restored.applied)
    assert entries(there, scope, "capsule") == entries(here, scope, "capsule")
    usage = httpx.get(f"{there.url}/v1/capsules/alice/moved/usage", trust_env=False).json()
    assert usage == httpx.get(f"{here.url}/v1/capsules/alice/moved/usage", trust_env=False).json()


@pytest.mark.row("X11")
def test_what_cannot_be_moved_says_why(devs: dict[str, DevProcess], tmp_path: Path) -> None:
    here = devs[HERE]
    instance = kvfold(here, "snapshot", "save", "o:order-17", str(tmp_path / "o.ndjson"))
    assert instance.exit_code == 1 and "instances cannot be moved in this release" in instance.output

    put(here, "c:bob:capsule:small", "key", "0123456789")
    file = tmp_path / "small.ndjson"
    ok(here, "snapshot", "save", "c:bob:capsule:small", str(file))
    cut = tmp_path / "cut.ndjson"
    cut.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    refused = kvfold(here, "snapshot", "restore", str(cut))
    assert refused.exit_code == 1 and "it was cut off" in refused.output
    other = tmp_path / "other.ndjson"
    other.write_text("{}\n")
    assert "does not say that it is a snapshot" in kvfold(here, "snapshot", "restore", str(other)).output
    # Where the quota is too small, the entry that is too much is named.
    quota = json.dumps(
        {
            "specversion": "1.0",
            "id": "0190e100-0000-7000-8000-000000000001",
            "type": "kvfold.capsule.quota-set.v1",
            "source": "/test",
            "partitionkey": "c:bob:capsule:small",
            "data": {"bytes_max": 5},
        }
    )
    events = tmp_path / "events.ndjson"
    events.write_text(quota)
    ok(devs[THERE], "emit", str(events))
    too_much = kvfold(devs[THERE], "snapshot", "restore", str(file))
    assert too_much.exit_code == 1 and "line 2: 13 bytes would be above the quota of 5" in too_much.output


def test_a_stopped_save_leaves_nothing(devs: dict[str, DevProcess], tmp_path: Path) -> None:
    from kvfold.deploy.snapshots import save
    from kvfold.schemas.types import Family

    put(devs[HERE], "d:stopped", "k", "v")
    stop = StopRequest()
    stop.set()
    with KvfoldClient(devs[HERE].url) as client:
        saved = save(
            client, "d:stopped", Family.DEPLOYMENT, tmp_path / "f", stop, lambda *_: None, as_of=None
        )
        assert saved is None and not list(tmp_path.iterdir())
        with pytest.raises(KvfoldError, match="future"):
            save(
                client,
                "d:stopped",
                Family.DEPLOYMENT,
                tmp_path / "f",
                StopRequest(),
                lambda *_: None,
                as_of="2999-01-01T00:00:00Z",
            )
    assert not list(tmp_path.iterdir())
