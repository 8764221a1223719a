"""The log is another one, was trimmed, steps up a format level, hides records, or is away; and Postgres is away."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from kvfold.log.kafka import KafkaLog
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.log.kafka_topic import create_topic
from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog
from kvfold.projector import batch, supervision
from kvfold.projector.run import Projector
from kvfold.projector.telemetry import PartitionView
from kvfold.schemas.codec import encode
from kvfold.schemas.errors import LogDivergedError, LogMisconfiguredError, LogUnavailableError
from kvfold.schemas.limits import DEDUPE_WINDOW_MS
from kvfold.schemas.record import NewRecord
from support.broker import Broker
from support.mutations import capsule_set, format_raised, scope_in
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
from support.projectors import kafka_log, kafka_settings, postgres_log, running_projector, some_records
from support.servers import fresh_database

pytestmark = pytest.mark.postgres
PARTITIONS = 3


@pytest.fixture
def log(postgres_dsn: str) -> Iterator[PostgresLog]:
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as opened:
        yield opened


def pauses(dsn: str) -> dict[int, str]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return dict(connection.execute("SELECT partition, reason FROM kvfold_g1.pause").fetchall())


def folded(dsn: str, log: Log) -> None:
    """Appends some records and folds all of the log."""
    append_all(log, some_records(1, 60))
    with running_projector(log, dsn):
        wait_until_folded(dsn, log)


def assert_equals_a_fold_in_memory(dsn: str, log: Log) -> None:
    wait_until_folded(dsn, log)
    expected = content(fold_in_memory(*read_log(log)), range(PARTITIONS))
    store = store_for(dsn)
    actual = content(store, range(PARTITIONS))
    store.close()
    assert differences(expected, actual) == {}


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


# --- another log under the same name ---


@pytest.mark.kafka
def test_a_topic_that_was_made_anew_and_has_grown_again_is_refused(
    kafka_bootstrap: str, postgres_dsn: str
) -> None:
    settings = kafka_settings(kafka_bootstrap, partitions=PARTITIONS)
    create_topic(settings)
    log = KafkaLog.open(settings)
    folded(postgres_dsn, log)
    before = folded_offsets(postgres_dsn)
    with running_projector(log, postgres_dsn) as projector:
        eventually(lambda: len(projector.telemetry.partitions()) == PARTITIONS, "all partitions held")
        remake(settings)
        again = KafkaLog.open(settings)
        append_all(again, some_records(2, 400))
        eventually(
            lambda: pauses(postgres_dsn) == dict.fromkeys(range(PARTITIONS), "log-diverged"),
            "all partitions paused",
        )
        assert folded_offsets(postgres_dsn) == before
    with pytest.raises(LogDivergedError, match="made anew"), running_projector(again, postgres_dsn):
        pass
    log.close()
    again.close()


def remake(settings: KafkaSettings) -> None:
    admin = KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    admin.delete_topics([settings.topic])
    admin.close()
    deadline = time.monotonic() + 30

    def made() -> bool:
        try:
            return create_topic(settings)
        except (LogMisconfiguredError, LogUnavailableError):
            return False

    while not made():
        assert time.monotonic() < deadline


def test_a_log_that_lost_its_end_and_has_grown_again_is_refused(postgres_dsn: str, log: PostgresLog) -> None:
    """As after a restore of an old backup: same log id, other records at the same offsets."""
    folded(postgres_dsn, log)
    before = folded_offsets(postgres_dsn)
    execute(
        postgres_dsn,
        'DELETE FROM kvfold_log.log_record WHERE "offset" >= 3',
        "UPDATE kvfold_log.log_partition SET offset_next = 3",
    )
    scopes = [scope_in(partition, PARTITIONS) for partition in range(PARTITIONS)]
    for partition, scope in enumerate(scopes):
        append_all(log, [(partition, encode(capsule_set(f"k{n}", scope=scope))) for n in range(60)])
    with running_projector(log, postgres_dsn):
        eventually(
            lambda: pauses(postgres_dsn) == dict.fromkeys(range(PARTITIONS), "log-diverged"),
            "all partitions paused",
        )
    assert folded_offsets(postgres_dsn) == before


def test_a_log_that_lost_its_end_is_refused(postgres_dsn: str, log: PostgresLog) -> None:
    folded(postgres_dsn, log)
    execute(
        postgres_dsn,
        'DELETE FROM kvfold_log.log_record WHERE "offset" >= 3',
        "UPDATE kvfold_log.log_partition SET offset_next = 3",
    )
    with running_projector(log, postgres_dsn):
        eventually(lambda: set(pauses(postgres_dsn).values()) == {"log-diverged"}, "a pause with its reason")


def test_a_log_that_begins_above_the_offset_stops_with_the_reason(
    postgres_dsn: str, log: PostgresLog
) -> None:
    """clickhouse-kafka-connect#511: never a jump over records that nobody folded."""
    folded(postgres_dsn, log)
    before = folded_offsets(postgres_dsn)
    append_all(log, some_records(5, 200))
    execute(postgres_dsn, 'DELETE FROM kvfold_log.log_record WHERE partition = 1 AND "offset" < 60')
    trimmed = log.bounds([1])[1]
    assert trimmed.start > before[1], "records that were not folded are gone"
    with running_projector(log, postgres_dsn):
        eventually(lambda: pauses(postgres_dsn) == {1: "offset-out-of-range"}, "the pause of partition 1")
        eventually(
            lambda: all(folded_offsets(postgres_dsn)[p] == log.bounds([p])[p].end for p in (0, 2)),
            "the others folded",
        )
    assert folded_offsets(postgres_dsn)[1] == before[1]


def test_another_partition_count_is_refused(
    postgres_dsn: str, postgres_admin_dsn: str, log: PostgresLog
) -> None:
    folded(postgres_dsn, log)
    with (
        fresh_database(postgres_admin_dsn) as other,
        postgres_log(other, partitions=4) as wider,
        pytest.raises(LogMisconfiguredError, match="partitions"),
        running_projector(wider, postgres_dsn),
    ):
        pass


# --- format levels ---


def test_a_level_above_this_release_pauses_one_partition_until_the_upgrade(
    postgres_dsn: str, log: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "PAUSE_RETRY_S", 0.2)
    raised = encode(format_raised(2, partition=1, partition_count=PARTITIONS))
    # The projector is of the release before: it knows level 1.
    monkeypatch.setattr(batch, "FORMAT_LEVEL", 1)
    before, after = some_records(6, 60, level_max=1), some_records(7, 60, level_max=1)
    append_all(log, [*before, (1, raised), *after])
    at = next(record.offset for record in read_log(log)[0][1] if record.headers == raised.headers)
    with running_projector(log, postgres_dsn) as projector:
        eventually(lambda: pauses(postgres_dsn) == {1: "format-level-ahead"}, "the pause of partition 1")
        eventually(
            lambda: all(folded_offsets(postgres_dsn)[p] == log.bounds([p])[p].end for p in (0, 2)),
            "the others folded",
        )
        assert folded_offsets(postgres_dsn)[1] == at, (
            "everything before the record is folded, and nothing after it"
        )
        eventually(
            lambda: projector.telemetry.partitions()[1].paused == "format-level-ahead",
            "the pause in the metrics",
        )
        monkeypatch.setattr(batch, "FORMAT_LEVEL", 2)
        assert_equals_a_fold_in_memory(postgres_dsn, log)
        eventually(lambda: pauses(postgres_dsn) == {}, "the end of the pause")


# --- bad records ---


def test_bad_records_are_recorded_and_counted_and_the_rest_goes_on(
    postgres_dsn: str, log: PostgresLog
) -> None:
    """KurrentDB#2807, karapace#1355: one first after the start, some in the middle."""
    good = [(0, encode(capsule_set(f"k{n}", scope=scope_in(0, PARTITIONS)))) for n in range(3)]
    bad = [NewRecord(None, (), None), NewRecord(b"\xff", (), b""), NewRecord(good[0][1].key, (), b"\x00")]
    append_all(log, [(0, bad[0]), good[0], (0, bad[1]), good[1], (0, bad[2]), good[2]])
    with running_projector(log, postgres_dsn) as projector:
        assert_equals_a_fold_in_memory(postgres_dsn, log)
        counted = metrics(projector).decode()
    assert 'kvfold_decisions_total{code="malformed",family="unknown",status="rejected"} 3.0' in counted
    assert 'kvfold_decisions_total{code="",family="capsule",status="applied"} 3.0' in counted
    with psycopg.connect(postgres_dsn) as connection:
        rows = connection.execute(
            "SELECT record_offset, code FROM kvfold_g1.decision WHERE partition = 0 ORDER BY record_offset"
        ).fetchall()
    assert rows == [(0, "malformed"), (1, None), (2, "malformed"), (3, None), (4, "malformed"), (5, None)]


# --- what a reader cannot see ---


@pytest.mark.kafka
def test_markers_and_open_transactions(kafka_bootstrap: str, postgres_dsn: str) -> None:
    """aiokafka#911: an aborted transaction at the end is passed; kafka-flow#850: an open one is "not caught up"."""
    with kafka_log(kafka_bootstrap, partitions=PARTITIONS) as log:
        settings = log._settings
        append_all(log, some_records(8, 60))
        foreign = KafkaProducer(bootstrap_servers=kafka_bootstrap, transactional_id=f"t-{settings.topic}")
        foreign.init_transactions()
        foreign.begin_transaction()
        foreign.send(settings.topic, value=b"x", partition=0).get(30)
        foreign.abort_transaction()
        with running_projector(log, postgres_dsn) as projector:
            eventually(lambda: view(projector, 0).lag == 0, "lag 0 behind an aborted transaction")
            assert view(projector, 0).is_caught_up
            foreign.begin_transaction()
            foreign.send(settings.topic, value=b"x", partition=0).get(30)
            append_all(log, [(0, encode(capsule_set("k", scope=scope_in(0, PARTITIONS))))])
            eventually(
                lambda: (view(projector, 0).lag or 0) >= 2, "records hidden by an open transaction are lag"
            )
            eventually(
                lambda: b"kvfold_open_transaction_offset{" in metrics(projector),
                "the open transaction in the metrics",
            )
            foreign.commit_transaction()
            eventually(lambda: view(projector, 0).is_caught_up, "caught up after the commit")
            assert_equals_a_fold_in_memory(postgres_dsn, log)
        foreign.close()


def view(projector: Projector, partition: int) -> PartitionView:
    eventually(lambda: partition in projector.telemetry.partitions(), "the partition's figures")
    return projector.telemetry.partitions()[partition]


def metrics(projector: Projector) -> bytes:
    registry = CollectorRegistry()
    registry.register(projector.telemetry)
    return generate_latest(registry)


# --- servers away ---


@pytest.mark.slow
def test_postgres_crashes_and_comes_back(own_postgres_server: EmbeddedPostgres) -> None:
    """Commits that were not flushed roll back together with their offset and are folded again; nothing is rejected."""
    dsn = own_postgres_server.dsn
    with postgres_log(dsn, partitions=PARTITIONS) as log, running_projector(log, dsn):
        for seed in range(3):
            append_all(log, some_records(seed, 300))
            own_postgres_server.stop("immediate")
            own_postgres_server.restart()
            eventually(lambda: answers(dsn), "the server answers")
        assert_equals_a_fold_in_memory(dsn, log)


def answers(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn, connect_timeout=5):
            return True
    except psycopg.OperationalError:
        return False


@pytest.mark.slow
@pytest.mark.kafka
def test_the_broker_is_killed_and_comes_back(own_kafka_broker: Broker, postgres_dsn: str) -> None:
    with (
        kafka_log(own_kafka_broker.bootstrap, partitions=PARTITIONS) as log,
        running_projector(log, postgres_dsn),
    ):
        for seed in range(2):
            append_all(log, some_records(seed, 200))
            own_kafka_broker.kill()
            own_kafka_broker.restart()
            eventually(lambda: appends(log), "an acknowledged append")
        assert_equals_a_fold_in_memory(postgres_dsn, log)
        assert pauses(postgres_dsn) == {}


def appends(log: Log) -> bool:
    try:
        append_all(log, some_records(9, 1))
    except LogUnavailableError:
        return False
    return True


# --- the dedupe window ---


@pytest.mark.row("X4")
def test_mutation_ids_out_of_the_window_are_forgotten_and_others_kept(
    postgres_dsn: str, log: PostgresLog
) -> None:
    scope = scope_in(0, PARTITIONS)
    append_all(log, [(0, encode(capsule_set(f"k{n}", scope=scope))) for n in range(20)])
    with running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
    # As if the first twelve had been folded so long ago.
    long_ago = f"time_ms = time_ms - {DEDUPE_WINDOW_MS + 60_000} WHERE partition = 0 AND record_offset < 12"
    execute(
        postgres_dsn,
        f"UPDATE kvfold_g1.decision SET {long_ago}",
        f"UPDATE kvfold_g1.mutation_id SET {long_ago}",
    )

    def ids() -> list[int]:
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT record_offset FROM kvfold_g1.mutation_id ORDER BY record_offset"
            )
            return [row[0] for row in rows.fetchall()]

    assert ids() == list(range(20))
    with running_projector(log, postgres_dsn):
        eventually(lambda: ids() == list(range(12, 20)), "old ids are forgotten")
        append_all(log, some_records(3, 30))
        wait_until_folded(postgres_dsn, log)
    assert set(range(12, 20)) <= set(ids())
