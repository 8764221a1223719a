"""What the benches stand on: a broker, a PostgreSQL server, and processes as a user starts them.

Everything is made for the run and deleted after it, also after Ctrl-C: topics and databases of their own, and where no
server is named in KVFOLD_POSTGRES a server in a temporary directory.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psycopg
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from psycopg import sql
from psycopg.conninfo import make_conninfo

from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from kvfold.deploy.environment import postgres_dsn
from kvfold.log.kafka import create_topic
from kvfold.log.kafka_client import make_client
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.log.settings import PREFIX, Settings
from kvfold.schemas.errors import StoreUnavailableError, UnavailableError

__all__ = ["KafkaMissingError", "Stage", "free_port", "kvfold_process", "opened_stage", "run_apart"]

_STOP_TIMEOUT_S: Final = 20.0
# Of a server of our own: a checkpoint in the middle of one round and not of another would be noise.
_SERVER_SETTINGS: Final = {"shared_buffers": "256MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}


class KafkaMissingError(UnavailableError):
    """There is no broker to measure with."""

    def __init__(self) -> None:
        super().__init__(
            "the benches need a Kafka broker: name one in KVFOLD_KAFKA, such as KVFOLD_KAFKA=127.0.0.1:9092",
            code="log-unavailable",
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """The servers of a run. `admin_dsn` is of a user that may create databases."""

    settings: Settings
    admin_dsn: str

    @contextmanager
    def topic(self) -> Iterator[KafkaSettings]:
        """A topic as kvfold needs it, with the partition count of the settings."""
        kafka = replace(self.settings.kafka_settings(), topic=f"kvfold.bench.{secrets.token_hex(6)}")
        create_topic(kafka)
        try:
            yield kafka
        finally:
            _delete_topic(kafka)

    @contextmanager
    def database(self) -> Iterator[str]:
        """An empty database; gives its connection string."""
        name = f"kvfold_bench_{secrets.token_hex(6)}"
        with _connected(self.admin_dsn) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield make_conninfo(self.admin_dsn, dbname=name)
        finally:
            with _connected(self.admin_dsn) as admin:
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def opened_stage(settings: Settings) -> Iterator[Stage]:
    """The servers that the settings name; a PostgreSQL server of our own where they name none.

    Raises:
        KafkaMissingError: the settings name no broker.
        ConfigurationError: KVFOLD_POSTGRES is no connection string.
    """
    if settings.kafka is None:
        raise KafkaMissingError
    if settings.postgres is not None:
        yield Stage(settings, postgres_dsn(settings))
        return
    with (
        tempfile.TemporaryDirectory(prefix="kvfold-bench-") as folder,
        EmbeddedPostgres.start(Path(folder), settings=_SERVER_SETTINGS) as server,
    ):
        yield Stage(settings, server.dsn)


@contextmanager
def kvfold_process(
    *command: str, kafka: KafkaSettings, dsn: str, **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process `kvfold COMMAND …` on a topic and a database, ended in order afterwards.

    It has the settings of this process, with `settings` (names without the prefix) above them.
    """
    own = {
        "POSTGRES": dsn,
        "TOPIC": kafka.topic,
        "PARTITIONS": str(kafka.partition_count),
        "TELEMETRY_PORT": "0",
        "LOG_LEVEL": "warning",
    }
    environment = {**os.environ, **{PREFIX + name: text for name, text in {**own, **settings}.items()}}
    with running("kvfold.deploy.cli", *command, environment=environment) as process:
        yield process


@contextmanager
def running(
    module: str,
    *arguments: str,
    job: Mapping[str, Any] | None = None,
    environment: dict[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python module as a process, given `job` as JSON on standard input; terminated afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL if job is None else subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        # Ctrl-C comes to us alone: we end our processes in order.
        start_new_session=True,
    )
    try:
        if job is not None:
            assert process.stdin is not None
            process.stdin.write(json.dumps(job).encode())
            process.stdin.close()
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_apart(module: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a module of this package in a process of its own with `job`, and gives what it answers.

    Raises:
        UnavailableError: it failed; what it said stands on standard error.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.{module}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        answer, _ = process.communicate(json.dumps(job).encode())
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0:
        raise UnavailableError(f"{module} of the bench ended with {process.returncode}", code="bench-failed")
    result: dict[str, Any] = json.loads(answer)
    return result


def free_port() -> int:
    """A port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    try:
        connection = psycopg.connect(dsn, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(f"Postgres does not answer: {str(error).splitlines()[0]}") from error
    with connection:
        yield connection


def _delete_topic(kafka: KafkaSettings) -> None:
    """A broker that is away keeps the topic; there is nothing else to be done about it."""
    with suppress(UnavailableError, KafkaError):
        admin = make_client(KafkaAdminClient, kafka)
        try:
            admin.delete_topics([kafka.topic])
        finally:
            admin.close()
