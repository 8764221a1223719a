"""Which executions a bulk prune may remove, and how its pages go on (row O15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvfold.reads.executor import Reader, read_pool
from kvfold.reads.orchestration import AwaitedValue, KvValue, awaited_value
from kvfold.reads.pruning import Prunable, PrunablePage, prunable
from kvfold.schemas.names import orchestration_scope
from support.projection_rows import ProjectionRows

pytestmark = pytest.mark.postgres


@pytest.fixture
def reader(postgres_dsn: str, rows: ProjectionRows) -> Iterator[Reader]:
    with read_pool(postgres_dsn, size_max=1) as pool:
        reader = Reader(pool)
        yield reader
        reader.close()


def executions(rows: ProjectionRows, instance_id: str, *ended_ms: int | None) -> None:
    """An instance whose executions ended at these times; None: its rows are gone. One more goes on."""
    rows.instance(instance_id, execution_id=len(ended_ms) + 1)
    for number, time_ms in enumerate([*ended_ms, -1], start=1):
        if time_ms is not None:
            rows.insert(
                "orchestration_execution",
                scope=orchestration_scope(instance_id),
                execution_id=number,
                status="Running" if time_ms < 0 else "ContinuedAsNew",
                input="null",
                kv_seed="{}",
                started_ms=0,
                ended_ms=None if time_ms < 0 else time_ms,
            )


def page(reader: Reader, **asked: Any) -> PrunablePage:
    given = {"prefix": "", "start": None, "keep_last": 1, "ended_before_ms": None, "limit": 100, **asked}
    return reader.read(prunable(**given)).value


@pytest.mark.row("O15")
def test_what_ended_before_a_time_and_is_not_among_the_last(rows: ProjectionRows, reader: Reader) -> None:
    executions(rows, "a", 10, 20, 30)
    executions(rows, "b")
    executions(rows, "c", None, 15, 15)
    everything = (Prunable("a", (1, 2, 3)), Prunable("c", (2, 3)))
    assert page(reader) == PrunablePage(everything, None)
    assert page(reader, keep_last=2).instances == (Prunable("a", (1, 2)), Prunable("c", (2,)))
    assert page(reader, keep_last=4).instances == ()
    assert page(reader, keep_last=2**63 - 1).instances == ()
    assert page(reader, ended_before_ms=20).instances == (Prunable("a", (1,)), Prunable("c", (2, 3)))
    assert page(reader, ended_before_ms=20, keep_last=3).instances == (Prunable("a", (1,)),)


@pytest.mark.row("O15")
@pytest.mark.parametrize(
    "bounds", [{"limit": 1}, {"visited_max": 1}, {"executions_max": 1}, {"limit": 2, "visited_max": 3}]
)
def test_pages_go_on_where_the_last_one_ended(
    rows: ProjectionRows, reader: Reader, bounds: dict[str, int]
) -> None:
    for name in ("", "a", "a/1", "a0", "b", "ä", "🦊"):
        executions(rows, "p" + name, 10, 20)
    executions(rows, "idle")
    executions(rows, "q", 10)
    found = list[Prunable]()
    start, pages = None, 0
    while True:
        got = page(reader, prefix="p", start=start, **bounds)
        found += got.instances
        for instance in got.instances:
            for number in instance.execution_ids:
                rows.execute(
                    "DELETE FROM {g}.orchestration_execution WHERE scope = %s AND execution_id = %s",
                    orchestration_scope(instance.instance_id),
                    number,
                )
        start, pages = got.next_start, pages + 1
        if start is None:
            break
        assert pages < 100
    names = sorted({instance.instance_id for instance in found}, key=str.encode)
    assert names == sorted(["p", "pa", "pa/1", "pa0", "pb", "pä", "p🦊"], key=str.encode)
    assert sum(len(instance.execution_ids) for instance in found) == 14


@pytest.mark.row("O8")
def test_an_awaited_value_comes_with_its_instances_status(rows: ProjectionRows, reader: Reader) -> None:
    rows.instance("i")
    rows.kv("i", "k", "", execution_id=3)
    rows.instance("over", status="Completed")
    rows.kv("none", "k", "left over")

    def awaited(instance_id: str, key: str) -> AwaitedValue:
        partition = rows.partition(orchestration_scope(instance_id))
        return reader.read(awaited_value(instance_id, key, partition=partition)).value

    assert awaited("i", "k") == AwaitedValue("Running", KvValue("", 3))
    assert awaited("i", "other") == AwaitedValue("Running", None)
    assert awaited("over", "k") == AwaitedValue("Completed", None)
    assert awaited("none", "k") == AwaitedValue(None, None)
    assert awaited("i", "k").goes_on and not awaited("over", "k").goes_on and not awaited("none", "k").goes_on
