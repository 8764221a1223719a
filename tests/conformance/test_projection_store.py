"""The same log folds to the same rows, whatever the store and however it is cut into batches (row X2)."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from kvfold.log.memory import MemoryLog
from kvfold.producers.orchestration import OrchestrationContext, Registry
from kvfold.projector.batch import prepare, project
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.needs import needs
from kvfold.projector.partition import PartitionFold
from kvfold.projector.store import FencedError, ProjectionStore
from kvfold.schemas.record import Record
from support.mutations import (
    batch_delete,
    batch_set,
    capsule_batch,
    capsule_set,
    instance_events,
    instance_started,
    key_set,
    record_of,
)
from support.orchestration_world import World
from support.projection import (
    content,
    content_hash,
    differences,
    fold_in_memory,
    fold_records,
    read_log,
    set_up,
    store_for,
)
from support.workload import Workload

PARTITIONS = 3
OF_RUNTIME = {f"orchestration_{name}" for name in ("queue", "inbox", "task", "child", "outbox")}


def gappy_log(seed: int, records: int) -> tuple[MemoryLog, dict[int, list[Record]], dict[int, int]]:
    chance = Random(seed)
    now = iter(range(1_700_000_000_000, 1_800_000_000_000, 1_000))
    # Broker time steps back now and then, and offsets have gaps.
    log = MemoryLog(
        partition_count=PARTITIONS,
        clock=lambda: next(now) - chance.choice((0, 0, 5_000)),
        gap=lambda partition, offset: chance.choice((0, 0, 0, 1, 3)),
    )
    workload = Workload(chance, partition_count=PARTITIONS)
    for _ in range(records):
        log.append(*workload.draw()).result(0)
    return log, *read_log(log)


@pytest.mark.row("X2")
@pytest.mark.postgres
@pytest.mark.parametrize("batch_size", [1, 7, 1_000])
def test_memory_and_postgres_hold_the_same_rows_for_every_batch_size(
    postgres_dsn: str, batch_size: int
) -> None:
    log, records, offsets = gappy_log(seed=1, records=900)
    set_up(postgres_dsn, log)
    store = store_for(postgres_dsn)
    for partition in range(PARTITIONS):
        fold_records(
            store, records[partition], partition=partition, partition_count=PARTITIONS, batch_size=batch_size
        )
        PartitionFold(partition, epoch=0, state=store.state(partition)).fold(store, [], offsets[partition])

    expected = content(fold_in_memory(records, offsets), range(PARTITIONS))
    actual = content(store, range(PARTITIONS))
    store.close()
    assert differences(expected, actual) == {}
    assert content_hash(expected) == content_hash(actual)
    statuses = {row[8] for row in expected["decision"]}
    assert statuses == {"applied", "conflict", "rejected"}, "the workload reaches every outcome"
    unreached = {table for table, rows in expected.items() if not rows}
    assert unreached <= OF_RUNTIME, "the workload reaches every table but those of `runtime` instances"


@pytest.mark.row("X2")
@pytest.mark.postgres
@pytest.mark.parametrize("batch_size", [1, 7, 1_000])
def test_memory_and_postgres_hold_the_same_rows_of_runtime_instances(
    postgres_dsn: str, batch_size: int
) -> None:
    """Half way through, so that inboxes, tasks and outboxes hold something."""
    world = half_way()
    set_up(postgres_dsn, MemoryLog(partition_count=1, clock=lambda: 0))
    store = store_for(postgres_dsn)
    fold_records(store, world.log, partition=0, partition_count=1, batch_size=batch_size)
    expected, actual = content(world.projection, [0]), content(store, [0])
    store.close()
    assert differences(expected, actual) == {}
    assert {table for table in OF_RUNTIME if not expected[table]} == set()


def half_way() -> World:
    """Orchestrations with activities, timers, events, children and continue-as-new, none of them at its end."""
    registry = Registry()

    @registry.orchestration
    async def main(ctx: OrchestrationContext, rounds: int) -> Any:
        ctx.set_value("round", str(rounds))
        await ctx.when_all(*[ctx.schedule_activity("echo", number) for number in range(3)])
        await ctx.timer(timedelta(seconds=2))
        await ctx.sub_orchestration("kid", rounds)
        if rounds > 0:
            ctx.continue_as_new(rounds - 1)
        await ctx.wait_for_event("go")

    @registry.orchestration
    async def kid(ctx: OrchestrationContext, number: int) -> Any:
        return await ctx.schedule_activity("echo", number)

    registry.activity(lambda _, input: input, name="echo")
    world = World(registry)
    for number in range(6):
        world.start(f"i{number}", "main", number)
        for _ in range(4 * number):
            if world.step() == 0:
                world.skip_time()
        world.raise_event(f"i{number}", "other")
    world.send("instance-deleted", "i5", {})
    world.start("last", "main", 1)
    world.turns.step(10)
    world.activities.step(10)
    return world


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest) -> ProjectionStore:
    if request.param == "memory":
        return MemoryStore()
    dsn = request.getfixturevalue("postgres_dsn")
    set_up(dsn, MemoryLog(partition_count=PARTITIONS, clock=lambda: 0))
    return store_for(dsn)


def some_records(count: int) -> list[Record]:
    return [record_of(capsule_set(f"k{n}"), offset=n) for n in range(count)]


@pytest.mark.row("X3")
@pytest.mark.parametrize("count", [1, 200])
def test_a_commit_with_an_old_epoch_writes_nothing(store: ProjectionStore, count: int) -> None:
    with pytest.raises(FencedError):
        fold_records(store, some_records(count), partition=0, partition_count=1, batch_size=1_000, epoch=7)
    assert store.state(0).offset_next == 0
    assert not any(rows for table, rows in content(store, ()).items() if table != "partition_offset")
    store.close()


@pytest.mark.row("X3")
@pytest.mark.parametrize("count", [1, 200])
def test_a_commit_from_an_old_offset_writes_nothing(store: ProjectionStore, count: int) -> None:
    records = some_records(count)
    stale = PartitionFold(0, epoch=0, state=store.state(0))
    fold_records(store, records, partition=0, partition_count=1, batch_size=1_000)
    before = content(store, [0])
    steps = prepare(records, 1)
    loaded = store.load(0, needs(steps))
    loaded.partition = loaded.partition._replace(offset_next=stale.offset_next)
    with pytest.raises(FencedError):
        store.commit(project(steps, loaded, partition=0, offset_next=count), epoch=0)
    assert content(store, [0]) == before
    store.close()


def test_one_record_may_write_many_rows(store: ProjectionStore) -> None:
    """A batch of one record is small by its decisions, and its rows may still be many."""
    keys = [f"k{n}" for n in range(1_024)]
    mutations = [
        capsule_batch(*map(batch_set, keys)),
        capsule_batch(*map(batch_set, keys)),
        capsule_batch(*map(batch_delete, keys)),
        instance_started(),
        instance_events(*(key_set(f"k{n % 10}") for n in range(1_024))),
    ]
    records = [record_of(mutation, offset=offset) for offset, mutation in enumerate(mutations)]
    fold_records(store, records, partition=0, partition_count=1, batch_size=1)
    assert {row[8] for row in store.rows("decision")} == {"applied"}
    assert [len(list(store.rows(table))) for table in ("capsule_entry", "capsule_entry_history")] == [
        0,
        2_048,
    ]
    assert len(list(store.rows("orchestration_event"))) == 1_024
    store.close()


def test_an_empty_batch_moves_the_offset(store: ProjectionStore) -> None:
    PartitionFold(0, epoch=0, state=store.state(0)).fold(store, [], 5)
    assert store.state(0).offset_next == 5
    store.close()
