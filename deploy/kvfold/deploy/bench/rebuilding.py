"""Benches `rebuild` and `rebuild-two-workers`: records a second of `kvfold rebuild`, decisions compared.

A topic is filled, and `kvfold projector` folds it into a new database: that is the floor, what the bench `projector`
measures. Then `kvfold rebuild` folds it again beside those rows, and compares each decision with the recorded one. Time
begins when the workers hold the claims of all partitions, and ends when the offset rows have reached the end of the topic,
as for the floor.
"""

from __future__ import annotations

from typing import Final

from kvfold.deploy.bench.projecting import fold_all, watched_fold
from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, kvfold_process
from kvfold.deploy.bench.workload import fill

__all__ = ["SPEC", "SPEC_TWO", "run", "run_two"]

SPEC: Final = Spec("rebuild", "records/s", target=0.8, more_is_better=True)
SPEC_TWO: Final = Spec("rebuild-two-workers", "records/s", target=1.2, more_is_better=True)

_SCHEMA: Final = "kvfold_g2"


def run(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """With one worker."""
    return _run(stage, sizes, tell, SPEC, workers=1)


def run_two(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """With two workers, against the same floor of one projector."""
    return _run(stage, sizes, tell, SPEC_TWO, workers=2)


def _run(stage: Stage, sizes: Sizes, tell: Tell, spec: Spec, *, workers: int) -> Result:
    count = sizes.projector_mutations
    rounds = []
    with stage.topic() as kafka:
        tell(f"writing {count:,} mutations")
        fill(kafka, count)
        for number in range(1, sizes.projector_rounds + 1):
            with stage.database() as dsn:
                floor = count / fold_all(kafka, dsn, count)
                with kvfold_process("rebuild", "--workers", str(workers), kafka=kafka, dsn=dsn) as process:
                    figure = count / watched_fold(dsn, process, _SCHEMA, kafka.partition_count, count)
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.projector_rounds}: {figure:,.0f}/s, floor {floor:,.0f}/s")
    return Result.of(spec, rounds)
