"""`kvfold bench`: it runs, says what it measured, cleans up, and judges by its targets. Nothing here is timed."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient

from kvfold.deploy.bench import command, floors, http_load
from kvfold.deploy.bench.result import Result, Round, Spec, in_series
from support.kvfold_process import clean_environment

__all__: list[str] = []

_BENCH = [sys.executable, "-m", "kvfold.deploy.cli", "bench"]
_KEYS = {"bench", "figure", "unit", "floor", "ratio", "target"}
_MORE = Spec("more", "things/s", target=0.6, more_is_better=True)
_LESS = Spec("less", "ms", target=1.6, more_is_better=False)


def test_medians_are_of_the_rounds() -> None:
    rounds = [Round(10.0, 20.0), Round(30.0, 30.0), Round(5.0, 50.0)]
    result = Result.of(_MORE, rounds)
    # 0.5, 1.0 and 0.1: the ratio is a round's own, not 10 / 30.
    assert (result.figure, result.floor, result.ratio) == (10.0, 30.0, 0.5)
    assert result.line() == {
        "bench": "more",
        "figure": 10.0,
        "unit": "things/s",
        "floor": 30.0,
        "ratio": 0.5,
        "target": 0.6,
    }


@pytest.mark.parametrize(
    ("spec", "ratio", "meets"),
    [
        (_MORE, 0.59, False),
        (_MORE, 0.6, True),
        (_MORE, 0.7, True),
        (_LESS, 1.61, False),
        (_LESS, 1.6, True),
        (_LESS, 1.0, True),
    ],
)
def test_a_target_is_the_least_or_the_most_that_is_good_enough(spec: Spec, ratio: float, meets: bool) -> None:
    assert Result(spec, figure=ratio, floor=1.0, ratio=ratio).meets_target() is meets


@pytest.mark.parametrize(("target", "code"), [(0.5, 0), (1_000.0, 1)])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_check_fails_below_a_target(
    target: float, code: int, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = Spec("projector", "mutations/s", target=target, more_is_better=True)
    measured = Result(spec, figure=6_000.0, floor=10_000.0, ratio=0.6)
    monkeypatch.setattr(command, "_run", lambda names, sizes: iter([measured]))
    checked = CliRunner().invoke(command.bench, ["projector", "--check", *options])
    assert checked.exit_code == code
    assert "projector" in checked.stdout and "0.6" in checked.stdout
    assert CliRunner().invoke(command.bench, ["projector", *options]).exit_code == 0


def test_rates_in_series() -> None:
    assert in_series(20_000.0, 20_000.0) == pytest.approx(10_000.0)
    assert in_series(30_000.0, 60_000.0) == pytest.approx(20_000.0)


@pytest.mark.parametrize("module", [floors, http_load])
def test_a_floor_imports_nothing_of_kvfold(module: object) -> None:
    path = Path(str(module.__file__))  # type: ignore[attr-defined]
    imported = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module))
    assert imported
    assert not {name for name in imported if name.split(".")[0] == "kvfold"}


def test_without_a_broker_it_says_what_is_missing() -> None:
    done = subprocess.run(_BENCH, env=clean_environment({}), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "KVFOLD_KAFKA" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.postgres
def test_a_quick_run_prints_a_line_a_bench_and_leaves_nothing(
    kafka_bootstrap: str, postgres_admin_dsn: str
) -> None:
    environment = clean_environment({"KVFOLD_KAFKA": kafka_bootstrap, "KVFOLD_POSTGRES": postgres_admin_dsn})
    done = subprocess.run(
        [*_BENCH, "--quick", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=1_200,
    )
    assert done.returncode == 0
    if "KVFOLD_TEST_FIGURES" in os.environ:
        Path(os.environ["KVFOLD_TEST_FIGURES"]).write_text(done.stdout, "utf-8")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["bench"] for line in lines] == list(command._NAMES)
    for line in lines:
        assert line.keys() == _KEYS
        assert line["figure"] > 0 and line["floor"] > 0 and line["target"] > 0
        # Ratios of rounds, so only near the ratio of the medians.
        assert 0.1 < line["ratio"] / (line["figure"] / line["floor"]) < 10
    assert _leftovers(kafka_bootstrap, postgres_admin_dsn) == []


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(
    number: signal.Signals, kafka_bootstrap: str, postgres_admin_dsn: str
) -> None:
    environment = clean_environment({"KVFOLD_KAFKA": kafka_bootstrap, "KVFOLD_POSTGRES": postgres_admin_dsn})
    codes: list[int] = []
    # On a busy machine the signal may come when the last round is over: such a run proves nothing, and is made again.
    while 1 not in codes and len(codes) < 3:
        codes.append(_interrupted(environment, number))
        assert _leftovers(kafka_bootstrap, postgres_admin_dsn) == []
    assert codes[-1] == 1, codes


def _interrupted(environment: dict[str, str], number: signal.Signals) -> int:
    """The exit code of a run that is sent the signal after its first round."""
    process = subprocess.Popen(
        [*_BENCH, "projector", "--quick"], env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process.stderr as said:
        next(line for line in said if "round 1" in line)
        process.send_signal(number)
        said.read()
    return process.wait(120)


def _leftovers(bootstrap: str, dsn: str) -> list[str]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        topics = [topic for topic in admin.list_topics() if topic.startswith("kvfold.bench.")]
    finally:
        admin.close()
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'kvfold_bench_%'")
        return topics + [row[0] for row in rows]
