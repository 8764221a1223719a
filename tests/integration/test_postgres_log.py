"""The embedded log: made once, several writers, locks, lost connections, a server that dies or hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from conformance.log_contract import WAIT_S, append, opened, read, small, values
from conformance.log_load import OUTAGE_S, Writers, append_again, check_log, read_on
from kvfold.log.postgres import PostgresLog
from kvfold.log.statements import statement
from kvfold.schemas.errors import LogDivergedError, LogMisconfiguredError, LogUnavailableError
from kvfold.schemas.record import NewRecord

if TYPE_CHECKING:
    from kvfold.deploy.embedded_postgres import EmbeddedPostgres

__all__: list[str] = []

pytestmark = pytest.mark.postgres

PARTITIONS: Final = 2
APPEND_TIMEOUT_MS: Final = 2_000
WRITER: Final = """
import sys
from kvfold.log.postgres import PostgresLog
from kvfold.schemas.record import NewRecord

log = PostgresLog.open(sys.argv[1], partition_count=None)
futures = [log.append(0, NewRecord(b"k", (), f"{sys.argv[2]}-{number}".encode())) for number in range(3_000)]
for number, future in enumerate(futures):
    print(f"{sys.argv[2]}-{number}", future.result(60).offset)
log.close()
"""


@pytest.fixture
def log(postgres_dsn: str) -> Iterator[PostgresLog]:
    with opened_log(postgres_dsn) as log:
        yield log


@contextmanager
def opened_log(dsn: str, application_name: str = "kvfold-log-under-test") -> Iterator[PostgresLog]:
    dsn = make_conninfo(dsn, application_name=application_name)
    log = PostgresLog.open(dsn, partition_count=PARTITIONS, append_timeout_ms=APPEND_TIMEOUT_MS)
    try:
        yield log
    finally:
        log.close()


@pytest.fixture
def operator(postgres_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection beside the log's own."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        yield connection


class TestMakingTheLog:
    def test_processes_that_start_together_make_one_log(self, postgres_dsn: str) -> None:
        barrier = threading.Barrier(6)

        def start(_: int) -> str:
            barrier.wait(WAIT_S)
            log = PostgresLog.open(postgres_dsn, partition_count=3)
            try:
                return log.describe().log_id
            finally:
                log.close()

        with ThreadPoolExecutor(6) as threads:
            assert len(set(threads.map(start, range(6)))) == 1

    def test_another_partition_count_is_refused_with_the_remedy(self, postgres_dsn: str) -> None:
        PostgresLog.open(postgres_dsn, partition_count=3).close()
        with pytest.raises(
            LogMisconfiguredError, match=r"made with 3 partitions and 4 .*KVFOLD_PARTITIONS=3"
        ):
            PostgresLog.open(postgres_dsn, partition_count=4)
        log = PostgresLog.open(postgres_dsn, partition_count=None)
        assert log.describe().partition_count == 3
        log.close()

    def test_no_log_and_no_count(self, postgres_dsn: str) -> None:
        with pytest.raises(LogMisconfiguredError):
            PostgresLog.open(postgres_dsn, partition_count=None)

    def test_no_server(self) -> None:
        with pytest.raises(LogUnavailableError):
            PostgresLog.open("host=127.0.0.1 port=1 user=nobody", partition_count=1)

    def test_tables_that_are_gone_are_named(
        self, log: PostgresLog, operator: psycopg.Connection[Any]
    ) -> None:
        operator.execute("DROP SCHEMA kvfold_log CASCADE")
        for question in (log.describe, lambda: log.bounds([0])):
            with pytest.raises(LogMisconfiguredError, match="tables of the embedded log are gone"):
                question()
        with pytest.raises(LogUnavailableError, match="tables of the embedded log are gone"):
            log.append(0, small("x")).result(WAIT_S)


class TestWriters:
    def test_two_processes_append_to_one_partition(self, log: PostgresLog, postgres_dsn: str) -> None:
        command = [sys.executable, "-c", WRITER, postgres_dsn]
        writers = [
            subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in ("a", "b")
        ]
        with opened(log, {0: 0}) as reader:
            found = read(reader, {0: 6_000})[0]  # while they write
        answers: dict[str, int] = {}
        for writer in writers:
            output, _ = writer.communicate(timeout=OUTAGE_S)
            assert writer.returncode == 0
            answers |= {text: int(offset) for text, offset in (line.split() for line in output.splitlines())}
        # Dense, in the order in which they became visible, each where its acknowledgement says, none twice.
        assert [record.offset for record in found] == list(range(6_000))
        assert {text: place for place, text in enumerate(values(found))} == answers
        times = [record.timestamp_ms for record in found]
        assert times == sorted(times)

    def test_times_never_step_back(self, log: PostgresLog, operator: psycopg.Connection[Any]) -> None:
        [first] = append(log, 0, small("a"))
        ahead = first.timestamp_ms + 3_600_000
        operator.execute(
            "UPDATE kvfold_log.log_partition SET timestamp_ms = %s WHERE partition = 0", (ahead,)
        )
        assert append(log, 0, small("b"))[0].timestamp_ms == ahead
        assert append(log, 1, small("c"))[0].timestamp_ms < ahead

    def test_a_locked_partition_delays_only_itself(
        self, log: PostgresLog, operator: psycopg.Connection[Any]
    ) -> None:
        append(log, 0, small("before"))
        with operator.transaction():
            operator.execute("SELECT FROM kvfold_log.log_partition WHERE partition = 0 FOR UPDATE")
            locked = [log.append(0, small(f"locked-{number}")) for number in range(3)]
            append(log, 1, small("free"))
            for future in locked:
                with pytest.raises(LogUnavailableError):
                    future.result(OUTAGE_S)
            # Nobody is left behind on the server to take the lock for a client that is gone.
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%log_partition%'"
            deadline = monotonic() + WAIT_S
            while operator.execute(waiting).fetchone() != (0,):
                assert monotonic() < deadline
        append(log, 0, small("after"))
        with opened(log, {0: 0}) as reader:
            assert values(read(reader, {0: 2})[0]) == ["before", "after"]


class TestLostConnections:
    def test_idle_connections_that_the_server_closed_cost_no_append(
        self, log: PostgresLog, operator: psycopg.Connection[Any]
    ) -> None:
        with opened(log, {0: 0}) as reader:
            append(log, 0, small("a"))
            assert values(read(reader, {0: 1})[0]) == ["a"]
            assert log.bounds([0])[0].end == 1
            terminate(operator)
            append(log, 0, small("b"))
            assert log.bounds([0])[0].end == 2
            assert values(read(reader, {0: 2})[0]) == ["b"]

    def test_terminated_backends_under_load(
        self, log: PostgresLog, operator: psycopg.Connection[Any]
    ) -> None:
        with (
            opened(log, {0: 0}) as reader,
            Writers(log, threads=4, partition_count=PARTITIONS) as writers,
        ):
            for _ in range(5):
                writers.wait_for_acknowledgements(200)
                terminate(operator)
            writers.wait_for_acknowledgements(200)
            assert read_on(reader, past=writers.end(0))[0].offset == 0
        records = check_log(log, writers, range(PARTITIONS))
        check_dense(records)

    def test_a_lost_notification_is_made_up_for(
        self, log: PostgresLog, operator: psycopg.Connection[Any]
    ) -> None:
        with opened(log, {0: 0}) as reader:
            assert not reader.poll(timeout_ms=0, records_max=10, bytes_max=1_000)
            # An append whose process died before it notified.
            parameters = {"partition": 0, "count": 1, "keys": [b"k"], "headers": [b""], "values": [b"silent"]}
            operator.execute(statement("append"), parameters, binary=True)
            [batch] = reader.poll(timeout_ms=int(WAIT_S * 1_000), records_max=10, bytes_max=1_000)
            assert values(list(batch.records)) == ["silent"]

    def test_foreign_notifications_do_no_harm(
        self, log: PostgresLog, operator: psycopg.Connection[Any]
    ) -> None:
        with opened(log, {0: 0}) as reader:
            assert not reader.poll(timeout_ms=0, records_max=10, bytes_max=1_000)
            for payload in ("", "x", "0", "0:", ":5", "0:x", "7:7", "0:99", "²:1"):
                operator.execute("SELECT pg_notify('kvfold_log', %s)", (payload,))
            assert not reader.poll(timeout_ms=200, records_max=10, bytes_max=1_000)
            append(log, 0, small("a"))
            assert values(read(reader, {0: 1})[0]) == ["a"]


class TestReading:
    def test_bytes_are_bounded_by_the_server(
        self, log: PostgresLog, operator: psycopg.Connection[Any]
    ) -> None:
        for _ in range(25):
            append(log, 0, *(NewRecord(b"k", (), bytes(256 * 1024)) for _ in range(4)))
        parameters = {
            "partition": 0,
            "offset": 0,
            "records_max": 4_000,
            "bytes_max": 1_000_000,
            "oversized": True,
        }
        explain = "EXPLAIN (ANALYZE, BUFFERS, SERIALIZE BINARY, FORMAT JSON) "
        row = operator.execute(explain.encode() + statement("select_records").encode(), parameters).fetchone()
        assert row is not None
        plan = row[0][0]
        assert plan["Plan"]["Actual Rows"] == 3
        output = plan["Serialization"]
        # All the values are 25 MiB, or 3,200 pages; what is returned are 3 of 100.
        pages = sum(
            plan["Plan"][name] + output.get(name, 0) for name in ("Shared Hit Blocks", "Shared Read Blocks")
        )
        assert pages < 600
        with opened(log, {0: 0}) as reader:
            [batch] = reader.poll(timeout_ms=0, records_max=4_000, bytes_max=1_000_000)
            assert len(batch.records) == 3

    def test_a_record_that_was_removed_from_the_middle_is_not_passed_over(
        self, log: PostgresLog, operator: psycopg.Connection[Any]
    ) -> None:
        append(log, 0, *(small(str(number)) for number in range(5)))
        with opened(log, {0: 0}) as reader:
            assert values(read(reader, {0: 2}, records_max=2)[0]) == ["0", "1"]
            operator.execute('DELETE FROM kvfold_log.log_record WHERE partition = 0 AND "offset" IN (2, 3)')
            with pytest.raises(LogDivergedError, match="0:2 of the embedded log was removed") as diverged:
                reader.poll(timeout_ms=100, records_max=10, bytes_max=1_000)
            assert diverged.value.partitions == (0,)
            reader.assign({0: 4})
            operator.execute("UPDATE kvfold_log.log_partition SET offset_next = 9 WHERE partition = 0")
            append(log, 0, small("9"))
            assert values(read(reader, {0: 5})[0]) == ["4"], "what stands before the hole is given"
            with pytest.raises(LogDivergedError, match="0:5 of the embedded log was removed"):
                reader.poll(timeout_ms=100, records_max=10, bytes_max=1_000)


@pytest.mark.slow
class TestAServerThat:
    def test_dies_under_load(self, own_postgres_server: EmbeddedPostgres) -> None:
        with (
            opened_log(own_postgres_server.dsn) as log,
            opened(log, {0: 0}) as reader,
            Writers(log, threads=4, partition_count=PARTITIONS) as writers,
        ):
            writers.wait_for_acknowledgements(500)
            # A backend's death by SIGKILL makes the server recover from its log, with all connections cut. Whether an
            # append was under way at that moment is chance.
            os.kill(backends(own_postgres_server.dsn)[0], signal.SIGKILL)
            writers.wait_for_acknowledgements(500)
            failed = len(writers.failed)
            os.kill(own_postgres_server.pid, signal.SIGKILL)
            writers.wait_for_failures(20, since=failed)
            own_postgres_server.restart()
            writers.wait_for_acknowledgements(500)
            assert read_on(reader, past=writers.end(0))[0].offset == 0
            writers.__exit__()
            check_dense(check_log(log, writers, range(PARTITIONS)))

    def test_hangs(self, own_postgres_server: EmbeddedPostgres) -> None:
        with opened_log(own_postgres_server.dsn) as log, opened(log, {0: 1}) as reader:
            append(log, 0, small("before"))
            assert log.bounds([0])[0].end == 1
            assert not reader.poll(timeout_ms=200, records_max=10, bytes_max=1_000)
            stopped = [own_postgres_server.pid, *backends(own_postgres_server.dsn)]
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            try:
                begun = monotonic()
                futures = [log.append(0, small(f"hanging-{number}")) for number in range(3)]
                assert monotonic() - begun < APPEND_TIMEOUT_MS / 1000, "append does not wait"
                for future in futures:
                    with pytest.raises(LogUnavailableError):
                        future.result(OUTAGE_S)
                with pytest.raises(LogUnavailableError):
                    log.append(0, small("queued")).result(OUTAGE_S)
                with pytest.raises(LogUnavailableError):
                    log.bounds([0])
                with pytest.raises(LogUnavailableError):
                    deadline = monotonic() + OUTAGE_S
                    while monotonic() < deadline:
                        assert not reader.poll(timeout_ms=200, records_max=10, bytes_max=1_000)
            finally:
                for pid in stopped:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
            last = append_again(log, 0, "after")
            found = values(read_on(reader, past=last.offset))
            assert found[-1] == "after"
            assert "queued" not in found, "a record that failed in the queue is never sent"


def backends(dsn: str) -> list[int]:
    """The processes that serve the log's connections."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'kvfold-log-under-test'"
        )
        return [pid for (pid,) in rows]


def terminate(operator: psycopg.Connection[Any]) -> None:
    """Ends the log's connections and waits until they are gone."""
    ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'kvfold-log-under-test'"
    assert operator.execute(ended).fetchall()


def check_dense(records: list[Any]) -> None:
    """Offsets without gaps, times that never step back."""
    for partition in range(PARTITIONS):
        mine = [record for record in records if record.partition == partition]
        assert [record.offset for record in mine] == list(range(len(mine)))
        assert [record.timestamp_ms for record in mine] == sorted(record.timestamp_ms for record in mine)
