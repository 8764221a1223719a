"""Postgres or the broker is away for a while: writes answer 503 with their mutation id, reads go on as far as they can, and
everything resumes by itself (kafka-connect-jdbc#1312, eventsourcing#305).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from e2e.stack import Stack, running_stack
from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from kvfold.log.kafka_topic import create_topic
from support.broker import Broker
from support.kvfold_process import wait_until
from support.projectors import kafka_settings

__all__: list[str] = []

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.postgres]

AWAY_S = float(os.environ.get("KVFOLD_TEST_AWAY_S", "15"))
"""How long a server stays away; the promise is a minute (`KVFOLD_TEST_AWAY_S=60`)."""


def _deadline() -> Callable[[], bool]:
    until = time.monotonic() + AWAY_S
    return lambda: time.monotonic() > until


class Writer:
    """Puts keys of one deployment, each with an id of its own, and remembers what each was answered."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=20)
        self.acknowledged: list[str] = []
        self.unknown: list[str] = []
        self.problems: list[dict[str, object]] = []

    def close(self) -> None:
        self._client.close()

    def put(self) -> httpx.Response:
        key = str(uuid4())
        answer = self._put(key)
        if answer.status_code == 201:
            self.acknowledged.append(key)
        else:
            self.unknown.append(key)
            self.problems.append(answer.json())
        return answer

    def _put(self, key: str) -> httpx.Response:
        return self._client.put(
            f"/deployments/d/kv/user/{key}", content=key, headers={"Idempotency-Key": key}
        )

    def repeat_unknown(self) -> None:
        """A write whose answer was lost is repeated with its id, and applied once."""
        for key in self.unknown:
            wait_until(lambda: self._put(key).status_code == 201, what=lambda: f"the repeat of {key}")  # noqa: B023
            self.acknowledged.append(key)

    def get(self, key: str) -> httpx.Response:
        return self._client.get(f"/deployments/d/kv/user/{key}")

    def keys(self) -> set[str]:
        found: set[str] = set()
        cursor: str | None = ""
        while cursor is not None:
            parameters = {"namespace": "user", "limit": "1000"} | ({"cursor": cursor} if cursor else {})
            page = self._client.get("/deployments/d/objects", params=parameters).raise_for_status().json()
            found |= {entry["key"] for entry in page["objects"]}
            cursor = page["next_cursor"]
        return found


def _made_topic(broker: Broker) -> dict[str, str]:
    settings = kafka_settings(broker.bootstrap)
    create_topic(settings)
    return {"KVFOLD_KAFKA": broker.bootstrap, "KVFOLD_TOPIC": settings.topic, "KVFOLD_PARTITIONS": "3"}


def _nothing_lost_nothing_twice(stack: Stack, writer: Writer) -> None:
    writer.repeat_unknown()
    assert writer.keys() == set(writer.acknowledged)
    outcomes = stack.outcomes("d:d")
    assert outcomes["applied"] == len(writer.acknowledged)
    assert set(outcomes) <= {"applied", "repeat"}, "an outage never becomes a rejection"
    with psycopg.connect(stack.dsn) as connection:
        assert connection.execute("SELECT * FROM kvfold_g1.pause").fetchall() == []


def test_postgres_is_away(
    own_postgres_server: EmbeddedPostgres, kafka_broker: Broker, tmp_path: Path
) -> None:
    log_settings = _made_topic(kafka_broker)
    with (
        running_stack(
            own_postgres_server.dsn, tmp_path, owners=("a", "b"), log_settings=log_settings
        ) as stack,
        closing(Writer(stack.url)) as writer,
    ):
        for _ in range(20):
            assert writer.put().status_code == 201
        own_postgres_server.stop("immediate")
        assert writer.get(writer.acknowledged[0]).status_code == 503
        deadline = _deadline()
        while not deadline():
            assert writer.put().status_code == 503
        assert writer.problems
        for problem, key in zip(writer.problems, writer.unknown, strict=True):
            assert problem["mutation_id"] == str(UUID(key)), "the id to repeat it with"
            assert problem["code"] == "outcome-unknown", "the log took it, nobody can tell what was decided"
        own_postgres_server.restart()
        wait_until(lambda: writer.put().status_code == 201, what=lambda: "a write after the outage")
        _nothing_lost_nothing_twice(stack, writer)


def test_the_broker_is_away(own_kafka_broker: Broker, postgres_dsn: str, tmp_path: Path) -> None:
    log_settings = _made_topic(own_kafka_broker)
    with (
        running_stack(postgres_dsn, tmp_path, owners=("a", "b"), log_settings=log_settings) as stack,
        closing(Writer(stack.url)) as writer,
    ):
        for _ in range(20):
            assert writer.put().status_code == 201
        own_kafka_broker.kill()
        deadline = _deadline()
        while not deadline():
            assert writer.put().status_code == 503
            assert writer.get(writer.acknowledged[0]).status_code == 200, "reads never touch the log"
        for problem, key in zip(writer.problems, writer.unknown, strict=True):
            assert problem["mutation_id"] == str(UUID(key))
            assert problem["code"] == "log-unavailable"
        own_kafka_broker.restart()
        wait_until(lambda: writer.put().status_code == 201, what=lambda: "a write after the outage")
        _nothing_lost_nothing_twice(stack, writer)
