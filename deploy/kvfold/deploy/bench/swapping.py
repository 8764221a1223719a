"""Bench `swap-reads`: the 99th percentile of GET requests while generations are swapped, against the same without a swap.

A topic is filled and folded into two generations, which a projector folds on; `kvfold query-api` serves the database. The
load is that of the bench `point-reads` over fewer connections, so that reads do not only wait for each other. While the
figure is measured the two generations are swapped there and back, again and again: each swap makes every prepared
statement of every connection, and every cached pointer, a wrong one.
"""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event, Thread
from typing import Any, Final

import psycopg

from kvfold.deploy.bench.point_reads import await_port, get_load
from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, free_port, kvfold_process, run_apart
from kvfold.deploy.bench.workload import fill, mutations, path_of
from kvfold.log.kafka import KafkaLog
from kvfold.projector.generations import list_generations
from kvfold.projector.swapping import swap_generation
from kvfold.schemas.errors import UnavailableError

__all__ = ["SPEC", "run"]

SPEC: Final = Spec("swap-reads", "ms", target=2.0, more_is_better=False)

_CONNECTIONS: Final = 4
_BETWEEN_SWAPS_S: Final = 0.25
_HOST: Final = "127.0.0.1"


def run(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Folds each key into two generations, then reads without swaps and with them, in turn."""
    keys = sizes.read_keys
    rounds = []
    with ExitStack() as stack:
        kafka, dsn = stack.enter_context(stage.topic()), stack.enter_context(stage.database())
        tell(f"writing and folding {keys:,} mutations")
        fill(kafka, keys)
        log = KafkaLog.open(kafka)
        stack.callback(log.close)
        projector = stack.enter_context(kvfold_process("projector", kafka=kafka, dsn=dsn))
        port = free_port()
        server = stack.enter_context(
            kvfold_process("query-api", kafka=kafka, dsn=dsn, HOST=_HOST, PORT=str(port))
        )
        await_port(server, port)
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        with kvfold_process("rebuild", kafka=kafka, dsn=dsn) as rebuild:
            if rebuild.wait() != 0 or projector.poll() is not None:
                raise UnavailableError("the rebuild of the bench failed", code="bench-failed")
        paths = [path_of(mutation) for mutation in mutations(keys)]
        load = get_load(paths, sizes, connections=_CONNECTIONS) | {"port": port}
        for number in range(1, sizes.read_rounds + 1):
            floor = run_apart("http_load", load)["p99_ms"]
            figure, swaps = _while_swapping(connection, log, load)
            rounds.append(Round(figure, floor))
            tell(
                f"round {number} of {sizes.read_rounds}: {figure:.2f} ms in {swaps} swaps, floor {floor:.2f} ms"
            )
    return Result.of(SPEC, rounds)


def _while_swapping(
    connection: psycopg.Connection[Any], log: KafkaLog, load: dict[str, Any]
) -> tuple[float, int]:
    """The load's 99th percentile in milliseconds, and how many swaps were made under it."""
    ended = Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not ended.wait(_BETWEEN_SWAPS_S):
            (other,) = (found.id for found in list_generations(connection) if found.state != "serving")
            swap_generation(connection, log, other)
            swaps += 1

    thread = Thread(target=swap)
    thread.start()
    try:
        return run_apart("http_load", load)["p99_ms"], swaps
    finally:
        ended.set()
        thread.join()
