"""Watchers while everything else fails: nothing is left out and nothing repeats (python-etcd3#729, eventsourcing#305)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psycopg
import pytest

from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from kvfold.deploy.http_server import HttpServer
from kvfold.log.memory import MemoryLog
from kvfold.log.port import Log
from kvfold.projector.generations import create_generation, serving_generation
from kvfold.projector.swapping import swap_generation
from kvfold.schemas.codec import encode
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.record import NewRecord
from support.failing_projector import BOUNDARIES, failpoint
from support.kvfold_process import KvfoldProcess
from support.mutations import deployment_put
from support.projection import append_all, eventually, read_log, wait_until_folded
from support.projection_rows import ProjectionRows
from support.projectors import postgres_log, running_projector, some_records
from support.watching import Seen, Stream, Watcher, check_seen, expected_changes, serving

pytestmark = [pytest.mark.postgres, pytest.mark.row("X10")]
PARTITIONS = 3


@contextmanager
def watchers(server: Callable[[], HttpServer], *, seed: int) -> Iterator[list[Watcher]]:
    """One that stays, one that hangs up again and again, one of a scope."""
    running = [
        Watcher(server),
        Watcher(server, chance=Random(seed)),
        Watcher(server, query={"scope": "d:one"}, chance=Random(seed)),
    ]
    yield running
    for watcher in running:
        watcher.stop()


def check_all(running: list[Watcher], log: Log) -> None:
    """Waits until each has seen what the log made it see, and checks it."""
    records, _ = read_log(log)
    everything = expected_changes(records, PARTITIONS)
    of_scope = expected_changes(records, PARTITIONS, wanted=lambda change: change[1] == "d:one")
    for watcher, expected in zip(running, (everything, everything, of_scope), strict=True):
        watcher.wait_for(sum(map(len, expected.values())))
        watcher.stop()
        check_seen(watcher.seen, expected)


@pytest.mark.slow
def test_a_projector_is_killed_at_each_boundary(postgres_dsn: str, tmp_path: Path) -> None:
    environment = {
        "KVFOLD_POSTGRES": postgres_dsn,
        "KVFOLD_PARTITIONS": str(PARTITIONS),
        "KVFOLD_TELEMETRY_PORT": "0",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as log:
        with running_projector(log, postgres_dsn):
            wait_until_folded(postgres_dsn, log)
        with serving(postgres_dsn) as server, watchers(lambda: server, seed=1) as running:
            for number, boundary in enumerate(BOUNDARIES):
                fail = failpoint(boundary, at=3, send=signal.SIGKILL)
                with KvfoldProcess(
                    "projector",
                    environment={**environment, "KVFOLD_TEST_FAILPOINT": fail},
                    output=tmp_path / f"{boundary}.log",
                    module="support.failing_projector",
                ) as doomed:
                    append_all(log, some_records(50 + number, 120))
                    assert doomed.wait() == -signal.SIGKILL
            with running_projector(log, postgres_dsn):
                check_all(running, log)


@pytest.mark.slow
def test_postgres_is_restarted(own_postgres_server: EmbeddedPostgres) -> None:
    """After a crash the projection is behind its watchers, until it is folded again."""
    dsn = own_postgres_server.dsn
    log = MemoryLog(partition_count=PARTITIONS)
    with running_projector(log, dsn):
        wait_until_folded(dsn, log)
        with serving(dsn) as server, watchers(lambda: server, seed=2) as running:
            for number in range(3):
                append_all(log, some_records(60 + number, 100))
                seen = len(running[0].seen)
                eventually(lambda seen=seen: len(running[0].seen) > seen, "changes before the crash")  # type: ignore[misc]
                own_postgres_server.stop("immediate")
                append_all(log, some_records(70 + number, 40))
                own_postgres_server.restart()
            check_all(running, log)
    log.close()


def test_ten_swaps_of_generations(postgres_dsn: str) -> None:
    """A position is the log's: a watcher goes on in whatever generation serves."""
    with (
        postgres_log(postgres_dsn, partitions=PARTITIONS) as log,
        running_projector(log, postgres_dsn),
        psycopg.connect(postgres_dsn, autocommit=True) as connection,
    ):
        second = create_generation(connection, "created")
        connection.execute("UPDATE kvfold.generation SET state = 'verified' WHERE id = %s", (second,))
        wait_until_folded(postgres_dsn, log)
        wait_until_folded(postgres_dsn, log, generation=second)
        done = threading.Event()

        def write() -> None:
            for seed in range(80, 180):
                append_all(log, some_records(seed, 15))
                if done.is_set():
                    return

        writer = threading.Thread(target=write)
        with serving(postgres_dsn) as server, watchers(lambda: server, seed=3) as running:
            writer.start()
            try:
                for number in range(10):
                    swap_generation(connection, log, (second, 1)[number % 2])
                    seen = len(running[0].seen)
                    eventually(
                        lambda seen=seen: len(running[0].seen) > seen or not writer.is_alive(),  # type: ignore[misc]
                        "changes after the swap",
                    )
            finally:
                done.set()
                writer.join()
            assert serving_generation(connection) == 1
            check_all(running, log)


class TestByHand:
    """Over rows that the test writes, so that no projector tells of them."""

    @pytest.fixture
    def server(self, postgres_dsn: str, rows: ProjectionRows) -> Iterator[HttpServer]:
        with serving(postgres_dsn) as running:
            yield running

    def put(self, rows: ProjectionRows, offset: int, value: bytes = b"v") -> None:
        """One key after another, each written once."""
        partition = rows.partition("d:dep")
        rows.insert(
            "deployment_entry",
            scope="d:dep",
            namespace="user",
            key=f"k{offset}",
            version=1,
            value=value,
            valid_from=offset,
            time_ms=1_000,
        )
        rows.decide(partition, offset, namespace="user", subject=f"k{offset}", version=1)
        rows.advance(partition, offset)

    def test_without_any_notification(self, rows: ProjectionRows, server: HttpServer) -> None:
        watcher = Watcher(lambda: server, query={"scope": "d:dep"})
        for offset in range(3):
            self.put(rows, offset)
            watcher.wait_for(offset + 1)
        watcher.stop()
        assert [seen.offset for seen in watcher.seen] == [0, 1, 2]

    def test_what_was_trimmed_is_gone_before_the_stream(
        self, rows: ProjectionRows, server: HttpServer
    ) -> None:
        partition = rows.partition("d:dep")
        for offset in range(9):
            self.put(rows, offset)
        rows.execute("UPDATE {g}.partition_offset SET deployment_from = 6 WHERE partition = %s", partition)
        for query in ({"after": "beginning"}, {"after": f"{partition}:4"}):
            stream = Stream(server, scope="d:dep", **query)
            assert (stream.answer.status, stream.code) == (410, "gone")
        stream = Stream(server, scope="d:dep", last_event_id=f"{partition}:4")
        assert (stream.answer.status, stream.code) == (410, "gone")
        # From the horizon on nothing is missing, and other families' horizons are their own.
        watcher = Watcher(lambda: server, query={"scope": "d:dep", "after": f"{partition}:5"})
        watcher.wait_for(3)
        watcher.stop()
        assert [seen.offset for seen in watcher.seen] == [6, 7, 8]
        other = Stream(server, family="capsule", after="beginning")
        assert next(iter(other)).event == "progress"
        other.close()

    def test_what_is_trimmed_in_front_of_a_watcher_is_gone(
        self, rows: ProjectionRows, server: HttpServer
    ) -> None:
        """A typed event, never silence (aiq#272): the projection forgets more than the watcher has."""
        partition = rows.partition("d:dep")
        self.put(rows, 0)
        watcher = Watcher(lambda: server, query={"scope": "d:dep", "after": "beginning"})
        watcher.wait_for(1)
        rows.execute(
            "UPDATE {g}.partition_offset SET offset_next = 50, decisions_from = 40 WHERE partition = %s",
            partition,
        )
        eventually(lambda: watcher.ended_with is not None, "gone")
        watcher.stop()
        assert watcher.ended_with is not None
        assert watcher.ended_with.id is None
        assert watcher.ended_with.data["code"] == "gone"
        assert watcher.ended_with.data["position"] == watcher.last_id == f"{partition}:0"

    def test_a_position_that_is_not_reached_is_said(
        self, rows: ProjectionRows, server: HttpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kvfold.http.positions.OPEN_WAIT_SECONDS_MAX", 0.1)
        partition = rows.partition("d:dep")
        stream = Stream(server, scope="d:dep", after=f"{partition}:1000")
        assert (stream.answer.status, stream.code) == (503, "not-up-to-position")


def _offsets(seen: list[Seen]) -> list[int]:
    return [each.offset for each in seen]


def test_a_server_that_stops_ends_its_streams(postgres_dsn: str) -> None:
    """At once and whole, so that its clients come back elsewhere: here to the server that takes its place."""
    with (
        postgres_log(postgres_dsn, partitions=PARTITIONS) as log,
        running_projector(log, postgres_dsn),
    ):
        wait_until_folded(postgres_dsn, log)
        with serving(postgres_dsn) as first, serving(postgres_dsn) as second:
            current = [first]
            watcher = Watcher(lambda: current[0], query={"scope": "d:one"})
            stream = Stream(first, scope="d:one")
            frames = iter(stream)
            assert next(frames).event == "progress"
            append_all(log, [_put(0)])
            watcher.wait_for(1)
            current[0] = second
            first.stop()
            # The end of the last chunk came: nothing was cut off.
            assert [frame.event for frame in frames] == ["put"]
            assert stream.answer.isclosed()
            stream.close()
            append_all(log, [_put(1)])
            watcher.wait_for(2)
            watcher.stop()
            assert len(set(_offsets(watcher.seen))) == 2
            assert watcher.connections == 2


def _put(number: int) -> tuple[int, NewRecord]:
    return partition_of(b"d:one", PARTITIONS), encode(deployment_put(f"k{number}", scope="d:one"))
