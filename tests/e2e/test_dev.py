"""`kvfold dev`: started, stopped, killed, started again; what was acknowledged is there."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from e2e.stack import DevProcess
from support.kvfold_process import clean_environment, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def entry(process: DevProcess, key: str) -> str:
    return f"{process.url}/deployments/dep/kv/user/{key}"


def put(process: DevProcess, key: str, value: bytes) -> httpx.Response:
    return httpx.put(entry(process, key), content=value, timeout=30, trust_env=False)


def get(process: DevProcess, key: str) -> bytes | None:
    answer = httpx.get(entry(process, key), timeout=30, trust_env=False)
    return answer.content if answer.status_code == 200 else None


@pytest.mark.row("X13")
def test_it_says_what_runs_where_and_stops_in_order(own_dev: DevProcess) -> None:
    own_dev.start()
    url = own_dev.wait_until_serving()
    own_dev.wait_for_text("Ctrl-C stops it")
    said = own_dev.text()
    assert f"HTTP      {url}" in said
    assert f"embedded, in {own_dev.data}" in said
    assert f"curl -X PUT --data-binary 'hello' {url}/deployments/demo/kv/user/greeting" in said
    assert own_dev.wait_for_event("server started")["host"] == "127.0.0.1"
    assert own_dev.terminate() == 0
    assert "kvfold has stopped; what was written is kept." in own_dev.text()
    assert own_dev.postgres_pid() is None
    assert "Traceback" not in own_dev.text()


@pytest.mark.row("X13")
def test_a_second_start_goes_on_with_what_was_written(own_dev: DevProcess) -> None:
    own_dev.start()
    own_dev.wait_until_serving()
    assert put(own_dev, "kept", b"before").status_code == 201
    own_dev.signal(signal.SIGINT)
    assert own_dev.wait() == 0
    own_dev.start()
    own_dev.wait_until_serving()
    assert get(own_dev, "kept") == b"before"
    assert put(own_dev, "other", b"after").status_code == 201
    assert own_dev.terminate() == 0


@pytest.mark.row("D17")
@pytest.mark.row("X13")
def test_a_kill_in_the_middle_of_writes_loses_nothing_acknowledged(own_dev: DevProcess) -> None:
    own_dev.start()
    own_dev.wait_until_serving()
    acknowledged: dict[str, bytes] = {}
    killed = threading.Event()

    def write(worker: int) -> None:
        with httpx.Client(timeout=30, trust_env=False) as client:
            for number in range(100_000):
                key, value = f"w{worker}-{number}", secrets.token_bytes(200)
                try:
                    answer = client.put(entry(own_dev, key), content=value)
                except httpx.TransportError:
                    assert killed.is_set()
                    return
                if answer.status_code == 201:
                    acknowledged[key] = value

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    wait_until(lambda: len(acknowledged) >= 200, what=own_dev.text)
    killed.set()
    own_dev.kill()
    for worker in workers:
        worker.join()
    own_dev.start()
    own_dev.wait_until_serving()
    assert {key: get(own_dev, key) for key in acknowledged} == acknowledged
    assert own_dev.terminate() == 0


def in_home(own_dev: DevProcess) -> bool:
    return (own_dev.data / "owner.lock").exists()


def in_initdb(own_dev: DevProcess) -> bool:
    return any(own_dev.data.glob("pgdata*"))


def in_postgres(own_dev: DevProcess) -> bool:
    return own_dev.postgres_pid() is not None


def in_projector(own_dev: DevProcess) -> bool:
    return any(own_dev.events("projector started"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize("moment", [in_home, in_initdb, in_postgres, in_projector])
def test_a_signal_during_the_start_stops_it_in_order(
    own_dev: DevProcess, moment: Callable[[DevProcess], bool], number: signal.Signals
) -> None:
    own_dev.start()
    wait_until(lambda: moment(own_dev), what=own_dev.text)
    own_dev.signal(number)
    assert own_dev.wait() == 0, own_dev.text()
    assert own_dev.postgres_pid() is None
    assert "Traceback" not in own_dev.text()
    own_dev.start()
    own_dev.wait_until_serving()
    assert put(own_dev, "k", b"v").status_code == 201
    assert own_dev.terminate() == 0


def test_a_port_that_is_taken_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with DevProcess(tmp_path, environment={"KVFOLD_PORT": port}) as process:
            assert process.wait() == 1
            assert f"cannot listen on 127.0.0.1:{port}" in process.text()
            assert "KVFOLD_PORT" in process.text()
            assert not process.data.exists()


def test_a_folder_in_use_is_said(own_dev: DevProcess) -> None:
    own_dev.start()
    own_dev.wait_until_serving()
    second = subprocess.run(
        [sys.executable, "-m", "kvfold.deploy.cli", "dev"],
        env=clean_environment({"KVFOLD_DATA": str(own_dev.data), "KVFOLD_PORT": "0"}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert f"process {own_dev.pid} already runs the PostgreSQL server in {own_dev.data}" in second.stderr
    assert put(own_dev, "k", b"v").status_code == 201


def test_an_embedded_postgres_that_dies_is_started_again(own_dev: DevProcess) -> None:
    own_dev.start()
    own_dev.wait_until_serving()
    assert put(own_dev, "kept", b"v").status_code == 201
    pid = own_dev.postgres_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    own_dev.wait_for_event("embedded postgres died")
    wait_until(lambda: _written(own_dev), what=own_dev.text)
    assert get(own_dev, "kept") == b"v"
    assert own_dev.terminate() == 0


def _written(process: DevProcess) -> bool:
    return put(process, secrets.token_hex(4), b"v").status_code == 201


@pytest.mark.kafka
@pytest.mark.row("X1")
def test_with_kafka_it_makes_the_topic_and_goes_on_in_it(kafka_bootstrap: str, tmp_path: Path) -> None:
    settings = {"KVFOLD_KAFKA": kafka_bootstrap, "KVFOLD_TOPIC": f"dev-{secrets.token_hex(6)}"}
    with DevProcess(tmp_path, environment=settings) as process:
        process.wait_until_serving()
        process.wait_for_event("topic created", topic=settings["KVFOLD_TOPIC"])
        assert put(process, "kept", b"v").status_code == 201
        assert process.terminate() == 0
        process.start()
        process.wait_until_serving()
        assert list(process.events("topic created")) == []
        assert get(process, "kept") == b"v"
        assert process.terminate() == 0
