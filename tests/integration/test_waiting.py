"""Waiting for positions and decisions (row X5; "read your write", lost notifications, restarts)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from kvfold.reads import waiting
from kvfold.reads.waiting import Waiter
from kvfold.schemas.errors import (
    GoneError,
    NotUpToPositionError,
    PartitionPausedError,
    StoreUnavailableError,
)
from kvfold.schemas.outcome import DecisionStatus
from kvfold.schemas.position import Position
from support.projection_rows import ProjectionRows

pytestmark = pytest.mark.postgres

LONG_S = 30.0  # a bound against hanging, never a measure


@pytest.fixture
def waiter(postgres_dsn: str) -> Iterator[Waiter]:
    waiter = Waiter(postgres_dsn)
    yield waiter
    waiter.close()


def wait_until_asked(waiter: Waiter) -> None:
    """The waiter has its connection and looked once: what comes now it learns by notification."""
    with pytest.raises(NotUpToPositionError):
        waiter.position_reached({0: 1_000_000}, 0.3).result(LONG_S)


@pytest.mark.row("X5")
def test_a_position_that_is_reached_already(waiter: Waiter, rows: ProjectionRows) -> None:
    rows.advance(2, 41)
    assert waiter.position_reached({2: 41}, LONG_S).result(LONG_S) is None
    assert waiter.position_reached({2: 41, 0: -1, 3: -1}, LONG_S).result(LONG_S) is None


@pytest.mark.row("X5")
def test_p_o_is_reached_when_the_next_offset_is_above_o(waiter: Waiter, rows: ProjectionRows) -> None:
    rows.advance(2, 40)
    pending = waiter.position_reached({2: 41}, LONG_S)
    rows.advance(1, 99)
    rows.notify(1, 99)
    assert waiter.position_reached({1: 99}, LONG_S).result(LONG_S) is None
    assert not pending.done()
    rows.advance(2, 41)
    rows.notify(2, 41)
    assert pending.result(LONG_S) is None


def test_a_position_over_partitions_waits_for_the_last(waiter: Waiter, rows: ProjectionRows) -> None:
    pending = waiter.position_reached({0: 5, 1: 7}, LONG_S)
    rows.advance(0, 5)
    rows.notify(0, 5)
    assert waiter.position_reached({0: 5}, LONG_S).result(LONG_S) is None
    assert not pending.done()
    rows.advance(1, 7)
    rows.notify(1, 7)
    pending.result(LONG_S)


def test_nothing_is_waited_for_where_nothing_is_demanded(waiter: Waiter) -> None:
    assert waiter.position_reached({}, LONG_S).done()
    assert waiter.position_reached({3: -1}, LONG_S).done()


def test_a_decision_and_its_fields(waiter: Waiter, rows: ProjectionRows) -> None:
    mutation = uuid4()
    pending = waiter.decision(Position(1, 3), LONG_S)
    rows.decide(
        1, 3, mutation_id=mutation, status="conflict", code="version-conflict", version=4, detail="later: é"
    )
    rows.advance(1, 3)
    rows.notify(1, 3)
    view = pending.result(LONG_S)
    assert view.position == Position(1, 3)
    assert (view.scope, view.mutation_id) == ("d:dep", str(mutation))
    decision = view.decision
    assert decision.status is DecisionStatus.CONFLICT
    assert (decision.code, decision.version, decision.removed) == ("version-conflict", 4, None)
    assert decision.detail == "later: é"


def test_a_repeat_gives_the_first_decision_with_the_first_position(
    waiter: Waiter, rows: ProjectionRows
) -> None:
    mutation = uuid4()
    rows.decide(1, 3, mutation_id=mutation, version=9)
    rows.decide(1, 8, mutation_id=mutation, repeat_of=3, version=None)
    rows.advance(1, 8)
    view = waiter.decision(Position(1, 8), LONG_S).result(LONG_S)
    assert view.position == Position(1, 3)
    assert view.decision.version == 9


def test_a_notification_before_the_waiter_knows_its_position(
    waiter: Waiter, rows: ProjectionRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The projector is often faster than the acknowledgement: the highest offset seen is kept."""
    wait_until_asked(waiter)
    # Without the net, which would make up for it.
    monkeypatch.setattr(waiting, "_NET_S", 3_600.0)
    noted = threading.Event()
    saw = waiter._saw

    def note(generation: int, partition: int, offset: int) -> None:
        saw(generation, partition, offset)
        if (partition, offset) == (1, 3):
            noted.set()

    monkeypatch.setattr(waiter, "_saw", note)
    rows.decide(1, 3)
    rows.advance(1, 3)
    rows.notify(1, 3)
    assert noted.wait(LONG_S)
    assert waiter.decision(Position(1, 3), LONG_S).result(LONG_S).position == Position(1, 3)


def test_several_wait_for_one_decision(waiter: Waiter, rows: ProjectionRows) -> None:
    futures = [waiter.decision(Position(1, 3), LONG_S) for _ in range(3)]
    rows.decide(1, 3)
    rows.advance(1, 3)
    rows.notify(1, 3)
    assert {future.result(LONG_S).position for future in futures} == {Position(1, 3)}


def test_a_lost_notification_costs_a_moment_only(waiter: Waiter, rows: ProjectionRows) -> None:
    pending = waiter.decision(Position(1, 3), LONG_S)
    reached = waiter.position_reached({1: 3}, LONG_S)
    rows.decide(1, 3)
    rows.advance(1, 3)
    assert pending.result(LONG_S).position == Position(1, 3)
    reached.result(LONG_S)


@pytest.mark.parametrize(
    "payload", ["", "nonsense", "1:2", "1:0:99999", "1:0:-5", "x:0:1", "9:9:9", "1:0:1:1"]
)
def test_a_forged_notification_changes_nothing(waiter: Waiter, rows: ProjectionRows, payload: str) -> None:
    pending = waiter.position_reached({0: 5}, LONG_S)
    rows.connection.execute("SELECT pg_notify('kvfold', %s)", (payload,))
    with pytest.raises(NotUpToPositionError):
        waiter.position_reached({0: 5}, 0.3).result(LONG_S)
    assert not pending.done()
    rows.advance(0, 5)
    rows.notify(0, 5)
    pending.result(LONG_S)


def test_a_position_not_reached_in_time(waiter: Waiter, rows: ProjectionRows) -> None:
    rows.advance(1, 2)
    with pytest.raises(NotUpToPositionError, match="1:3"):
        waiter.position_reached({1: 3}, 0.2).result(LONG_S)


def test_a_decision_that_does_not_come_in_time(waiter: Waiter, rows: ProjectionRows) -> None:
    with pytest.raises(NotUpToPositionError, match="1:3"):
        waiter.decision(Position(1, 3), 0.2).result(LONG_S)
    assert waiter.waiting_count == 0


def test_a_paused_partition_answers_at_once(waiter: Waiter, rows: ProjectionRows) -> None:
    rows.decide(1, 3)
    rows.advance(1, 3)
    rows.pause(1, "log-diverged", "the topic was made anew")
    with pytest.raises(PartitionPausedError, match="log-diverged"):
        waiter.decision(Position(1, 4), LONG_S).result(LONG_S)
    with pytest.raises(PartitionPausedError, match="partition 1"):
        waiter.position_reached({1: 4, 0: -1}, LONG_S).result(LONG_S)
    # What it has folded is there all the same.
    waiter.position_reached({1: 3}, LONG_S).result(LONG_S)
    waiter.decision(Position(1, 3), LONG_S).result(LONG_S)


def test_a_partition_that_pauses_under_a_waiter(waiter: Waiter, rows: ProjectionRows) -> None:
    pending = waiter.decision(Position(1, 4), LONG_S)
    wait_until_asked(waiter)
    rows.pause(1)
    with pytest.raises(PartitionPausedError):
        pending.result(LONG_S)


def test_a_decision_that_is_not_kept(waiter: Waiter, rows: ProjectionRows) -> None:
    rows.advance(1, 9)
    with pytest.raises(GoneError):
        waiter.decision(Position(1, 4), LONG_S).result(LONG_S)


def test_only_the_serving_generation_counts(waiter: Waiter, rows: ProjectionRows) -> None:
    """Read-your-write is true only if the serving generation has it (occurrent#865)."""
    rows.new_generation(2)
    position = waiter.position_reached({1: 3}, LONG_S)
    decision = waiter.decision(Position(1, 3), LONG_S)
    rows.insert(
        "decision", generation=2, partition=1, record_offset=3, status="applied", time_ms=1, version=77
    )
    rows.advance(1, 3, generation=2)
    rows.notify(1, 3, generation=2)
    with pytest.raises(NotUpToPositionError):
        waiter.position_reached({1: 3}, 0.3).result(LONG_S)
    assert not position.done() and not decision.done()
    rows.swap(2)
    position.result(LONG_S)
    assert decision.result(LONG_S).decision.version == 77


def test_a_serving_generation_that_is_dropped_after_a_swap(waiter: Waiter, rows: ProjectionRows) -> None:
    wait_until_asked(waiter)
    rows.new_generation(2)
    rows.swap(2)
    rows.execute("DROP SCHEMA {g} CASCADE", generation=1)
    rows.advance(1, 3, generation=2)
    waiter.position_reached({1: 3}, LONG_S).result(LONG_S)


def test_waiting_begins_before_there_is_a_projection(postgres_dsn: str) -> None:
    waiter = Waiter(postgres_dsn)
    pending = waiter.position_reached({1: 3}, LONG_S)
    rows = ProjectionRows(postgres_dsn)
    rows.advance(1, 3)
    pending.result(LONG_S)
    waiter.close()
    rows.close()


def test_a_lost_connection_is_made_again(waiter: Waiter, rows: ProjectionRows) -> None:
    pending = waiter.decision(Position(1, 3), LONG_S)
    wait_until_asked(waiter)
    statement = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kvfold-waiting'"
    )
    assert rows.connection.execute(statement).fetchall() == [(True,)]
    rows.decide(1, 3)
    rows.advance(1, 3)
    rows.notify(1, 3)
    assert pending.result(LONG_S).position == Position(1, 3)


def test_close_ends_the_waiting(postgres_dsn: str) -> None:
    waiter = Waiter(postgres_dsn)
    pending = waiter.decision(Position(1, 3), LONG_S)
    waiter.close()
    with pytest.raises(StoreUnavailableError):
        pending.result(LONG_S)
    with pytest.raises(StoreUnavailableError):
        waiter.position_reached({1: 3}, LONG_S).result(LONG_S)


def test_a_cancelled_waiter_is_forgotten(waiter: Waiter, rows: ProjectionRows) -> None:
    pending = waiter.position_reached({1: 3}, LONG_S)
    assert pending.cancel()
    assert waiter.waiting_count == 0
    rows.advance(1, 3)
    waiter.position_reached({1: 3}, LONG_S).result(LONG_S)


def test_many_waiters_share_few_queries(waiter: Waiter, rows: ProjectionRows) -> None:
    """One query per wake-up serves everyone."""
    wait_until_asked(waiter)
    for offset in range(200):
        rows.decide(1, offset, version=offset)
    futures = [waiter.decision(Position(1, offset), LONG_S) for offset in range(200)]
    rows.advance(1, 199)
    rows.notify(1, 199)
    assert [future.result(LONG_S).decision.version for future in futures] == list(range(200))


def test_an_idle_waiter_does_nothing(waiter: Waiter, rows: ProjectionRows) -> None:
    wait_until_asked(waiter)
    before = _cpu_of(waiter)
    time.sleep(0.5)
    assert _cpu_of(waiter) - before < 0.02


def _cpu_of(waiter: Waiter) -> float:
    thread = waiter._thread
    assert thread is not None and thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


@pytest.mark.slow
def test_waiters_go_on_over_a_restart_of_postgres(own_postgres_server: EmbeddedPostgres) -> None:
    dsn = own_postgres_server.dsn
    rows = ProjectionRows(dsn)
    rows.close()
    waiter = Waiter(dsn)
    pending = waiter.position_reached({1: 3}, LONG_S)
    wait_until_asked(waiter)
    own_postgres_server.stop("immediate")
    with pytest.raises(NotUpToPositionError):  # in time, though nothing answers
        waiter.position_reached({1: 3}, 0.3).result(LONG_S)
    own_postgres_server.restart()
    with psycopg.connect(own_postgres_server.dsn, autocommit=True) as connection:
        connection.execute("UPDATE kvfold_g1.partition_offset SET offset_next = 4 WHERE partition = 1")
    pending.result(LONG_S)
    waiter.close()


def test_waiters_of_many_threads(waiter: Waiter, rows: ProjectionRows) -> None:
    results: list[Future[Any]] = []
    lock = threading.Lock()

    def wait(first: int) -> None:
        for offset in range(first, 400, 8):
            future = waiter.decision(Position(offset % 4, offset), LONG_S)
            with lock:
                results.append(future)

    threads = [threading.Thread(target=wait, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for offset in range(400):
        rows.decide(offset % 4, offset)
        rows.advance(offset % 4, offset)
        rows.notify(offset % 4, offset)
    for thread in threads:
        thread.join()
    assert sorted(future.result(LONG_S).position.offset for future in results) == list(range(400))
