"""Where the tests get their servers from.

Kafka, in this order: the broker that `KVFOLD_TEST_KAFKA` names; a container, where a Docker daemon answers and an image can
be had; a process from Kafka's jars. PostgreSQL: the server that `KVFOLD_TEST_POSTGRES` names, else the embedded one.
Where none can be had the tests fail, they are never skipped.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from support.broker import Broker, BrokerError
from support.kafka_broker import KafkaBroker
from support.kafka_container import KafkaContainer, docker_image_or_reason
from support.kafka_jars import ServerMissingError

__all__ = ["ExternalBroker", "fresh_database", "own_broker", "shared_broker"]


class ExternalBroker:
    """A broker that is not ours: it has an address, and nothing may be done to it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def stop(self) -> None:
        self._refuse()

    def kill(self) -> None:
        self._refuse()

    def restart(self) -> None:
        self._refuse()

    def pause(self) -> None:
        self._refuse()

    def resume(self) -> None:
        self._refuse()

    def _refuse(self) -> None:
        raise BrokerError(
            "the broker named by KVFOLD_TEST_KAFKA is not ours to stop: use the fixture own_kafka_broker"
        )


@contextmanager
def shared_broker(directory: Path) -> Iterator[Broker]:
    """Give the broker that all tests may use, for as long as the context lasts; `directory` is for what it writes.

    Raises `ServerMissingError`, with what was tried and what to install, where none can be had.
    """
    external = os.environ.get("KVFOLD_TEST_KAFKA")
    if external:
        yield ExternalBroker(external)
        return
    with own_broker(directory) as broker:
        yield broker


@contextmanager
def own_broker(directory: Path) -> Iterator[Broker]:
    """Run a broker that nobody else uses, for as long as the context lasts; raises as `shared_broker` does."""
    image, no_docker = docker_image_or_reason()
    if image is not None:
        with KafkaContainer(image) as container:
            yield container
        return
    broker = KafkaBroker(directory)
    try:
        broker.start()
    except ServerMissingError as missing:
        raise ServerMissingError(
            f"no Kafka broker for the tests. Docker: {no_docker}; jars: {missing}"
        ) from missing
    try:
        yield broker
    finally:
        broker.kill()


@contextmanager
def fresh_database(admin_dsn: str) -> Iterator[str]:
    """Make an empty database for as long as the context lasts; the value is its connection string."""
    name = f"test_{secrets.token_hex(8)}"
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield make_conninfo(admin_dsn, dbname=name)
    finally:
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            # FORCE ends what the test left connected.
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
