"""Bench `watch`: from the commit of a record's fold to its event in a watcher's hands, at the median.

One writer appends, one after the other; `kvfold projector` folds, `kvfold query-api` streams, and a watcher in this process
takes the time of each event. When the commit was is what the offset row says, by the clock of Postgres, which has to run
on this machine: the fold moves that row first, so its other statements are within what is measured.

The floor: what cannot be saved is the commit and the wake-up of a listener, so it is the median from the same moment in a
bare transaction to the notification in the hands of a bare `LISTEN`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

import psycopg

from kvfold.deploy.bench.point_reads import await_port
from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, free_port, kvfold_process, run_apart
from kvfold.deploy.bench.workload import SCOPES, mutations
from kvfold.deploy.bench.write_latency import await_projector
from kvfold.log.kafka import KafkaLog
from kvfold.producers.producer import Producer
from kvfold.producers.watching import Put, Watch, watch
from kvfold.reads.waiting import Waiter
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.position import Position

__all__ = ["SPEC", "run"]

SPEC: Final = Spec("watch", "ms", target=15.0, more_is_better=False)

_HOST: Final = "127.0.0.1"
_WARM_UP: Final = 50
_COMMITTED: Final = (
    "SELECT extract(epoch FROM committed_at) FROM kvfold_g1.partition_offset WHERE partition = %s"
)


def run(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Writes and watches, with the floor in turn."""
    rounds = []
    with ExitStack() as stack:
        kafka, dsn = stack.enter_context(stage.topic()), stack.enter_context(stage.database())
        floor_dsn = stack.enter_context(stage.database())
        stack.enter_context(kvfold_process("projector", kafka=kafka, dsn=dsn))
        port = free_port()
        server = stack.enter_context(
            kvfold_process("query-api", kafka=kafka, dsn=dsn, HOST=_HOST, PORT=str(port))
        )
        await_port(server, port)
        log = KafkaLog.open(kafka)
        stack.callback(log.close)
        waiter = Waiter(dsn)
        stack.callback(waiter.close)
        producer = Producer(log, waiter, source="/kvfold/bench")
        writes = itertools.cycle(mutations(10 * SCOPES))
        await_projector(producer, writes)
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        changes = stack.enter_context(watch(f"http://{_HOST}:{port}", after="beginning"))
        _p50_ms(producer, writes, changes, connection, _WARM_UP)
        for number in range(1, sizes.write_rounds + 1):
            figure = _p50_ms(producer, writes, changes, connection, sizes.writes)
            floor = run_apart("floors", {"floor": "listen", "dsn": floor_dsn, "count": sizes.writes})[
                "p50_ms"
            ]
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.write_rounds}: {figure:.2f} ms, floor {floor:.2f} ms")
    return Result.of(SPEC, rounds)


def _p50_ms(
    producer: Producer,
    writes: Iterator[Mutation],
    changes: Watch,
    connection: psycopg.Connection[Any],
    count: int,
) -> float:
    times = []
    for mutation in itertools.islice(writes, count):
        producer.send(mutation)
        while True:
            change = next(changes)
            arrived = time.time()
            if isinstance(change, Put) and (change.scope, change.key) == (mutation.scope, mutation.subject):
                break
        row = connection.execute(_COMMITTED, (Position.parse(change.position).partition,)).fetchone()
        assert row is not None
        times.append(arrived - float(row[0]))
    return median(times) * 1_000
