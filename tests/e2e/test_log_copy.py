"""`kvfold log copy`: an embedded log becomes a topic, and projectors simply continue."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path

import httpx
import psycopg
import pytest

from e2e.stack import DevProcess
from kvfold.deploy.log_move import MOVED_SCHEMA, move_log
from kvfold.log.copy import copy_log
from kvfold.log.kafka import KafkaLog
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog
from kvfold.producers.producer import Producer
from kvfold.schemas.errors import LogMisconfiguredError, LogUnavailableError
from kvfold.schemas.mutation import Mutation
from support.kvfold_process import KvfoldProcess, clean_environment, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

PARTITIONS = 3


@pytest.fixture
def topic(kafka_bootstrap: str) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=kafka_bootstrap,
        topic=f"moved-{secrets.token_hex(6)}",
        partition_count=PARTITIONS,
        delivery_timeout_ms=30_000,
    )


@pytest.fixture
def embedded(postgres_dsn: str) -> Iterator[PostgresLog]:
    log = PostgresLog.open(postgres_dsn, partition_count=PARTITIONS)
    yield log
    log.close()


def append(log: Log, *, begin: int, end: int) -> None:
    """Puts `key-N` for each number into one of ten deployments."""
    producer = Producer(log, source="/test")
    pending = [
        producer.send(
            Mutation(
                "kvfold.deployment.put.v1",
                f"d:{number % 10}",
                "",
                f"key-{number}",
                "user",
                body=f"value-{number}".encode(),
            )
        )[1]
        for number in range(begin, end)
    ]
    for position in pending:
        position.result(30)


def settings(dsn: str, topic: KafkaSettings | None = None) -> dict[str, str]:
    kafka = {} if topic is None else {"KVFOLD_KAFKA": topic.bootstrap_servers, "KVFOLD_TOPIC": topic.topic}
    return {
        "KVFOLD_POSTGRES": dsn,
        "KVFOLD_PARTITIONS": str(PARTITIONS),
        "KVFOLD_TELEMETRY_PORT": "0",
        **kafka,
    }


def folded(dsn: str) -> int:
    """Records that were folded."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT coalesce(sum(offset_next), 0) FROM kvfold_g1.partition_offset"
        ).fetchone()
    assert row is not None
    return int(row[0])


def entries(dsn: str) -> dict[str, bytes]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT key, value FROM kvfold_g1.deployment_entry WHERE value IS NOT NULL")
        return dict(rows.fetchall())


def expected(count: int) -> dict[str, bytes]:
    return {f"key-{number}": f"value-{number}".encode() for number in range(count)}


def run(*command: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvfold.deploy.cli", *command],
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.row("X13")
def test_projectors_continue_on_the_topic(
    postgres_dsn: str, embedded: PostgresLog, topic: KafkaSettings, tmp_path: Path
) -> None:
    append(embedded, begin=0, end=300)
    output = tmp_path / "projector.log"
    with KvfoldProcess("projector", environment=settings(postgres_dsn), output=output) as projector:
        projector.wait_for_event("projector ready")
        wait_until(lambda: folded(postgres_dsn) == 300, what=projector.text)
        refused = run("log", "copy", environment=settings(postgres_dsn, topic))
        assert refused.returncode == 1
        assert "the log is in use by kvfold-" in refused.stderr
        assert projector.terminate() == 0
    append(embedded, begin=300, end=400)  # in the log and not folded yet
    moved = run("log", "copy", "--json", environment=settings(postgres_dsn, topic))
    assert moved.returncode == 0, moved.stderr
    assert json.loads(moved.stdout)["topic"] == topic.topic

    with KvfoldProcess("projector", environment=settings(postgres_dsn, topic), output=output) as projector:
        projector.wait_for_event("projector ready")
        kafka = KafkaLog.open(topic)
        try:
            append(kafka, begin=400, end=500)
        finally:
            kafka.close()
        wait_until(lambda: folded(postgres_dsn) == 500, what=projector.text)
        assert projector.terminate() == 0
    assert entries(postgres_dsn) == expected(500)
    with psycopg.connect(postgres_dsn) as connection:
        row = connection.execute(
            "SELECT count(*), count(DISTINCT mutation_id) FROM kvfold_g1.decision"
        ).fetchone()
    assert row == (500, 500)

    again = run("log", "copy", environment=settings(postgres_dsn, topic))
    assert again.returncode == 1
    assert "was moved to a topic already" in again.stderr


def test_whoever_still_writes_fails_instead_of_being_lost(
    postgres_dsn: str, embedded: PostgresLog, topic: KafkaSettings
) -> None:
    append(embedded, begin=0, end=20)
    move_log(postgres_dsn, topic)
    # The writer that was overlooked has its connection, and what it writes would be folded by nobody.
    with pytest.raises((LogUnavailableError, LogMisconfiguredError, psycopg.Error)):
        append(embedded, begin=20, end=21)


def test_a_copy_that_was_stopped_goes_on(
    postgres_dsn: str, embedded: PostgresLog, topic: KafkaSettings
) -> None:
    append(embedded, begin=0, end=50)
    asked = iter([False, True])
    with pytest.raises(CancelledError):
        move_log(postgres_dsn, topic, should_stop=lambda: next(asked))
    append(embedded, begin=50, end=60)  # nothing is bound yet: the embedded log still is the log
    assert move_log(postgres_dsn, topic).name == topic.topic


def test_a_copy_that_was_finished_and_not_handed_over_goes_on(
    postgres_dsn: str, embedded: PostgresLog, topic: KafkaSettings
) -> None:
    append(embedded, begin=0, end=50)
    copied = copy_log(embedded, topic)
    assert move_log(postgres_dsn, topic) == copied
    with psycopg.connect(postgres_dsn) as connection:
        row = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (MOVED_SCHEMA,)).fetchone()
    assert row == (True,)


def test_a_topic_in_use_is_refused_and_left_alone(
    postgres_dsn: str, embedded: PostgresLog, topic: KafkaSettings
) -> None:
    append(embedded, begin=0, end=20)
    created = run("topic", "create", environment=settings(postgres_dsn, topic))
    assert created.returncode == 0, created.stderr
    kafka = KafkaLog.open(topic)
    try:
        append(kafka, begin=0, end=1)
        refused = run("log", "copy", environment=settings(postgres_dsn, topic))
        assert refused.returncode == 1
        assert "copy into an empty topic" in refused.stderr
        assert sum(bounds.end for bounds in kafka.bounds(range(PARTITIONS)).values()) == 1
    finally:
        kafka.close()
    checked = run("topic", "check", "--json", environment=settings(postgres_dsn, topic))
    assert (checked.returncode, json.loads(checked.stdout)["problems"]) == (0, [])


def test_kvfold_dev_moves_to_kafka(kafka_bootstrap: str, tmp_path: Path) -> None:
    kafka = {"KVFOLD_KAFKA": kafka_bootstrap, "KVFOLD_TOPIC": f"moved-{secrets.token_hex(6)}"}
    entry = "/deployments/dep/kv/user/kept"
    with DevProcess(tmp_path) as dev, httpx.Client(trust_env=False, timeout=30) as client:
        url = dev.wait_until_serving()
        assert client.put(url + entry, content=b"before").status_code == 201
        copy = {"KVFOLD_DATA": str(dev.data), **kafka}
        refused = run("log", "copy", environment=copy)
        assert refused.returncode == 1
        assert "already runs the PostgreSQL server" in refused.stderr
        assert dev.terminate() == 0
        moved = run("log", "copy", environment=copy)
        assert moved.returncode == 0, moved.stderr
        assert f"the log is now topic {kafka['KVFOLD_TOPIC']}" in moved.stdout

        # Whoever forgets the new setting is told, and writes nothing into a log that is none any more.
        dev.start()
        assert dev.wait() == 1
        assert "was folded from the kafka log" in dev.text()

    with DevProcess(tmp_path, environment=kafka) as dev, httpx.Client(trust_env=False, timeout=30) as client:
        url = dev.wait_until_serving()
        assert client.get(url + entry).content == b"before"
        after = client.put(url + entry, content=b"after", headers={"X-Object-Version": "1"})
        assert (after.status_code, after.headers["X-Object-Version"]) == (200, "2")
        assert dev.terminate() == 0
