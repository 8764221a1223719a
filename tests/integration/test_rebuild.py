"""`kvfold rebuild`: the same rows beside the live ones, whatever interrupts it; a difference stops it (row X6)."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest

from kvfold.deploy.rebuilding import RebuildStoppedError, cancel_rebuild
from kvfold.deploy.stopping import StopRequest
from kvfold.log.kafka import KafkaLog
from kvfold.log.kafka_topic import create_topic
from kvfold.log.memory import MemoryLog
from kvfold.log.port import Bounds, Log
from kvfold.log.settings import Settings
from kvfold.projector.generations import GenerationStateError, find_generation, list_generations
from kvfold.projector.rebuilding import begin_rebuild, find_rebuild, look
from kvfold.projector.replaying import next_offsets
from kvfold.schemas.errors import LogDivergedError
from support import failing_rebuild
from support.kvfold_process import KvfoldProcess, wait_until
from support.projection import (
    append_all,
    content,
    differences,
    eventually,
    fold_in_memory,
    read_log,
    set_up,
    wait_until_folded,
)
from support.projectors import kafka_settings, running_projector, some_records
from support.rebuilds import generation_content, rebuilt, same_rows, settings_of

pytestmark = pytest.mark.postgres
PARTITIONS = 3


def fold(dsn: str, log: Log) -> None:
    """Folds all that the log has into the serving generation."""
    with running_projector(log, dsn):
        wait_until_folded(dsn, log)


@pytest.mark.row("X6")
def test_rebuilt_rows_are_the_live_ones_byte_for_byte(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
) -> None:
    append_all(log, some_records(11, 700))
    with running_projector(log, postgres_dsn), running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
        done = rebuilt(settings, workers=2)
        # It is folded on from now on, as the live one is.
        append_all(log, some_records(12, 300))
        for generation in (1, done.generation):
            wait_until_folded(postgres_dsn, log, generation=generation)
    assert find_generation(connection, done.generation).state == "verified"
    assert same_rows(postgres_dsn, 1, done.generation, PARTITIONS) == {}
    expected = content(fold_in_memory(*read_log(log)), range(PARTITIONS))
    assert differences(expected, generation_content(postgres_dsn, done.generation, range(PARTITIONS))) == {}


@pytest.mark.kafka
def test_the_same_on_kafka(kafka_bootstrap: str, postgres_dsn: str) -> None:
    kafka = kafka_settings(kafka_bootstrap, partitions=PARTITIONS)
    create_topic(kafka)
    log = KafkaLog.open(kafka)
    append_all(log, some_records(13, 400))
    with running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
        done = rebuilt(settings_of(postgres_dsn, kafka))
        append_all(log, some_records(14, 100))
        for generation in (1, done.generation):
            wait_until_folded(postgres_dsn, log, generation=generation)
    log.close()
    assert same_rows(postgres_dsn, 1, done.generation, PARTITIONS) == {}


def test_an_empty_log_and_an_empty_partition_end_at_once(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
) -> None:
    first = rebuilt(settings)
    assert find_generation(connection, first.generation).state == "verified"
    one_partition = [(0, record) for partition, record in some_records(15, 60) if partition == 0]
    append_all(log, one_partition)
    fold(postgres_dsn, log)
    second = rebuilt(settings)
    assert find_generation(connection, second.generation).state == "verified"
    assert same_rows(postgres_dsn, 1, second.generation, PARTITIONS) == {}


class TestDifference:
    def test_a_decision_that_differs_stops_it_and_is_named(
        self, postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
    ) -> None:
        append_all(log, some_records(16, 200))
        fold(postgres_dsn, log)
        row = connection.execute(
            "UPDATE kvfold_g1.decision SET version = 4711 WHERE partition = 1 AND record_offset = "
            "(SELECT min(record_offset) FROM kvfold_g1.decision WHERE partition = 1 AND status = 'applied' "
            " AND repeat_of IS NULL AND version = 1 AND record_offset > 10) RETURNING record_offset"
        ).fetchone()
        assert row is not None
        for _ in range(2):  # the same when it is tried again
            with pytest.raises(RebuildStoppedError) as stopped:
                rebuilt(settings)
            assert stopped.value.code == "decisions-differ"
            text = str(stopped.value)
            assert f"at position 1:{row[0]} " in text
            recorded, _, new = text.partition("and generation")
            assert "version 4711" in recorded and "version 1," in new
        found = find_rebuild(connection)
        assert found is not None
        assert find_generation(connection, found.generation).state == "replaying"

    @pytest.mark.parametrize("gone_from", ["recorded", "new"])
    def test_a_decision_that_only_one_side_has(
        self,
        gone_from: str,
        postgres_dsn: str,
        log: Log,
        connection: psycopg.Connection[Any],
        settings: Settings,
    ) -> None:
        append_all(log, some_records(17, 60))
        fold(postgres_dsn, log)
        statement = "DELETE FROM kvfold_g1.decision WHERE partition = 0 AND record_offset = 3"
        if gone_from == "new":
            # A record more than the log gives.
            statement = (
                "INSERT INTO kvfold_g1.decision (partition, record_offset, status, time_ms) "
                "SELECT 0, max(record_offset) + 1, 'applied', 0 FROM kvfold_g1.decision WHERE partition = 0; "
                "UPDATE kvfold_g1.partition_offset SET offset_next = offset_next + 1 WHERE partition = 0"
            )
            append_all(log, [(0, record) for partition, record in some_records(18, 9) if partition == 0])
            statement = statement.replace("'applied'", "'rejected'")
        connection.execute(statement)
        with pytest.raises(RebuildStoppedError, match="at position 0:") as stopped:
            rebuilt(settings)
        assert stopped.value.code == "decisions-differ"
        if gone_from == "recorded":
            assert "recorded none" in str(stopped.value)

    def test_what_retention_has_trimmed_is_not_compared(
        self, postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
    ) -> None:
        append_all(log, some_records(19, 60))
        fold(postgres_dsn, log)
        connection.execute("DELETE FROM kvfold_g1.decision WHERE partition = 0 AND record_offset < 5")
        connection.execute("UPDATE kvfold_g1.partition_offset SET decisions_from = 5 WHERE partition = 0")
        done = rebuilt(settings)
        assert find_generation(connection, done.generation).state == "verified"


class TestTwoAtOnce:
    def test_other_options_are_refused_and_the_same_resume(
        self, postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
    ) -> None:
        append_all(log, some_records(21, 60))
        first = begin_rebuild(connection, log)
        with pytest.raises(GenerationStateError, match="being rebuilt without --to-position"):
            begin_rebuild(connection, log, to_position={0: 1})
        second = begin_rebuild(connection, log)
        assert (second.generation, second.resumed) == (first.generation, True)
        assert second.targets == first.targets
        assert [found.id for found in list_generations(connection)] == [1, first.generation]

    def test_both_run_and_end_with_one_generation(
        self, postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
    ) -> None:
        append_all(log, some_records(22, 300))
        fold(postgres_dsn, log)
        done: list[int] = []
        threads = [Thread(target=lambda: done.append(rebuilt(settings).generation)) for _ in range(2)]
        # The first one is begun here, so that neither can end before the other has begun.
        generation = begin_rebuild(connection, log).generation
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(done) == {generation}
        assert same_rows(postgres_dsn, 1, generation, PARTITIONS) == {}

    def test_the_live_projector_and_a_rebuild_never_share_an_offset_row(
        self, postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
    ) -> None:
        append_all(log, some_records(23, 60))
        fold(postgres_dsn, log)
        before = next_offsets(connection, 1)
        append_all(log, some_records(24, 60))
        done = rebuilt(settings, to_position="0:10")  # no projector runs
        assert next_offsets(connection, 1) == before
        assert next_offsets(connection, done.generation)[0] == 11


class TestToPosition:
    def test_it_stands_there_and_may_be_sent_on(
        self, postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
    ) -> None:
        append_all(log, some_records(25, 200))
        fold(postgres_dsn, log)
        records, ends = read_log(log)
        done = rebuilt(settings, to_position="0:7,1:9,2:11")
        assert next_offsets(connection, done.generation) == {0: 8, 1: 10, 2: 12}
        assert find_generation(connection, done.generation).state == "replaying"
        past = {p: [r for r in kept if r.offset < (8, 10, 12)[p]] for p, kept in records.items()}
        expected = content(fold_in_memory(past, {0: 8, 1: 10, 2: 12}), range(PARTITIONS))
        assert (
            differences(expected, generation_content(postgres_dsn, done.generation, range(PARTITIONS))) == {}
        )
        with pytest.raises(GenerationStateError, match="--to-position 0:7,1:9,2:11"):
            rebuilt(settings, to_position="0:3,1:9,2:11")  # it does not go back
        rebuilt(settings)
        assert next_offsets(connection, done.generation) == ends
        assert same_rows(postgres_dsn, 1, done.generation, PARTITIONS) == {}

    def test_a_position_that_the_log_has_not_is_refused(
        self, log: Log, connection: psycopg.Connection[Any]
    ) -> None:
        with pytest.raises(LogDivergedError, match="ends at -1, before 0:5"):
            begin_rebuild(connection, log, to_position={0: 5})
        with pytest.raises(GenerationStateError, match="no partition 9"):
            begin_rebuild(connection, log, to_position={9: 5})
        assert [found.id for found in list_generations(connection)] == [1]


def test_a_log_that_was_trimmed_at_its_start_is_refused(
    log: Log, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = log.bounds

    def trimmed(partitions: Sequence[int]) -> Mapping[int, Bounds]:
        return {**whole(partitions), 1: Bounds(start=4, stable_end=9, end=9)}

    monkeypatch.setattr(log, "bounds", trimmed)
    with pytest.raises(LogDivergedError, match="partition 1 begins at 4, and folding has to begin at 0"):
        begin_rebuild(connection, log)
    assert [found.id for found in list_generations(connection)] == [1]


def test_ctrl_c_keeps_it_and_cancel_throws_it_away(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
) -> None:
    append_all(log, some_records(26, 300))
    fold(postgres_dsn, log)
    stop = StopRequest()
    thread = Thread(target=lambda: _stop_when_folded(connection, stop))
    thread.start()
    with pytest.raises(CancelledError, match="kvfold rebuild --cancel"):
        rebuilt(settings, rate=20.0, stop=stop)
    thread.join()
    found = find_rebuild(connection)
    assert found is not None
    seen = look(connection, found.generation)
    assert seen is not None and seen.workers == 0 and seen.state == "replaying"
    assert 0 < sum(seen.offsets.values()) < sum(found.targets.values())
    assert cancel_rebuild(settings, StopRequest()) == found.generation
    assert [each.id for each in list_generations(connection)] == [1]
    with pytest.raises(GenerationStateError, match="no rebuild is under way"):
        cancel_rebuild(settings, StopRequest())


def _stop_when_folded(connection: psycopg.Connection[Any], stop: StopRequest) -> None:
    with psycopg.connect(connection.info.dsn, password=connection.info.password, autocommit=True) as own:
        wait_until(lambda: _folded_some(own), what=lambda: "a rebuild that folds")
    stop.set()


def _folded_some(connection: psycopg.Connection[Any]) -> bool:
    found = find_rebuild(connection)
    return found is not None and sum(next_offsets(connection, found.generation).values()) > 0


def test_cancelling_ends_the_command_that_runs(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
) -> None:
    append_all(log, some_records(27, 300))
    fold(postgres_dsn, log)
    ended: list[str] = []

    def run() -> None:
        try:
            rebuilt(settings, rate=10.0)
        except RebuildStoppedError as error:
            ended.append(error.code)

    thread = Thread(target=run)
    thread.start()
    eventually(lambda: _folded_some(connection), "a rebuild that folds")
    cancel_rebuild(settings, StopRequest())
    thread.join()
    assert ended == ["cancelled"]
    assert [each.id for each in list_generations(connection)] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("boundary", failing_rebuild.BOUNDARIES)
def test_killed_at_each_state_it_resumes_to_the_same_rows(
    boundary: str,
    postgres_dsn: str,
    log: Log,
    connection: psycopg.Connection[Any],
    settings: Settings,
    tmp_path: Path,
) -> None:
    append_all(log, some_records(28, 200))
    fold(postgres_dsn, log)
    environment = {
        "KVFOLD_POSTGRES": postgres_dsn,
        failing_rebuild.VARIABLE: boundary,
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    process = KvfoldProcess(
        "rebuild",
        "--workers",
        "2",
        environment=environment,
        output=tmp_path / "rebuild.log",
        module="support.failing_rebuild",
    )
    with process:
        assert process.wait() == -signal.SIGKILL
        process.wait_for_text(f"boundary reached: {boundary}")
    begun = find_rebuild(connection)
    assert begun is not None
    assert find_generation(connection, begun.generation).state == failing_rebuild.STATES[boundary]
    done = rebuilt(settings)
    assert done.generation == begun.generation
    assert find_generation(connection, done.generation).state == "verified"
    assert same_rows(postgres_dsn, 1, done.generation, PARTITIONS) == {}


def test_a_killed_worker_is_replaced_by_the_others(
    postgres_dsn: str, log: Log, connection: psycopg.Connection[Any], settings: Settings
) -> None:
    append_all(log, some_records(29, 300))
    fold(postgres_dsn, log)
    done: list[int] = []
    thread = Thread(target=lambda: done.append(rebuilt(settings, workers=2, rate=200.0).generation))
    thread.start()
    eventually(lambda: _folded_some(connection), "a rebuild that folds")
    found = find_rebuild(connection)
    assert found is not None
    owner = _owners(connection, found.generation)[0]
    os.kill(int(owner.split("-")[-2]), signal.SIGKILL)
    thread.join()
    assert done == [found.generation]
    assert same_rows(postgres_dsn, 1, found.generation, PARTITIONS) == {}


def _owners(connection: psycopg.Connection[Any], generation: int) -> list[str]:
    rows = connection.execute(
        f"SELECT DISTINCT owner FROM kvfold_g{generation}.claim WHERE owner IS NOT NULL ORDER BY 1"
    )
    return [row[0] for row in rows]


def test_a_transaction_that_hangs_in_the_log_keeps_the_target_from_being_reached(postgres_dsn: str) -> None:
    log = MemoryLog(partition_count=PARTITIONS)
    set_up(postgres_dsn, log)
    log.begin_transaction(0, [record for partition, record in some_records(30, 30) if partition == 0][:3])
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        begun = begin_rebuild(connection, log)
        # The high watermark counts: what the transaction hides belongs to it.
        assert begun.targets[0] == log.bounds([0])[0].end > log.bounds([0])[0].stable_end
