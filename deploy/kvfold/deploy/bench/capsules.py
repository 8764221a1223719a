"""Benches of capsules, `capsule-set`, `-threads`, `-spread` and `-get`: the store behind the log, as capsules use it.

The store is `LogKvStore` in this process; `kvfold projector` folds in a process of its own.

- `capsule-set`: from a set to its return, at the median, one thread. The floor is that of `write-latency`.
- `capsule-threads`: sets a second of 16 threads together in one namespace; the floor is what one thread reaches right
  before: it says how much appends, folds and waits are shared.
- `capsule-spread`: the same over 200 namespaces, and so over all partitions: a record often has its batches to itself.
- `capsule-get`: gets a second, one thread; the floor is the same statement through a bare psycopg connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Final

from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, kvfold_process, run_apart
from kvfold.deploy.bench.workload import VALUE_BYTES
from kvfold.deploy.bench.write_latency import floor_ms
from kvfold.log.kafka import KafkaLog
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.producers.capsule.errors import Unavailable
from kvfold.producers.capsule.log_store import LogKvStore
from kvfold.producers.producer import Producer
from kvfold.reads.capsule import capsule_value
from kvfold.reads.executor import Reader, read_pool
from kvfold.reads.waiting import Waiter
from kvfold.schemas.partitioning import partition_of

__all__ = ["GET", "SET", "SPREAD", "THREADS", "run_get", "run_set", "run_spread", "run_threads"]

SET: Final = Spec("capsule-set", "ms", target=1.6, more_is_better=False)
THREADS: Final = Spec("capsule-threads", "sets/s", target=5.0, more_is_better=True)
SPREAD: Final = Spec("capsule-spread", "sets/s", target=5.0, more_is_better=True)
GET: Final = Spec("capsule-get", "gets/s", target=0.5, more_is_better=True)

_THREADS: Final = 16
_NAMESPACES: Final = 200
_WARM_UP: Final = 100
_START_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Stack:
    store: LogKvStore
    kafka: KafkaSettings
    dsn: str


def run_set(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Sets one after the other, with the floor in turn, beside one projector."""
    rounds = []
    with _opened(stage) as stack, stage.topic() as floor_topic, stage.database() as floor_dsn:
        for number in range(1, sizes.write_rounds + 1):
            figure = median(_set_times(stack.store, 0, sizes.writes)) * 1_000
            floor = floor_ms(floor_topic, floor_dsn, sizes.writes)
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.write_rounds}: {figure:.2f} ms, floor {floor:.2f} ms")
    return Result.of(SET, rounds)


def run_threads(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Sets of one thread, then of sixteen, in one namespace."""
    return _run_together(THREADS, stage, sizes, tell, namespaces=1)


def run_spread(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Sets of one thread, then of sixteen, in many namespaces."""
    return _run_together(SPREAD, stage, sizes, tell, namespaces=_NAMESPACES)


def _run_together(spec: Spec, stage: Stage, sizes: Sizes, tell: Tell, *, namespaces: int) -> Result:
    rounds = []
    with _opened(stage) as stack, ThreadPoolExecutor(_THREADS) as threads:

        def run(thread: int) -> list[float]:
            return _set_times(stack.store, thread, sizes.writes, namespaces)

        for number in range(1, sizes.write_rounds + 1):
            one = _rate(sizes.writes, lambda: run(0))
            together = _rate(sizes.writes * _THREADS, lambda: list(threads.map(run, range(_THREADS))))
            rounds.append(Round(together, one))
            tell(f"round {number} of {sizes.write_rounds}: {together:,.0f}/s, one thread {one:,.0f}/s")
    return Result.of(spec, rounds)


def run_get(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Gets of one thread, with the floor in turn; every key is there."""
    rounds = []
    with _opened(stage) as stack:
        _set_times(stack.store, 0, _NAMESPACES)
        count = sizes.reads // 4
        for number in range(1, sizes.read_rounds + 1):
            figure = _rate(count, lambda: _get_all(stack.store, count))
            floor = run_apart("floors", _floor_job(stack, count))["per_second"]
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.read_rounds}: {figure:,.0f}/s, floor {floor:,.0f}/s")
    return Result.of(GET, rounds)


@contextmanager
def _opened(stage: Stage) -> Iterator[_Stack]:
    """A store over a topic and a database of its own, with a projector that has begun to fold, warmed up."""
    with (
        stage.topic() as kafka,
        stage.database() as dsn,
        kvfold_process("projector", kafka=kafka, dsn=dsn),
        closing(KafkaLog.open(kafka)) as log,
        closing(Waiter(dsn)) as waiter,
        read_pool(dsn, size_max=_THREADS) as pool,
        closing(Reader(pool)) as reader,
    ):
        store = LogKvStore(Producer(log, waiter, source="/kvfold/bench"), reader)
        _await_projector(store)
        _set_times(store, 0, _WARM_UP)
        yield _Stack(store, kafka, dsn)


def _await_projector(store: LogKvStore) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            store.set(_namespace(0), "begin", b"")
            return
        except Unavailable:
            if time.monotonic() > deadline:
                raise


def _set_times(store: LogKvStore, thread: int, count: int, namespaces: int = _NAMESPACES) -> list[float]:
    """Seconds of each set of one thread; the namespaces take turns."""
    values, times = Random(thread), []
    for number in range(count):
        value = values.randbytes(VALUE_BYTES)
        begun = time.perf_counter()
        store.set(_namespace(number % namespaces), f"entry-{thread}", value)
        times.append(time.perf_counter() - begun)
    return times


def _get_all(store: LogKvStore, count: int) -> None:
    for number in range(count):
        assert store.get(_namespace(number), "entry-0") is not None


def _rate(count: int, act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return count / (time.perf_counter() - begun)


def _namespace(number: int) -> str:
    return f"user-{number % _NAMESPACES:03}:capsule:bench"


def _floor_job(stack: _Stack, count: int) -> dict[str, object]:
    scopes = [f"c:{_namespace(number)}" for number in range(_NAMESPACES)]
    return {
        "floor": "point-read",
        "dsn": stack.dsn,
        "statement": capsule_value("", "", partition=0).statement.replace("{g}", "kvfold_g1"),
        "parameters": [
            (partition_of(scope.encode(), stack.kafka.partition_count), scope, "entry-0") for scope in scopes
        ],
        "count": count,
    }
