"""The readers: one statement with pointer and position; swaps, dropped schemas, a Postgres that goes and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from kvfold.reads.capsule import capsule_value
from kvfold.reads.decisions import decision_at
from kvfold.reads.deployment import DeploymentValue, deployment_namespaces, deployment_value
from kvfold.reads.executor import AsyncReader, Reader, async_read_pool, read_pool
from kvfold.reads.operations import progress
from kvfold.reads.query import Query, Read
from kvfold.schemas.errors import StoreUnavailableError
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.position import Position
from support.projection_rows import PARTITIONS, ProjectionRows

pytestmark = pytest.mark.postgres

T = TypeVar("T")

PARTITION = ProjectionRows.partition("d:dep")
QUERY = deployment_value("d:dep", "user", "k", partition=PARTITION)


class SyncDriver:
    """Reads from a thread."""

    def __init__(self, dsn: str, *, size_max: int = 4) -> None:
        self._pool = read_pool(dsn, size_max=size_max)
        self._pool.open()
        self.reader = Reader(self._pool)

    def read(self, query: Query[Any]) -> Read[Any]:
        return self.reader.read(query)

    def many(self, query: Query[Any], count: int) -> list[Read[Any]]:
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(self.reader.read, [query] * count))

    def partition_count(self) -> int:
        return self.reader.partition_count()

    def close(self) -> None:
        self.reader.close()
        self._pool.close()


class AsyncDriver:
    """Reads in an event loop."""

    def __init__(self, dsn: str, *, size_max: int = 4) -> None:
        self._runner = asyncio.Runner()
        self._pool = async_read_pool(dsn, size_max=size_max)
        self._run(self._pool.open)
        self.reader = AsyncReader(self._pool)

    def read(self, query: Query[Any]) -> Read[Any]:
        return self._run(lambda: self.reader.read(query))

    def many(self, query: Query[Any], count: int) -> list[Read[Any]]:
        async def reads() -> list[Read[Any]]:
            return await asyncio.gather(*(self.reader.read(query) for _ in range(count)))

        return self._run(reads)

    def partition_count(self) -> int:
        return self._run(self.reader.partition_count)

    def close(self) -> None:
        self._run(self._pool.close)
        self._runner.close()

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            return await work()

        return self._runner.run(run())


Driver = SyncDriver | AsyncDriver


@pytest.fixture(params=[SyncDriver, AsyncDriver])
def driver_type(request: pytest.FixtureRequest) -> type[Driver]:
    kind: type[Driver] = request.param
    return kind


@pytest.fixture
def driver(driver_type: type[Driver], postgres_dsn: str) -> Iterator[Driver]:
    driver = driver_type(postgres_dsn)
    yield driver
    driver.close()


@pytest.mark.row("X5")
def test_a_value_with_its_position(driver: Driver, rows: ProjectionRows) -> None:
    rows.deployment("dep", "user", "k", b"\x00\xff", version=3)
    rows.advance(PARTITION, 41)
    read = driver.read(QUERY)
    assert read.value == DeploymentValue(b"\x00\xff", 3)
    assert (read.position, read.generation) == (Position(PARTITION, 41), 1)


@pytest.mark.row("X5")
def test_an_absent_entry_has_a_position_too(driver: Driver, rows: ProjectionRows) -> None:
    assert driver.read(QUERY).position == Position(PARTITION, -1)
    assert driver.read(QUERY).value is None
    rows.deployment("dep", "user", "k", None)
    assert driver.read(QUERY).value is None
    assert driver.read(capsule_value("c:p:capsule:c", "k", partition=0)).value is None


@pytest.mark.row("C7")
def test_an_empty_value_is_a_value(driver: Driver, rows: ProjectionRows) -> None:
    rows.deployment("dep", "user", "k", b"")
    assert driver.read(QUERY).value == DeploymentValue(b"", 1)
    rows.capsule("p", "c", "k", b"")
    read = driver.read(capsule_value("c:p:capsule:c", "k", partition=0))
    assert read.value is not None
    assert read.value.value == b""


def test_a_read_over_partitions(driver: Driver, rows: ProjectionRows) -> None:
    rows.advance(2, 7)
    assert driver.read(progress()).positions == {0: -1, 1: -1, 2: 7, 3: -1}


@pytest.mark.row("X4")
def test_a_decision_by_position(driver: Driver, rows: ProjectionRows) -> None:
    mutation = uuid4()
    rows.decide(1, 3, mutation_id=mutation, version=9)
    rows.decide(1, 8, mutation_id=mutation, repeat_of=3, version=None)
    rows.decide(1, 9, repeat_of=2, version=5)  # the first decision is trimmed
    rows.decide(2, 4, scope=None, type=None, status="rejected", code="malformed", version=None)
    found = driver.read(decision_at(Position(1, 8))).value
    assert (found.position, found.decision.version, found.mutation_id) == (Position(1, 3), 9, str(mutation))
    found = driver.read(decision_at(Position(1, 9))).value
    assert (found.position, found.decision.version) == (Position(1, 9), 5)
    found = driver.read(decision_at(Position(2, 4))).value
    assert (found.scope, found.mutation_id, found.type) == (None, None, None)
    assert found.decision == Decision(DecisionStatus.REJECTED, "malformed")
    assert driver.read(decision_at(Position(1, 4))).value is None


def test_the_partition_count(driver: Driver, rows: ProjectionRows) -> None:
    assert driver.partition_count() == PARTITIONS
    rows.execute("DROP TABLE kvfold.log")
    assert driver.partition_count() == PARTITIONS


def test_before_there_is_a_projection(driver: Driver, postgres_dsn: str) -> None:
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="no generation"):
            driver.read(QUERY)
        with pytest.raises(StoreUnavailableError, match="no log"):
            driver.partition_count()
    ProjectionRows(postgres_dsn).close()
    assert driver.read(QUERY).value is None
    assert driver.partition_count() == PARTITIONS


@pytest.mark.row("X6")
def test_a_swap_is_followed_by_every_pooled_connection(driver: Driver, rows: ProjectionRows) -> None:
    """Pooled prepared statements survive the swap (psycopg#511): each connection has prepared the old one."""
    rows.deployment("dep", "user", "k", b"old")
    for _ in range(10):
        assert {read.value.value for read in driver.many(QUERY, 8)} == {b"old"}
    rows.new_generation(2)
    rows.execute(
        "INSERT INTO {g}.deployment_entry VALUES ('d:dep', 'user', 'k', 2, 'new', NULL, 0, 0)", generation=2
    )
    rows.swap(2)
    for _ in range(10):
        reads = driver.many(QUERY, 8)
        assert {(read.value.value, read.generation) for read in reads} == {(b"new", 2)}
    rows.swap(1)
    assert {read.generation for read in driver.many(QUERY, 8)} == {1}


@pytest.mark.row("X6")
def test_a_schema_that_is_dropped_right_after_the_swap(driver: Driver, rows: ProjectionRows) -> None:
    driver.many(QUERY, 8)
    rows.new_generation(2)
    rows.swap(2)
    rows.execute("DROP SCHEMA {g} CASCADE", generation=1)
    assert {read.generation for read in driver.many(QUERY, 8)} == {2}


def test_tables_that_come_back_otherwise_under_the_same_name(driver: Driver, rows: ProjectionRows) -> None:
    """0A000: the plan that a connection prepared is of the old table."""
    for _ in range(10):
        driver.many(QUERY, 4)
    rows.execute("DROP VIEW kvfold.deployment_entry")
    rows.execute("ALTER TABLE {g}.deployment_entry ALTER COLUMN version TYPE int")
    rows.deployment("dep", "user", "k", b"v")
    for _ in range(3):
        assert {read.value.version for read in driver.many(QUERY, 8)} == {1}


def test_a_serving_generation_without_tables(driver: Driver, rows: ProjectionRows) -> None:
    rows.swap(9)
    with pytest.raises(StoreUnavailableError):
        driver.read(QUERY)


def test_connections_that_postgres_closed_are_replaced(driver: Driver, rows: ProjectionRows) -> None:
    driver.many(QUERY, 16)
    rows.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kvfold-reads'"
    )
    assert len(driver.many(QUERY, 16)) == 16


@pytest.mark.slow
def test_postgres_goes_and_comes_back(
    driver_type: type[Driver], own_postgres_server: EmbeddedPostgres
) -> None:
    ProjectionRows(own_postgres_server.dsn).close()
    driver = driver_type(own_postgres_server.dsn)
    driver.read(QUERY)
    own_postgres_server.stop("immediate")
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        driver.read(QUERY)
    assert time.monotonic() - started < 20
    own_postgres_server.restart()
    assert driver.read(QUERY).value is None
    driver.close()


def test_a_server_that_does_not_answer(
    driver: Driver, rows: ProjectionRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is cut, and the read fails in bounded time."""
    monkeypatch.setattr("kvfold.reads.executor.READ_TIMEOUT_S", 0.2)
    monkeypatch.setattr("kvfold.reads.executor._RECONNECT_S", 0.1)
    rows.connection.execute("BEGIN")
    rows.execute("LOCK TABLE {g}.deployment_entry")
    with pytest.raises(StoreUnavailableError):
        driver.read(QUERY)
    rows.connection.execute("ROLLBACK")
    assert driver.read(QUERY).value is None


def test_namespaces_are_found_by_probes(driver: Driver, rows: ProjectionRows) -> None:
    for name in ("user", "user_secrets", "system"):
        rows.deployment("dep", name, "a", b"1")
        rows.deployment("dep", name, "b", b"1")
    rows.deployment("dep", "gone", "a", None)
    rows.deployment("other", "theirs", "a", b"1")
    found = driver.read(deployment_namespaces("d:dep", partition=PARTITION)).value
    assert found == ("system", "user", "user_secrets")
    assert driver.read(deployment_namespaces("d:none", partition=PARTITION)).value == ()
