"""Benches of durable orchestrations: `orchestrations-200`, `orchestrations-10` and `orchestration-latency`.

One orchestration sets 5 values and runs 2 activities (`orchestration_app`): a start, three turns and two completions.
`kvfold projector` and `kvfold worker` run in processes of their own; this one starts instances and sees them end.

- `orchestrations-200`, `-10`: orchestrations a second with so many in flight: one that has ended makes room for the next.
- `orchestration-latency`: from a start to the end, at the median, one at a time.

The floor: the same six records by plain SDK calls, each appended when the one before is decided, with as many chains in
flight, beside a projector of its own. Nobody looks for work there, and nothing is run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import psycopg

from kvfold.deploy.bench.orchestration_records import Chains
from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, kvfold_process
from kvfold.deploy.bench.workload import mutations
from kvfold.deploy.bench.write_latency import await_projector
from kvfold.log.kafka import KafkaLog
from kvfold.producers.mutations import orchestration_started
from kvfold.producers.producer import Producer
from kvfold.reads.waiting import Waiter
from kvfold.schemas.errors import UnavailableError
from kvfold.schemas.names import orchestration_scope
from kvfold.schemas.projection import NOTIFY_CHANNEL

__all__ = ["LATENCY", "MANY", "SOME", "run_latency", "run_many", "run_some"]

MANY: Final = Spec("orchestrations-200", "orchestrations/s", target=0.5, more_is_better=True)
SOME: Final = Spec("orchestrations-10", "orchestrations/s", target=0.5, more_is_better=True)
LATENCY: Final = Spec("orchestration-latency", "ms", target=2.0, more_is_better=False)

_APP: Final = "kvfold.deploy.bench.orchestration_app:registry"
_WARM_UP: Final = 50
_TIMEOUT_S: Final = 120.0
_LOOK_S: Final = 0.01
_ENDED: Final = "SELECT scope FROM kvfold_g1.orchestration_instance WHERE scope = ANY (%s::text[]) AND status <> 'Running'"

_Times = Callable[[int, int], list[float]]
"""Runs so many orchestrations with so many in flight; the seconds that each took."""


@dataclass(frozen=True, slots=True)
class _Ways:
    """The two ways that are compared."""

    by_worker: _Times
    by_hand: _Times


def run_many(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """With 200 in flight."""
    return _run_together(MANY, stage, sizes, tell, in_flight=200, count=sizes.orchestrations)


def run_some(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """With 10 in flight."""
    return _run_together(SOME, stage, sizes, tell, in_flight=10, count=sizes.orchestrations // 2)


def run_latency(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """One at a time."""

    def median_ms(way: _Times) -> float:
        return median(way(sizes.writes, 1)) * 1_000

    return _run(LATENCY, stage, sizes, tell, median_ms)


def _run_together(
    spec: Spec, stage: Stage, sizes: Sizes, tell: Tell, *, in_flight: int, count: int
) -> Result:
    return _run(spec, stage, sizes, tell, lambda way: _rate(way, count, in_flight))


def _run(spec: Spec, stage: Stage, sizes: Sizes, tell: Tell, measure: Callable[[_Times], float]) -> Result:
    rounds = []
    with _opened(stage) as ways:
        for number in range(1, sizes.orchestration_rounds + 1):
            figure, floor = measure(ways.by_worker), measure(ways.by_hand)
            rounds.append(Round(figure, floor))
            tell(
                f"round {number} of {sizes.orchestration_rounds}: {figure:.1f} {spec.unit}, floor {floor:.1f}"
            )
    return Result.of(spec, rounds)


def _rate(way: _Times, count: int, in_flight: int) -> float:
    begun = time.perf_counter()
    way(count, in_flight)
    return count / (time.perf_counter() - begun)


@contextmanager
def _opened(stage: Stage) -> Iterator[_Ways]:
    """A projector with a worker, and a projector for the floor, both warmed up."""
    with ExitStack() as stack:
        dsn, producer = _projected(stack, stage, _APP)
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        connection.execute(f"LISTEN {NOTIFY_CHANNEL}")
        instances = _Instances(producer, connection)
        _, floor_producer = _projected(stack, stage)
        chains = Chains(floor_producer, timeout_s=_TIMEOUT_S)
        ways = _Ways(instances.run, chains.run)
        ways.by_worker(_WARM_UP, 10)
        ways.by_hand(_WARM_UP, 10)
        yield ways


def _projected(stack: ExitStack, stage: Stage, app: str | None = None) -> tuple[str, Producer]:
    """A topic and a database of their own with a projector that folds, and a worker where there is an application."""
    kafka, dsn = stack.enter_context(stage.topic()), stack.enter_context(stage.database())
    stack.enter_context(kvfold_process("projector", kafka=kafka, dsn=dsn))
    if app is not None:
        stack.enter_context(kvfold_process("worker", "--app", app, kafka=kafka, dsn=dsn))
    log = KafkaLog.open(kafka)
    stack.callback(log.close)
    waiter = Waiter(dsn)
    stack.callback(waiter.close)
    producer = Producer(log, waiter, source="/kvfold/bench")
    await_projector(producer, itertools.cycle(mutations(kafka.partition_count)))
    return dsn, producer


class _Instances:
    """Starts instances, and sees them end by the projector's notifications and one query for all."""

    def __init__(self, producer: Producer, connection: psycopg.Connection[Any]) -> None:
        self._producer = producer
        self._connection = connection
        self._numbers = itertools.count(1)

    def run(self, count: int, in_flight: int) -> list[float]:
        """Runs so many with so many in flight; the seconds of each from its start to when its end is seen.

        Raises:
            UnavailableError: nothing has ended for too long.
        """
        begun: dict[str, float] = {}
        times: list[float] = []
        left = count
        progressed = time.monotonic()
        while left or begun:
            while left and len(begun) < in_flight:
                scope = self._start()
                begun[scope] = time.perf_counter()
                left -= 1
            self._await_commit(together=in_flight > 1)
            for (scope,) in self._connection.execute(_ENDED, [list(begun)]):
                times.append(time.perf_counter() - begun.pop(scope))
                progressed = time.monotonic()
            if time.monotonic() > progressed + _TIMEOUT_S:
                raise UnavailableError(
                    f"no orchestration has ended for {_TIMEOUT_S:.0f} s", code="bench-failed"
                )
        return times

    def _start(self) -> str:
        number = next(self._numbers)
        scope = orchestration_scope(f"bench-{number}")
        self._producer.send(orchestration_started(scope, "work", number, mode="runtime"))
        return scope

    def _await_commit(self, *, together: bool) -> None:
        """With many in flight a look now and then is enough, and leaves the cores to what is measured."""
        if together:
            time.sleep(_LOOK_S)
            return
        for _ in self._connection.notifies(timeout=1.0, stop_after=1):
            pass
