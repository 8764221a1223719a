"""Killed, stopped, cut off: nothing lost, nothing twice, no manual step (row X3; clickhouse-sink-connector#1299,
seatunnel#11474, kafka-flow#732, librdkafka#1767).

Every test appends a log, lets the fault happen, waits until all is folded, and compares every table with a fold in memory.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog
from kvfold.projector import postgres_store
from support.cutting_proxy import CuttingProxy
from support.failing_projector import BOUNDARIES, failpoint
from support.kvfold_process import KvfoldProcess
from support.projection import (
    append_all,
    content,
    differences,
    eventually,
    fold_in_memory,
    folded_offsets,
    read_log,
    store_for,
    wait_until_folded,
)
from support.projectors import postgres_log, running_projector, some_records

pytestmark = [pytest.mark.postgres, pytest.mark.row("X3")]
PARTITIONS = 3


@pytest.fixture
def log(postgres_dsn: str) -> Iterator[PostgresLog]:
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as opened:
        yield opened


def assert_equals_a_fold_in_memory(dsn: str, log: Log) -> None:
    wait_until_folded(dsn, log)
    expected = content(fold_in_memory(*read_log(log)), range(PARTITIONS))
    store = store_for(dsn)
    actual = content(store, range(PARTITIONS))
    store.close()
    assert differences(expected, actual) == {}


class Workers:
    """Projector processes on one database; ended with the test."""

    def __init__(self, dsn: str, folder: Path, stack: ExitStack) -> None:
        self._dsn = dsn
        self._folder = folder
        self._stack = stack
        self._count = 0

    def start(
        self, *, claim_ms: int = 10_000, fail: str | None = None, unbounded: bool = False
    ) -> KvfoldProcess:
        self._count += 1
        name = f"worker-{self._count}"
        environment = {
            "KVFOLD_POSTGRES": self._dsn,
            "KVFOLD_PARTITIONS": str(PARTITIONS),
            "KVFOLD_OWNER": name,
            "KVFOLD_CLAIM_MS": str(claim_ms),
            "KVFOLD_TELEMETRY_PORT": "0",
        }
        module = "kvfold.deploy.cli"
        if fail is not None:
            module = "support.failing_projector"
            environment |= {"KVFOLD_TEST_FAILPOINT": fail, "PYTHONPATH": str(Path(__file__).parents[1])}
            environment |= {"KVFOLD_TEST_UNBOUNDED": "1"} if unbounded else {}
        output = self._folder / f"{name}.log"
        return self._stack.enter_context(
            KvfoldProcess("projector", environment=environment, output=output, module=module)
        )


@pytest.fixture
def workers(postgres_dsn: str, tmp_path: Path) -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(postgres_dsn, tmp_path, stack)


@pytest.mark.slow
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_sigkill_at_each_boundary_of_a_commit(
    postgres_dsn: str, log: PostgresLog, workers: Workers, boundary: str
) -> None:
    append_all(log, some_records(1, 300))
    hits = 0
    for at in (1, 3):
        doomed = workers.start(fail=failpoint(boundary, at=at, send=signal.SIGKILL))
        append_all(log, some_records(at + 10, 200))
        assert doomed.wait() == -signal.SIGKILL
        hits += doomed.text().count(f"boundary reached: {boundary}")
    print(f"boundary {boundary}: hit {hits} times")
    assert hits == 2, "a kill that did not happen at its boundary proves nothing"
    workers.start()
    assert_equals_a_fold_in_memory(postgres_dsn, log)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_before_its_claim_expires(
    postgres_dsn: str, log: PostgresLog, workers: Workers
) -> None:
    first = workers.start(claim_ms=600_000)
    first.wait_for_event("projector ready")
    first.kill()
    append_all(log, some_records(2, 50))
    workers.start(claim_ms=600_000)
    assert_equals_a_fold_in_memory(postgres_dsn, log)


@pytest.mark.slow
def test_a_worker_stopped_past_its_claim_writes_nothing_when_it_goes_on(
    postgres_dsn: str, log: PostgresLog, workers: Workers
) -> None:
    zombie = workers.start(claim_ms=1_000, fail=failpoint("projected", at=2, send=signal.SIGSTOP))
    append_all(log, some_records(3, 100))
    zombie.wait_for_text("boundary reached: projected")
    successor = workers.start(claim_ms=600_000)
    append_all(log, some_records(4, 100))
    wait_until_folded(postgres_dsn, log)
    successor.wait_for_event("partition claimed", previous_owner="worker-1")
    before = folded_offsets(postgres_dsn)
    zombie.resume()
    zombie.wait_for_event("commit refused")
    assert folded_offsets(postgres_dsn) == before
    append_all(log, some_records(5, 100))
    assert_equals_a_fold_in_memory(postgres_dsn, log)


@pytest.mark.slow
def test_a_stopped_owner_that_holds_row_locks_is_ended(
    postgres_dsn: str, log: PostgresLog, workers: Workers
) -> None:
    stopped = workers.start(
        claim_ms=1_000, fail=failpoint("written", at=2, send=signal.SIGSTOP), unbounded=True
    )
    append_all(log, some_records(6, 100))
    stopped.wait_for_text("boundary reached: written")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        held = "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
        eventually(
            lambda: bool(connection.execute(held).fetchall()), "the stopped worker inside its transaction"
        )
    successor = workers.start(claim_ms=600_000)
    successor.wait_for_event("previous owner terminated", previous_owner="worker-1")
    append_all(log, some_records(7, 100))
    assert_equals_a_fold_in_memory(postgres_dsn, log)
    stopped.resume()
    append_all(log, some_records(8, 100))
    assert_equals_a_fold_in_memory(postgres_dsn, log)


def test_the_session_is_terminated_between_the_statements_and_the_commit(
    postgres_dsn: str, log: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = postgres_store._Write.all
    terminated: list[tuple[bool, ...] | None] = []

    def all_and_terminate(self: postgres_store._Write) -> None:
        write(self)
        if len(terminated) < 3:
            with psycopg.connect(postgres_dsn, autocommit=True) as connection:
                pid = self._cursor.connection.info.backend_pid
                terminated.append(connection.execute("SELECT pg_terminate_backend(%s)", (pid,)).fetchone())

    monkeypatch.setattr(postgres_store._Write, "all", all_and_terminate)
    monkeypatch.setattr(postgres_store._Write, "is_large", lambda self: True)
    append_all(log, some_records(9, 200))
    with running_projector(log, postgres_dsn):
        assert_equals_a_fold_in_memory(postgres_dsn, log)
    assert terminated == [(True,)] * 3


def test_a_full_disk_is_waited_out(
    postgres_dsn: str, log: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-connect-jdbc#1312: nothing is rejected, nothing pauses, and all goes on by itself."""
    write = postgres_store._Write.all
    left = [3]

    def all_but_the_first(self: postgres_store._Write) -> None:
        if left[0]:
            left[0] -= 1
            raise psycopg.errors.DiskFull("could not extend a file: no space left")
        write(self)

    monkeypatch.setattr(postgres_store._Write, "all", all_but_the_first)
    monkeypatch.setattr(postgres_store._Write, "is_large", lambda self: True)
    append_all(log, some_records(10, 200))
    with running_projector(log, postgres_dsn) as projector:
        assert_equals_a_fold_in_memory(postgres_dsn, log)
        assert dict(projector.telemetry._faults) == {"infrastructure": 3}
    assert left == [0]


@pytest.mark.parametrize("large", [False, True])
def test_the_answer_to_a_commit_is_lost(
    postgres_dsn: str, log: PostgresLog, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(postgres_dsn)
    proxy = CuttingProxy(f"{parts['host']}/.s.PGSQL.{parts['port']}")
    through_proxy = psycopg.conninfo.make_conninfo(
        postgres_dsn, host="127.0.0.1", port=proxy.port, sslmode="disable"
    )
    monkeypatch.setattr(postgres_store._Write, "is_large", lambda self: large)
    with running_projector(log, through_proxy) as projector:
        for seed in range(3):
            eventually(lambda: len(projector.telemetry.partitions()) == PARTITIONS, "all partitions held")
            wait_until_folded(postgres_dsn, log)
            proxy.arm()
            append_all(log, some_records(20 + seed, 60))
            eventually(lambda: not proxy.is_armed, "a COMMIT whose answer is lost")
            assert_equals_a_fold_in_memory(postgres_dsn, log)
    proxy.close()
    assert proxy.cuts == 3


def test_a_partition_that_goes_back_and_forth_resumes_from_postgres(
    postgres_dsn: str, log: PostgresLog
) -> None:
    for seed in range(3):
        with running_projector(log, postgres_dsn):
            append_all(log, some_records(30 + seed, 60))
            wait_until_folded(postgres_dsn, log)
            with running_projector(log, postgres_dsn) as second:
                eventually(lambda: len(second.telemetry.partitions()) >= 1, "a share for the second")
                append_all(log, some_records(40 + seed, 60))
                wait_until_folded(postgres_dsn, log)
    with running_projector(log, postgres_dsn):
        assert_equals_a_fold_in_memory(postgres_dsn, log)
