"""Bench `write-latency`: from a put to its outcome, at the median, one writer.

The writer is the SDK in this process (`Producer.execute` and its `Waiter`); `kvfold projector` folds in a process of its
own. Each write goes to another key, so all partitions take part.

The floor: what cannot be saved is one acknowledgement of the log and one commit of Postgres, so the medians of a bare
`acks=all` produce and of a bare flushed INSERT are added.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing
from statistics import median
from typing import Final

from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, kvfold_process, run_apart
from kvfold.deploy.bench.workload import SCOPES, VALUE_BYTES, mutations
from kvfold.log.kafka import KafkaLog
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.producers.producer import Producer
from kvfold.reads.waiting import Waiter
from kvfold.schemas.errors import UnavailableError
from kvfold.schemas.mutation import Mutation

__all__ = ["SPEC", "await_projector", "floor_ms", "run"]

SPEC: Final = Spec("write-latency", "ms", target=1.6, more_is_better=False)

_WARM_UP: Final = 100
_START_TIMEOUT_S: Final = 60.0


def run(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Writes and waits, with the floor in turn, beside one projector."""
    rounds = []
    with (
        stage.topic() as kafka,
        stage.topic() as floor_topic,
        stage.database() as dsn,
        stage.database() as floor_dsn,
        kvfold_process("projector", kafka=kafka, dsn=dsn),
        closing(KafkaLog.open(kafka)) as log,
        closing(Waiter(dsn)) as waiter,
    ):
        producer = Producer(log, waiter, source="/kvfold/bench")
        writes = itertools.cycle(mutations(10 * SCOPES))
        await_projector(producer, writes)
        _p50_ms(producer, writes, _WARM_UP)
        for number in range(1, sizes.write_rounds + 1):
            figure = _p50_ms(producer, writes, sizes.writes)
            floor = floor_ms(floor_topic, floor_dsn, sizes.writes)
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.write_rounds}: {figure:.2f} ms, floor {floor:.2f} ms")
    return Result.of(SPEC, rounds)


def await_projector(producer: Producer, writes: Iterator[Mutation]) -> None:
    """Writes until one is decided: the projector is up, and all partitions are its own soon after."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            producer.execute(next(writes), timeout_s=1.0)
            return
        except UnavailableError:
            if time.monotonic() > deadline:
                raise


def _p50_ms(producer: Producer, writes: Iterator[Mutation], count: int) -> float:
    times = []
    for mutation in itertools.islice(writes, count):
        begun = time.perf_counter()
        producer.execute(mutation)
        times.append(time.perf_counter() - begun)
    return median(times) * 1_000


def floor_ms(kafka: KafkaSettings, dsn: str, count: int) -> float:
    """The two medians together, on a topic and a database that nobody else uses."""
    sizes = {"value_bytes": VALUE_BYTES, "count": count}
    produce = run_apart(
        "floors", {"floor": "produce", "client": kafka.client_options(), "topic": kafka.topic, **sizes}
    )
    commit = run_apart("floors", {"floor": "commit", "dsn": dsn, **sizes})
    return float(produce["p50_ms"] + commit["p50_ms"])
