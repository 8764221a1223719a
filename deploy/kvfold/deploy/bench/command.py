"""`kvfold bench`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, Never

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvfold.deploy.bench.result import Result
    from kvfold.deploy.bench.sizes import Sizes

__all__ = ["bench"]

_CAPSULE: Final = ("capsule-set", "capsule-threads", "capsule-spread", "capsule-get")
_VOLATILE: Final = ("volatile-put", "volatile-get")
_REPLAY: Final = ("rebuild", "rebuild-two-workers", "swap-reads", "as-of", "watch")
_ORCHESTRATION: Final = ("orchestrations-200", "orchestrations-10", "orchestration-latency")
_GROUPS: Final = {
    "capsule": _CAPSULE,
    "orchestration": _ORCHESTRATION,
    "replay": _REPLAY,
    "volatile": _VOLATILE,
}
_NAMES: Final = (
    "projector",
    "write-latency",
    "point-reads",
    *_CAPSULE,
    "deployment-put",
    *_ORCHESTRATION,
    *_REPLAY,
    *_VOLATILE,
)


@click.command
@click.argument("name", required=False, type=click.Choice((*_NAMES, *_GROUPS)))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a bench.")
@click.option("--quick", is_flag=True, help="Small sizes: ratios for a glance, in some two minutes.")
@click.option("--check", is_flag=True, help="Exit with 1 where a ratio misses its target.")
def bench(name: str | None, as_json: bool, quick: bool, check: bool) -> None:
    """Measure what kvfold reaches here, next to what the same work costs without it.

    Needs a Kafka broker in KVFOLD_KAFKA (`volatile` does not). PostgreSQL is the server in KVFOLD_POSTGRES, whose user
    may create databases, else one in a temporary directory. Topics and databases are made for the run, deleted afterwards.
    Without NAME, all benches run; that takes some minutes. `capsule` is the four of capsules, `orchestration`
    the three of durable orchestrations, `replay` the five of generations and watchers, `volatile` the two of the volatile
    tier, on the Redis in REDIS_URL or else on one that is started for the run.

    \b
    Example:
      KVFOLD_KAFKA=127.0.0.1:9092 kvfold bench projector
      KVFOLD_KAFKA=127.0.0.1:9092 kvfold bench --quick --json
    """
    from kvfold.deploy.bench.sizes import FULL, QUICK

    with _terminated_like_interrupted():
        results = []
        for result in _run(_named(name), QUICK if quick else FULL):
            results.append(result)
            if as_json:
                click.echo(json.dumps(result.line()))
    if not as_json:
        _show(results)
    missed = [result.spec.name for result in results if not result.meets_target()]
    if check and missed:
        fail(f"below the target: {', '.join(missed)}", EXIT_REFUSED)


def _named(name: str | None) -> Sequence[str]:
    """The benches of a name: all of them, those of a group, or the one."""
    if name is None:
        return _NAMES
    return _GROUPS.get(name, (name,))


def _run(names: Sequence[str], sizes: Sizes) -> Iterator[Result]:
    """Runs benches on one stage, and gives each result when it is there."""
    from kvfold.deploy.bench import (
        as_of_reads,
        capsules,
        deployment_put,
        orchestrations,
        point_reads,
        projecting,
        rebuilding,
        swapping,
        volatile,
        watching,
        write_latency,
    )
    from kvfold.deploy.bench.stage import opened_stage
    from kvfold.deploy.environment import started_process

    runs = {
        module.SPEC.name: module.run
        for module in (
            projecting,
            write_latency,
            point_reads,
            deployment_put,
            swapping,
            as_of_reads,
            watching,
        )
    }
    runs |= {
        capsules.SET.name: capsules.run_set,
        capsules.THREADS.name: capsules.run_threads,
        capsules.SPREAD.name: capsules.run_spread,
        capsules.GET.name: capsules.run_get,
        orchestrations.MANY.name: orchestrations.run_many,
        orchestrations.SOME.name: orchestrations.run_some,
        orchestrations.LATENCY.name: orchestrations.run_latency,
        rebuilding.SPEC.name: rebuilding.run,
        rebuilding.SPEC_TWO.name: rebuilding.run_two,
    }
    without_stage = {volatile.PUT.name: volatile.run_put, volatile.GET.name: volatile.run_get}
    settings = started_process(level_unless_set="warning")

    def tell(name: str) -> Callable[[str], None]:
        return lambda line: click.echo(f"{name}: {line}", err=True)

    staged = [name for name in names if name in runs]
    if staged:
        with opened_stage(settings) as stage:
            for name in staged:
                yield runs[name](stage, sizes, tell(name))
    for name in names:
        if name in without_stage:
            yield without_stage[name](settings, sizes, tell(name))


def _show(results: Sequence[Result]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("bench", "unit")
    for heading in ("figure", "floor", "ratio", "target"):
        table.add_column(heading, justify="right")
    for result in results:
        digits = 0 if result.floor >= 100 else 2
        table.add_row(
            result.spec.name,
            result.spec.unit,
            f"{result.figure:,.{digits}f}",
            f"{result.floor:,.{digits}f}",
            f"[{'green' if result.meets_target() else 'red'}]{result.ratio:.2f}",
            result.spec.target_text(),
        )
    Console(file=sys.stdout).print(table)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM cleans up as Ctrl-C does: what was made for the run goes."""

    def stop(number: int, frame: FrameType | None) -> Never:
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
