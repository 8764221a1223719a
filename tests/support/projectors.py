"""Projectors and logs for integration tests: in this process, with short turns, always stopped."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from kvfold.log.kafka import KafkaLog
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.log.kafka_topic import create_topic
from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog
from kvfold.projector.run import Projector, ProjectorSettings
from kvfold.schemas.record import NewRecord
from support.workload import Workload

__all__ = ["kafka_log", "kafka_settings", "postgres_log", "running_projector", "some_records"]

_numbers = itertools.count(1)


def kafka_settings(bootstrap: str, *, partitions: int = 3) -> KafkaSettings:
    """A new topic's settings."""
    return KafkaSettings(
        bootstrap_servers=bootstrap, topic=f"kvfold.{uuid.uuid4()}", partition_count=partitions
    )


@contextmanager
def kafka_log(bootstrap: str, *, partitions: int = 3) -> Iterator[KafkaLog]:
    """A log in a topic of its own."""
    settings = kafka_settings(bootstrap, partitions=partitions)
    assert create_topic(settings)
    log = KafkaLog.open(settings)
    yield log
    log.close()


@contextmanager
def postgres_log(dsn: str, *, partitions: int = 3) -> Iterator[PostgresLog]:
    """An embedded log in a database."""
    log = PostgresLog.open(dsn, partition_count=partitions)
    yield log
    log.close()


@contextmanager
def running_projector(
    log: Log, dsn: str, *, claim_ms: int = 5_000, turn_ms: int = 100
) -> Iterator[Projector]:
    """A projector that runs inside the `with`."""
    settings = ProjectorSettings(owner=f"test-{next(_numbers)}", claim_ms=claim_ms, turn_ms=turn_ms)
    projector = Projector(log, dsn, settings)
    projector.start()
    try:
        yield projector
    finally:
        projector.stop()


def some_records(
    seed: int, count: int, *, partitions: int = 3, level_max: int = 2
) -> list[tuple[int, NewRecord]]:
    """Good and bad records of all families, for a log of so many partitions."""
    workload = Workload(Random(seed), partition_count=partitions, level_max=level_max)
    return [workload.draw() for _ in range(count)]
