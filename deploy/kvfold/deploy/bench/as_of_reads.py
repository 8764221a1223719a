"""Bench `as-of`: GET requests a second of one query-API process as of a position, against the same without one.

Half of the log is folded again on top of the keys, so that the reads as of the first half's end find their values in the
histories. The floor is the plain read, which `point-reads` holds against a bare server.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import psycopg

from kvfold.deploy.bench.point_reads import await_port, get_load
from kvfold.deploy.bench.projecting import fold_all
from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, free_port, kvfold_process, run_apart
from kvfold.deploy.bench.workload import fill, mutations, path_of
from kvfold.schemas.partitioning import partition_of

__all__ = ["SPEC", "run"]

SPEC: Final = Spec("as-of", "requests/s", target=0.5, more_is_better=True)

_HOST: Final = "127.0.0.1"


def run(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Folds each key, then half of them again, and asks for all as of before and as of now in turn."""
    keys = sizes.read_keys
    rounds = []
    with ExitStack() as stack:
        kafka, dsn = stack.enter_context(stage.topic()), stack.enter_context(stage.database())
        tell(f"writing and folding {keys:,} mutations")
        fill(kafka, keys)
        fold_all(kafka, dsn, keys)
        with psycopg.connect(dsn) as connection:
            ends: dict[int, int] = dict(
                connection.execute(
                    "SELECT partition, offset_next - 1 FROM kvfold_g1.partition_offset"
                ).fetchall()
            )
        fill(kafka, keys // 2)
        fold_all(kafka, dsn, keys + keys // 2)
        port = free_port()
        process = stack.enter_context(
            kvfold_process("query-api", kafka=kafka, dsn=dsn, HOST=_HOST, PORT=str(port))
        )
        await_port(process, port)
        asked = list(mutations(keys))
        plain = [path_of(mutation) for mutation in asked]
        partitions = [partition_of(mutation.scope.encode(), len(ends)) for mutation in asked]
        past = [f"{path}?as_of={p}:{ends[p]}" for path, p in zip(plain, partitions, strict=True)]
        for number in range(1, sizes.read_rounds + 1):
            figure = run_apart("http_load", get_load(past, sizes) | {"port": port})["per_second"]
            floor = run_apart("http_load", get_load(plain, sizes) | {"port": port})["per_second"]
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.read_rounds}: {figure:,.0f}/s, floor {floor:,.0f}/s")
    return Result.of(SPEC, rounds)
