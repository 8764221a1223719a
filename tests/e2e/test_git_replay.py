"""A real history as workload: every commit of a git repository, replayed while processes are killed.

Whatever is killed, afterwards the list of keys is `git ls-tree` and each value `git cat-file`, every mutation was applied
exactly once, and none was a conflict. As of the position of any commit, they are what git has at that commit.
"""

from __future__ import annotations

import importlib.util
import json
import random
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from e2e.stack import DevProcess, Stack, running_stack
from e2e.synthetic_repository import REPORTED_PATHS, make_repository
from support.kvfold_process import clean_environment, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "git_replay.py"
DEPLOYMENT = "git"
SCOPE = f"d:{DEPLOYMENT}"
SEED = 20_261_130
COMMITS = 200
KILLS = 3
LOOKED_BACK_AT = 20
OWN_COMMITS_MAX = 60


def load_example() -> ModuleType:
    """The example as a module: it is no part of the package."""
    spec = importlib.util.spec_from_file_location("git_replay", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("git_replay", module)  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("git") / "synthetic.git", seed=SEED, commits=COMMITS)


class At:
    """Does something just before certain writes are sent, while others of the same commit are on their way."""

    def __init__(self, numbers: Iterable[int], action: Callable[[], None]) -> None:
        self._due = set(numbers)
        self._action = action

    def __call__(self, number: int) -> None:
        if number in self._due:
            self._action()
            self._due.remove(number)

    def is_done(self) -> bool:
        """Whether it was done each time."""
        return not self._due


def replay_all(example: ModuleType, stack: Stack, history: Path, disturbance: At) -> None:
    """Replays everything and compares: entries with git, outcomes with what was asked for."""
    with example.GitRepository(history) as repository, example.Deployment(stack.url, DEPLOYMENT) as target:
        commits = repository.commits()
        moments: list[tuple[str, str, dict[bytes, str]]] = []

        def remember(report: Any) -> None:
            moments.append((commits[report.commits - 1], target.position, dict(report.skipped)))

        report = example.replay(repository, target, commits, before_write=disturbance, after_commit=remember)
        assert disturbance.is_done(), "the history is shorter than the draw of the disturbances"
        assert example.differences(repository, target, "HEAD", report.skipped) == []
        assert report.skipped.keys() == set(REPORTED_PATHS)
        assert report.commits == len(commits) >= COMMITS
        outcomes = stack.outcomes(SCOPE)
        assert outcomes.pop("repeat", 0) <= target.repeated
        assert outcomes == {"applied": report.mutations}
        written = [moment for moment in moments if moment[1]]
        for commit, position, skipped in random.Random(SEED).sample(written, LOOKED_BACK_AT):
            assert example.differences(repository, target, commit, skipped, as_of=position) == [], commit


def kill_projectors(example: ModuleType, stack: Stack, history: Path) -> None:
    """Replays while whoever holds the scope is killed and started again, some times over.

    The first one killed stays away until the other has taken over; the later ones start again at once, and may win.
    """
    killed: list[str] = []

    def kill_holder() -> None:
        killed.append(stack.holder_of(SCOPE))
        stack.projectors[killed[-1]].kill()
        if len(killed) == 1:
            wait_until(
                lambda: stack.holder_of(SCOPE) != killed[0], what=lambda: f"nobody took over from {killed[0]}"
            )
        stack.projectors[killed[-1]].start()

    replay_all(example, stack, history, At(drawn_writes(SEED), kill_holder))
    taken_from_others = [
        event
        for owner, process in stack.projectors.items()
        for event in process.events("partition claimed", all_starts=True)
        if event["previous_owner"] not in (None, owner)
    ]
    assert taken_from_others, f"none of the kills of {killed} made another projector take over"
    assert set(stack.stop().values()) == {0}


def drawn_writes(seed: int) -> list[int]:
    """The numbers of the writes before which something happens."""
    return sorted(random.Random(seed).sample(range(50, 450), KILLS))


@pytest.mark.row("X3")
@pytest.mark.row("X13")
def test_on_the_embedded_log_with_projectors_killed(
    example: ModuleType, history: Path, postgres_dsn: str, tmp_path: Path
) -> None:
    with running_stack(postgres_dsn, tmp_path, owners=("left", "right")) as stack:
        kill_projectors(example, stack, history)


@pytest.mark.kafka
@pytest.mark.row("X1")
@pytest.mark.row("X3")
def test_on_kafka_with_projectors_killed(
    example: ModuleType, history: Path, postgres_dsn: str, kafka_bootstrap: str, tmp_path: Path
) -> None:
    settings = kafka_settings(kafka_bootstrap)
    with running_stack(postgres_dsn, tmp_path, owners=("left", "right"), log_settings=settings) as stack:
        kill_projectors(example, stack, history)


@pytest.mark.kafka
@pytest.mark.row("X4")
@pytest.mark.row("D17")
def test_on_kafka_with_the_gateway_killed(
    example: ModuleType, history: Path, postgres_dsn: str, kafka_bootstrap: str, tmp_path: Path
) -> None:
    settings = kafka_settings(kafka_bootstrap)
    with running_stack(postgres_dsn, tmp_path, owners=("left", "right"), log_settings=settings) as stack:

        def kill_and_start() -> None:
            assert stack.gateway is not None
            stack.gateway.kill()
            stack.start_gateway()

        replay_all(example, stack, history, At(drawn_writes(SEED + 1), kill_and_start))
        assert set(stack.stop().values()) == {0}


@pytest.mark.row("D5")
def test_the_script_replays_this_project(own_dev: DevProcess) -> None:
    shallow_or_whole = subprocess.run(
        ["git", "-C", str(ROOT), "rev-list", "--count", "HEAD"], capture_output=True, text=True, check=False
    )
    if shallow_or_whole.returncode != 0:
        pytest.skip("the project is no git repository here")
    own_dev.start()
    url = own_dev.wait_until_serving()
    command = [sys.executable, str(SCRIPT), "--url", url, "--limit", str(OWN_COMMITS_MAX)]
    for _ in range(2):  # repeating the command repeats its mutations, which changes nothing
        run = subprocess.run(
            command, env=clean_environment({}), capture_output=True, text=True, timeout=300, check=False
        )
        assert run.returncode == 0, run.stderr
        summary = json.loads(run.stdout)
        assert summary["differences"] == []
        assert summary["commits"] == min(OWN_COMMITS_MAX, int(shallow_or_whole.stdout))
    assert own_dev.terminate() == 0


def kafka_settings(bootstrap: str) -> dict[str, str]:
    """A topic of the test's own, made as a user makes it."""
    settings = {
        "KVFOLD_KAFKA": bootstrap,
        "KVFOLD_TOPIC": f"git-{secrets.token_hex(6)}",
        "KVFOLD_PARTITIONS": "4",
    }
    subprocess.run(
        [sys.executable, "-m", "kvfold.deploy.cli", "topic", "create"],
        env=clean_environment(settings),
        check=True,
        capture_output=True,
        timeout=60,
    )
    return settings
