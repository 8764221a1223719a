"""Bench `projector`: mutations a second from a full topic to committed.

The topic is filled first. Then `kvfold projector` is started on an empty database, as a user starts it, and watched
through Postgres every 20 ms: time begins when it holds the claims of all partitions and ends when the offset rows
have reached the end of the topic. Taking over, reading, deciding and committing all count; starting Python does not.

The floor: a bare consumer reads the same topic, and the rows that the projection holds afterwards are copied by bare
binary COPY into empty tables of the same columns and keys. One process that does both in turn would reach
1/(1/read + 1/copy).
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from typing import Any, Final

import psycopg

from kvfold.deploy.bench.result import Result, Round, Spec, in_series
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, kvfold_process, run_apart
from kvfold.deploy.bench.workload import fill
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.schemas.errors import UnavailableError

__all__ = ["SPEC", "fold_all", "run", "watched_fold"]

SPEC: Final = Spec("projector", "mutations/s", target=0.6, more_is_better=True)

_POLL_S: Final = 0.02
_TIMEOUT_S: Final = 180.0
_SCHEMA: Final = "kvfold_g1"
_TABLES: Final = ("capsule_entry", "capsule_entry_history", "capsule_scope", "decision", "mutation_id")


def run(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Fills a topic once, then measures floor and figure in turn."""
    count = sizes.projector_mutations
    rounds = []
    with stage.topic() as kafka:
        tell(f"writing {count:,} mutations")
        fill(kafka, count)
        for number in range(1, sizes.projector_rounds + 1):
            with stage.database() as dsn:
                figure = count / fold_all(kafka, dsn, count)
                floor = _floor(kafka, dsn, count)
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.projector_rounds}: {figure:,.0f}/s, floor {floor:,.0f}/s")
    return Result.of(SPEC, rounds)


def fold_all(kafka: KafkaSettings, dsn: str, count: int) -> float:
    """Seconds in which a projector process folds a topic of `count` records into an empty database.

    Raises:
        UnavailableError: it ended, or took too long.
    """
    with kvfold_process("projector", kafka=kafka, dsn=dsn) as process:
        return watched_fold(dsn, process, _SCHEMA, kafka.partition_count, count)


def watched_fold(
    dsn: str, process: subprocess.Popen[bytes], schema: str, partition_count: int, count: int
) -> float:
    """Seconds from when all partitions of a generation are claimed until `count` records are folded into it.

    Raises:
        UnavailableError: the process ended, or took too long.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        _watch(connection, process, f"SELECT count(owner) FROM {schema}.claim", partition_count)
        begun = time.perf_counter()
        _watch(
            connection, process, f"SELECT coalesce(sum(offset_next), 0) FROM {schema}.partition_offset", count
        )
        return time.perf_counter() - begun


def _watch(
    connection: psycopg.Connection[Any], process: subprocess.Popen[bytes], statement: str, wanted: int
) -> None:
    """Asks until a number is reached; the tables may not be there yet."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        with suppress(psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            row = connection.execute(statement).fetchone()
            if row is not None and row[0] >= wanted:
                return
        if process.poll() is not None:
            raise UnavailableError("the process ended before it had folded the topic", code="bench-failed")
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"the process did not fold the topic in {_TIMEOUT_S:.0f} s", code="bench-failed"
            )
        time.sleep(_POLL_S)


def _floor(kafka: KafkaSettings, dsn: str, count: int) -> float:
    read = run_apart(
        "floors",
        {
            "floor": "read",
            "client": kafka.client_options(),
            "topic": kafka.topic,
            "partitions": kafka.partition_count,
            "records": count,
        },
    )
    copy = run_apart(
        "floors", {"floor": "copy", "dsn": dsn, "source": _SCHEMA, "tables": _TABLES, "records": count}
    )
    return in_series(read["per_second"], copy["per_second"])
