"""The swap of generations: one moment for every reader, or nothing at all (row X6)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kafka import KafkaProducer

from e2e.stack import running_stack
from kvfold.deploy.rebuilding import cancel_rebuild
from kvfold.deploy.stopping import StopRequest
from kvfold.log.kafka import KafkaLog
from kvfold.log.kafka_topic import create_topic
from kvfold.log.port import Log
from kvfold.log.settings import Settings
from kvfold.projector import swapping
from kvfold.projector.dropping import drop_generation
from kvfold.projector.generations import (
    GenerationStateError,
    create_generation,
    find_generation,
    list_generations,
    serving_generation,
)
from kvfold.projector.replaying import next_offsets
from kvfold.projector.swapping import SwapDelayedError, Swapped, swap_generation
from kvfold.projector.views import shown_generation
from kvfold.reads.decisions import decision_at
from kvfold.reads.executor import Reader, read_pool
from kvfold.reads.waiting import Waiter
from kvfold.schemas.codec import encode
from kvfold.schemas.position import Position
from support.kvfold_process import KvfoldProcess
from support.mutations import capsule_set
from support.projection import append_all, eventually, set_up, wait_until_folded
from support.projectors import kafka_settings, postgres_log, running_projector, some_records
from support.rebuilds import rebuilt, same_rows, settings_of
from support.traffic import running_traffic

pytestmark = pytest.mark.postgres
PARTITIONS = 3
WAIT_S = 60.0


def verified(connection: psycopg.Connection[Any]) -> int:
    """Another generation that projectors fold and that may serve, without the trouble of a rebuild."""
    generation = create_generation(connection, "created")
    connection.execute("UPDATE kvfold.generation SET state = 'verified' WHERE id = %s", (generation,))
    return generation


@contextmanager
def in_thread(work: Any, *arguments: Any) -> Iterator[list[Any]]:
    """Runs it beside the body; its result, or its error, is in the list at the end."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(work(*arguments))
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield result
    thread.join()


def test_swap_and_swap_back(postgres_dsn: str, log: Log, connection: psycopg.Connection[Any]) -> None:
    second = verified(connection)
    append_all(log, some_records(40, 60))
    with running_projector(log, postgres_dsn) as projector:
        assert swap_generation(connection, log) == Swapped(1, second, views=True)
        assert serving_generation(connection) == shown_generation(connection) == second
        assert [found.state for found in list_generations(connection)] == ["retired", "serving"]
        # Both are folded on.
        append_all(log, some_records(41, 60))
        for generation in (1, second):
            wait_until_folded(postgres_dsn, log, generation=generation)
        eventually(lambda: projector.telemetry.serving == second, "figures of the serving generation")
        assert swap_generation(connection, log, 1) == Swapped(second, 1, views=True)
        assert [found.state for found in list_generations(connection)] == ["serving", "retired"]
    assert same_rows(postgres_dsn, 1, second, PARTITIONS) == {}


def test_a_record_appended_at_the_instant_of_the_swap_is_there_once(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """emmett#286: appended while the serving generation stands still, between freeze and flip."""
    second = verified(connection)
    reached = swapping._reached
    appended = []

    def append_then_look(*arguments: Any) -> str | None:
        appended.append(log.append(0, encode(capsule_set("k"))).result(WAIT_S))
        return reached(*arguments)

    monkeypatch.setattr(swapping, "_reached", append_then_look)
    append_all(log, some_records(42, 60))
    waiter = Waiter(postgres_dsn)
    with running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
        wait_until_folded(postgres_dsn, log, generation=second)
        swap_generation(connection, log)
        (record,) = appended
        waiter.decision(Position(0, record.offset), WAIT_S).result(WAIT_S)
        wait_until_folded(postgres_dsn, log)
        wait_until_folded(postgres_dsn, log, generation=second)
    waiter.close()
    statement = f"SELECT count(*) FROM kvfold_g{second}.decision WHERE partition = 0 AND record_offset = %s"
    assert connection.execute(statement, (record.offset,)).fetchone() == (1,)
    assert same_rows(postgres_dsn, 1, second, PARTITIONS) == {}


class TestRefused:
    def test_what_is_not_verified_or_retired(
        self, log: Log, connection: psycopg.Connection[Any], settings: Settings
    ) -> None:
        with pytest.raises(GenerationStateError, match="no generation is verified"):
            swap_generation(connection, log)
        with pytest.raises(GenerationStateError, match="generation 1 serves already"):
            swap_generation(connection, log, 1)
        with pytest.raises(GenerationStateError, match="there is no generation 9"):
            swap_generation(connection, log, 9)
        scratch = create_generation(connection, "scratch")
        with pytest.raises(GenerationStateError, match=f"generation {scratch} is scratch"):
            swap_generation(connection, log, scratch)
        assert serving_generation(connection) == 1

    def test_a_generation_with_a_pause(self, log: Log, connection: psycopg.Connection[Any]) -> None:
        second = verified(connection)
        connection.execute(
            f"INSERT INTO kvfold_g{second}.pause (partition, reason, detail) VALUES (1, 'bad-thing', 'so bad')"
        )
        with pytest.raises(GenerationStateError, match="partition 1: bad-thing: so bad"):
            swap_generation(connection, log, wait_s=0.0)
        assert serving_generation(connection) == 1

    def test_a_generation_that_is_behind(
        self, postgres_dsn: str, log: Log, connection: psycopg.Connection[Any]
    ) -> None:
        append_all(log, some_records(43, 60))
        with running_projector(log, postgres_dsn):
            wait_until_folded(postgres_dsn, log)
        second = verified(connection)  # and nobody folds it
        with pytest.raises(SwapDelayedError, match=r"partition 0 of generation .* is folded up to 0:-1"):
            swap_generation(connection, log, wait_s=0.0)
        # It covers the log as it was when the swap was asked for, and not what was folded since.
        assert serving_generation(connection) == 1
        assert find_generation(connection, second).state == "verified"

    def test_a_generation_that_falls_behind_between_the_look_and_the_freeze(
        self, log: Log, connection: psycopg.Connection[Any]
    ) -> None:
        verified(connection)
        connection.execute("UPDATE kvfold_g1.partition_offset SET offset_next = 5 WHERE partition = 2")
        with pytest.raises(SwapDelayedError, match="2:4 is wanted"):
            swap_generation(connection, log, wait_s=0.0)
        assert serving_generation(connection) == 1

    def test_the_one_that_a_rebuild_is_compared_with_is_not_dropped(
        self, log: Log, connection: psycopg.Connection[Any], settings: Settings
    ) -> None:
        second = verified(connection)
        begun = rebuilt(settings, to_position=None)
        connection.execute(
            "UPDATE kvfold.generation SET state = 'replaying' WHERE id = %s", (begun.generation,)
        )
        swap_generation(connection, log, second)
        with pytest.raises(GenerationStateError, match="compared with generation 1"):
            drop_generation(connection, 1)
        cancel_rebuild(settings, StopRequest())
        drop_generation(connection, 1)


def test_a_fold_that_holds_an_offset_row_delays_it_and_nobody_else(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any]
) -> None:
    verified(connection)
    with psycopg.connect(postgres_dsn) as fold:
        fold.execute("SELECT FROM kvfold_g1.partition_offset WHERE partition = 1 FOR UPDATE")
        with pytest.raises(SwapDelayedError, match="holds its offset row"):
            swap_generation(connection, log, wait_s=0.0)
        # Nothing is left locked.
        connection.execute("SET lock_timeout = '100ms'")
        connection.execute("SELECT FROM kvfold_g1.partition_offset WHERE partition = 0 FOR UPDATE")
        assert serving_generation(connection) == 1
        fold.rollback()
    assert swap_generation(connection, log).after == serving_generation(connection)


def test_a_long_query_delays_neither_the_swap_nor_a_read(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any]
) -> None:
    """pg_repack#408"""
    second = verified(connection)
    append_all(log, some_records(44, 60))
    with (
        running_projector(log, postgres_dsn),
        read_pool(postgres_dsn, size_max=2) as pool,
        psycopg.connect(postgres_dsn, application_name="a long report") as long,
    ):
        reader = Reader(pool)
        wait_until_folded(postgres_dsn, log)
        query = decision_at(Position(0, 3))
        before = reader.read(query)
        long.execute("SELECT count(*) FROM kvfold_g1.decision")
        long.execute("SELECT count(*) FROM kvfold.decision")
        done = swap_generation(connection, log)
        # The view is held by the report, and stays; nothing else waits for it.
        assert done == Swapped(1, second, views=False)
        after = reader.read(query)
        assert (before.generation, after.generation) == (1, second)
        assert before.value == after.value
        long.rollback()
        reader.close()
    drop_generation(connection, 1)
    assert shown_generation(connection) == second


def test_pooled_prepared_statements_survive_swap_and_drop(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any]
) -> None:
    """psycopg#511"""
    append_all(log, some_records(45, 60))
    with running_projector(log, postgres_dsn), read_pool(postgres_dsn, size_max=1) as pool:
        wait_until_folded(postgres_dsn, log)
        reader = Reader(pool)
        query = decision_at(Position(0, 3))
        values = {reader.read(query).value for _ in range(20)}  # prepared by now
        for _ in range(3):
            before = serving_generation(connection)
            after = verified(connection)
            swap_generation(connection, log)
            values |= {reader.read(query).value for _ in range(20)}
            drop_generation(connection, before)
            read = reader.read(query)
            values.add(read.value)
            assert read.generation == after
        reader.close()
    assert len(values) == 1


def test_a_waiter_across_a_swap_is_served_by_the_new_generation(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any]
) -> None:
    second = verified(connection)
    waiter = Waiter(postgres_dsn)
    with running_projector(log, postgres_dsn):
        append_all(log, some_records(46, 60))
        wait_until_folded(postgres_dsn, log)
        end = next_offsets(connection, 1)[0]
        decision = waiter.decision(Position(0, end), WAIT_S)
        reached = waiter.position_reached({0: end}, WAIT_S)
        swap_generation(connection, log)
        assert not decision.done() and not reached.done()
        log.append(0, encode(capsule_set("k"))).result(WAIT_S)
        reached.result(WAIT_S)
        assert decision.result(WAIT_S).position == Position(0, end)
        assert next_offsets(connection, second)[0] == end + 1
    waiter.close()


@pytest.mark.kafka
def test_a_transaction_that_hangs_in_the_log_delays_it_and_is_named(
    kafka_bootstrap: str, postgres_dsn: str
) -> None:
    kafka = kafka_settings(kafka_bootstrap, partitions=PARTITIONS)
    create_topic(kafka)
    with ExitStack() as stack:
        log = KafkaLog.open(kafka)
        stack.callback(log.close)
        set_up(postgres_dsn, log)
        connection = stack.enter_context(psycopg.connect(postgres_dsn, autocommit=True))
        second = verified(connection)
        append_all(log, some_records(47, 60))
        foreign = KafkaProducer(bootstrap_servers=kafka_bootstrap, transactional_id=f"t-{kafka.topic}")
        stack.callback(foreign.close)
        foreign.init_transactions()
        foreign.begin_transaction()
        hidden = foreign.send(kafka.topic, value=b"x", partition=0).get(30)
        with running_projector(log, postgres_dsn):
            wait_until_folded(postgres_dsn, log, generation=second)
            named = rf"left a transaction open in the log, from 0:{hidden.offset} on"
            with pytest.raises(SwapDelayedError, match=named):
                swap_generation(connection, log, wait_s=0.0)
            assert serving_generation(connection) == 1
            foreign.abort_transaction()
            assert swap_generation(connection, log).after == second


@pytest.mark.slow
@pytest.mark.row("X6")
def test_ten_rebuilds_and_swaps_under_writers_and_readers(
    postgres_dsn: str, postgres_admin_dsn: str, tmp_path: Path
) -> None:
    """No failed read, no read that goes back, no waiter that lies, no write lost."""
    settings = settings_of(postgres_dsn)
    log_settings = {"KVFOLD_PARTITIONS": str(PARTITIONS)}
    with running_stack(postgres_dsn, tmp_path, owners=("one",), log_settings=log_settings) as stack:
        reads = KvfoldProcess(
            "query-api",
            environment={"KVFOLD_POSTGRES": postgres_dsn, "KVFOLD_PORT": "0"},
            output=tmp_path / "query-api.log",
        )
        with (
            reads,
            postgres_log(postgres_dsn) as log,
            psycopg.connect(postgres_dsn, autocommit=True) as connection,
        ):
            with running_traffic(write_url=stack.url, read_url=reads.wait_until_serving()) as traffic:
                traffic.goes_on()
                for _ in range(10):
                    done = rebuilt(settings)
                    swapped = swap_generation(connection, log)
                    assert swapped.after == done.generation
                    traffic.goes_on()
                    drop_generation(connection, swapped.before)
                    assert traffic.problems == []
            assert traffic.problems == []
            kept = rebuilt(settings).generation
            serving = serving_generation(connection)
            for generation in (kept, serving):
                wait_until_folded(postgres_dsn, log, generation=generation)
            assert same_rows(postgres_dsn, serving, kept, PARTITIONS) == {}
            for writer, version in traffic.acknowledged.items():
                row = connection.execute(
                    "SELECT version, value FROM kvfold.deployment_entry WHERE scope = %s",
                    (f"d:traffic-{writer}",),
                ).fetchone()
                # A write that was under way at the end may have been applied.
                assert row is not None and version > 0
                assert row in [(each, str(each).encode()) for each in (version, version + 1)]
