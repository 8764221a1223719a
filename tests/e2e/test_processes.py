"""`kvfold projector`, `gateway` and `query-api` as processes: servers that are away, wrong settings, orderly ends."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from e2e.stack import running_stack
from support.kvfold_process import KvfoldProcess, clean_environment, wait_until

if TYPE_CHECKING:
    from kvfold.deploy.embedded_postgres import EmbeddedPostgres
    from support.broker import Broker

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

LONG_RUNNING = ["projector", "gateway", "query-api"]


def settings(dsn: str, **more: str) -> dict[str, str]:
    return {"KVFOLD_POSTGRES": dsn, "KVFOLD_PORT": "0", "KVFOLD_TELEMETRY_PORT": "0", **more}


def process(command: str, folder: Path, environment: Mapping[str, str]) -> KvfoldProcess:
    return KvfoldProcess(command, environment=environment, output=folder / f"{command}.log")


def ended(command: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A process that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "kvfold.deploy.cli", command],
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["projector", "gateway"])
def test_it_waits_for_postgres_and_begins_when_it_is_there(
    command: str, own_postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    dsn = own_postgres_server.dsn
    own_postgres_server.stop()
    with process(command, tmp_path, settings(dsn)) as waiting:
        first = waiting.wait_for_event("start delayed")
        assert first["waiting_for"] == "log"
        wait_until(lambda: len(list(waiting.events("start delayed"))) > 1, what=waiting.text)
        own_postgres_server.restart()
        waiting.wait_for_event("projector ready" if command == "projector" else "server started")
        assert waiting.terminate() == 0
        assert "Traceback" not in waiting.text()


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["projector", "gateway"])
def test_it_waits_for_kafka_and_begins_when_it_is_there(
    command: str, own_kafka_broker: Broker, postgres_dsn: str, tmp_path: Path
) -> None:
    environment = settings(postgres_dsn, KVFOLD_KAFKA=own_kafka_broker.bootstrap, KVFOLD_PARTITIONS="2")
    created = subprocess.run(
        [sys.executable, "-m", "kvfold.deploy.cli", "topic", "create"],
        env=clean_environment(environment),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert created.returncode == 0, created.stderr
    own_kafka_broker.stop()
    with process(command, tmp_path, environment) as waiting:
        waiting.wait_for_event("start delayed", waiting_for="log")
        own_kafka_broker.restart()
        waiting.wait_for_event("projector ready" if command == "projector" else "server started")
        assert waiting.terminate() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", ["projector", "gateway"])
def test_a_stop_while_it_waits_is_an_orderly_end(
    command: str, number: signal.Signals, tmp_path: Path
) -> None:
    nobody = f"host={tmp_path} dbname=none"
    with process(command, tmp_path, settings(nobody)) as waiting:
        waiting.wait_for_event("start delayed")
        waiting.signal(number)
        assert waiting.wait() == 0
        assert "Traceback" not in waiting.text()


@pytest.mark.parametrize("command", LONG_RUNNING)
def test_without_postgres_it_says_what_it_needs(command: str) -> None:
    result = ended(command, {})
    assert result.returncode == 2
    assert "KVFOLD_POSTGRES is not set" in result.stderr


@pytest.mark.parametrize("command", ["projector", "gateway"])
def test_a_log_with_another_partition_count_is_refused(
    command: str, postgres_dsn: str, tmp_path: Path
) -> None:
    with process("projector", tmp_path, settings(postgres_dsn, KVFOLD_PARTITIONS="3")) as projector:
        projector.wait_for_event("projector ready")
        assert projector.terminate() == 0
    result = ended(command, settings(postgres_dsn, KVFOLD_PARTITIONS="4"))
    assert result.returncode == 1
    assert "set KVFOLD_PARTITIONS=3" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["projector", "gateway"])
def test_a_topic_that_is_not_there_is_refused(command: str, postgres_dsn: str, kafka_bootstrap: str) -> None:
    topic = f"none-{secrets.token_hex(6)}"
    result = ended(command, settings(postgres_dsn, KVFOLD_KAFKA=kafka_bootstrap, KVFOLD_TOPIC=topic))
    assert result.returncode == 1
    assert f"topic {topic} does not exist: make it with `kvfold topic create`" in result.stderr


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["projector", "gateway"])
def test_another_log_than_the_one_that_was_folded_is_refused(
    command: str, postgres_dsn: str, kafka_bootstrap: str, tmp_path: Path
) -> None:
    with process("projector", tmp_path, settings(postgres_dsn)) as projector:
        projector.wait_for_event("projector ready")
        assert projector.terminate() == 0
    other = settings(postgres_dsn, KVFOLD_KAFKA=kafka_bootstrap, KVFOLD_TOPIC=f"other-{secrets.token_hex(6)}")
    subprocess.run(
        [sys.executable, "-m", "kvfold.deploy.cli", "topic", "create"],
        env=clean_environment(other),
        check=True,
        capture_output=True,
        timeout=60,
    )
    result = ended(command, other)
    assert result.returncode == 1
    assert "folded from" in result.stderr


@pytest.mark.parametrize(
    ("command", "variable"),
    [("projector", "KVFOLD_TELEMETRY_PORT"), ("gateway", "KVFOLD_PORT"), ("query-api", "KVFOLD_PORT")],
)
def test_a_port_that_is_taken_is_said(command: str, variable: str, postgres_dsn: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = ended(command, settings(postgres_dsn) | {variable: port})
    assert result.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert variable in result.stderr


@pytest.mark.row("X5")
def test_reads_of_another_process_see_a_write_by_its_position(postgres_dsn: str, tmp_path: Path) -> None:
    with (
        running_stack(postgres_dsn, tmp_path, owners=("one",)) as stack,
        process("query-api", tmp_path, settings(postgres_dsn)) as reads,
    ):
        url = reads.wait_until_serving()
        path = f"/deployments/{uuid.uuid4()}/kv/user/a%2Fb//.."
        with httpx.Client(trust_env=False, timeout=30) as client:
            for version in range(1, 20):
                expected = {"X-Object-Version": str(version - 1)}
                written = client.put(stack.url + path, content=str(version), headers=expected)
                assert written.headers["X-Object-Version"] == str(version)
                position = {"X-Kvfold-Min-Position": written.headers["X-Kvfold-Position"]}
                read = client.get(url + path, headers=position)
                assert (read.content, read.headers["X-Object-Version"]) == (
                    str(version).encode(),
                    str(version),
                )
            assert client.put(url + path, content=b"x").status_code == 405  # reads alone
            assert client.get(url + "/v1/projector").json()["partitions"][0]["owner"] == "one"
        assert reads.terminate() == 0
        assert set(stack.stop().values()) == {0}


def test_a_projector_tells_of_itself(postgres_dsn: str, tmp_path: Path) -> None:
    with process("projector", tmp_path, settings(postgres_dsn)) as projector:
        port = projector.wait_for_event("telemetry served")["port"]
        projector.wait_for_event("projector ready")
        projector.wait_until_ready("127.0.0.1", port)
        base = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{base}/healthz", trust_env=False).status_code == 200
        metrics = httpx.get(f"{base}/metrics", trust_env=False).text
        assert 'kvfold_lag_records{partition="0"} 0.0' in metrics
        assert projector.terminate() == 0


def test_a_gateway_is_ready_only_when_what_was_in_the_log_is_folded(
    postgres_dsn: str, tmp_path: Path
) -> None:
    with running_stack(postgres_dsn, tmp_path, owners=("one",)) as stack:
        path = f"/deployments/{uuid.uuid4()}/kv/user/k"
        assert httpx.put(stack.url + path, content=b"v", trust_env=False, timeout=30).status_code == 201
        stack.projectors["one"].pause()
        events = "/v1/mutations"
        event = {
            "ce-specversion": "1.0",
            "ce-type": "kvfold.deployment.put.v1",
            "ce-source": "/test",
            "ce-id": str(uuid.uuid4()),
            "ce-partitionkey": "d:later",
            "ce-kvnamespace": "user",
            "ce-subject": "k",
        }
        appended = httpx.post(stack.url + events, content=b"v", headers=event, trust_env=False, timeout=30)
        assert appended.status_code == 202
        assert stack.gateway is not None
        assert stack.gateway.terminate() == 0
        again = process("gateway", tmp_path, settings(postgres_dsn))
        with again:
            started = again.wait_for_event("server started")
            base = f"http://127.0.0.1:{started['port']}"
            not_yet = httpx.get(f"{base}/readyz", trust_env=False, timeout=30)
            assert (not_yet.status_code, not_yet.json()["code"]) == (503, "not-up-to-position")
            assert httpx.get(f"{base}/healthz", trust_env=False, timeout=30).status_code == 200
            stack.projectors["one"].resume()
            again.wait_until_ready("127.0.0.1", started["port"])
            assert again.terminate() == 0


def test_emit_is_stopped_by_ctrl_c_in_order() -> None:
    read, write = os.pipe()
    emitting = subprocess.Popen(
        [sys.executable, "-m", "kvfold.deploy.cli", "emit", "-"],
        env=clean_environment({"KVFOLD_URL": "http://127.0.0.1:1"}),
        stdin=read,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(read)
    os.write(write, b"no event\n")
    assert emitting.stderr is not None
    try:
        assert "line 1: invalid" in emitting.stderr.readline()
        emitting.send_signal(signal.SIGINT)
        _, said = emitting.communicate(timeout=60)
    finally:
        os.close(write)
        emitting.kill()
        emitting.communicate()
    assert emitting.returncode == 1
    assert "stopped after line 1 (1 invalid); sending the same file again is safe" in said
