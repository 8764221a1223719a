"""An embedded log moved into a topic: the same offsets and times, interrupted and resumed, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Final
from uuid import uuid4

import psycopg
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from conformance.log_contract import append, opened, read, small, values
from kvfold.log.copy import CopyProgress, copy_log
from kvfold.log.kafka import KafkaLog, KafkaSettings, check_topic, create_topic
from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog
from kvfold.schemas.errors import LogDivergedError, LogMisconfiguredError
from kvfold.schemas.record import NewRecord, Record

__all__: list[str] = []

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

PARTITIONS: Final = 3  # the last one stays empty
EARLIER_MS: Final = 86_400_000


@pytest.fixture
def target(kafka_bootstrap: str) -> KafkaSettings:
    topic = f"copy-{uuid4().hex}"
    return KafkaSettings(bootstrap_servers=kafka_bootstrap, topic=topic, partition_count=PARTITIONS)


@pytest.fixture
def source(postgres_dsn: str) -> Iterator[PostgresLog]:
    """An embedded log with 2,500 records of many shapes; some are a day old, so that times are told apart."""
    log = PostgresLog.open(postgres_dsn, partition_count=PARTITIONS, append_timeout_ms=30_000)
    headers = (("ce_id", b"1"), ("ce_id", b"2"), ("é", bytes(range(256))))
    append(log, 0, *(NewRecord(b"k", headers, f"0-{number}".encode()) for number in range(1_500)))
    append(log, 1, *(small(f"1-{number}") for number in range(994)))
    shapes = [(None, b"v"), (b"k", None), (None, None), (b"", b""), (b"k", bytes(1024 * 1024))]
    append(log, 1, *(NewRecord(key, (), value) for key, value in shapes))
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(
            'UPDATE kvfold_log.log_record SET timestamp_ms = timestamp_ms - %s + "offset" WHERE "offset" < 700',
            (EARLIER_MS,),
        )
    append(log, 1, small("last"))
    yield log
    log.close()


def everything(log: Log) -> dict[int, list[Record]]:
    bounds = log.bounds(range(PARTITIONS))
    with opened(log, dict.fromkeys(range(PARTITIONS), 0)) as reader:
        return read(reader, {partition: bound.end for partition, bound in bounds.items()})


def check_copied(source: PostgresLog, target: KafkaSettings) -> None:
    """Both logs are equal, and the topic is one that projectors and producers take."""
    assert check_topic(target) == []
    log = KafkaLog.open(target)
    try:
        copied = everything(log)
        assert copied == everything(source)
        assert {len(records) for records in copied.values()} == {1_500, 1_000, 0}
        [appended] = append(log, 1, small("from now on"))
        assert appended.offset == 1_000
        newest = copied[0][-1].timestamp_ms
        assert appended.timestamp_ms >= newest - 60_000, "times are the broker's again"
    finally:
        log.close()


class Interruption:
    """Stops a copy at a step, once this many records of it were done."""

    def __init__(self, step: str, after: int) -> None:
        self._step = step
        self._after = after
        self._reached = False

    def progress(self, progress: CopyProgress) -> None:
        self._reached = self._reached or (progress.step == self._step and progress.done >= self._after)

    def should_stop(self) -> bool:
        return self._reached


def test_a_copy_is_equal_and_a_log_like_any_other(source: PostgresLog, target: KafkaSettings) -> None:
    seen: list[CopyProgress] = []
    description = copy_log(source, target, progress=seen.append)
    assert (description.kind, description.name, description.partition_count) == (
        "kafka",
        target.topic,
        PARTITIONS,
    )
    assert [one.step for one in seen] == sorted(one.step for one in seen)  # copy, verify
    assert seen[-1] == CopyProgress("verify", 2_500, 2_500)
    check_copied(source, target)
    with pytest.raises(LogDivergedError, match="in use"):
        copy_log(source, target)


def test_an_empty_log_is_copied(postgres_dsn: str, target: KafkaSettings) -> None:
    source = PostgresLog.open(postgres_dsn, partition_count=PARTITIONS)
    copy_log(source, target)
    source.close()
    assert check_topic(target) == []


def test_a_topic_that_is_there_and_empty_is_taken(source: PostgresLog, target: KafkaSettings) -> None:
    create_topic(target)
    copy_log(source, target)
    check_copied(source, target)


@pytest.mark.parametrize(("step", "after"), [("copy", 1), ("copy", 1_700), ("verify", 1)])
def test_an_interrupted_copy_goes_on(
    source: PostgresLog, target: KafkaSettings, step: str, after: int
) -> None:
    interruption = Interruption(step, after)
    with pytest.raises(CancelledError):
        copy_log(source, target, progress=interruption.progress, should_stop=interruption.should_stop)
    with pytest.raises(LogMisconfiguredError, match=r"message\.timestamp\.type"):
        KafkaLog.open(target)  # nobody takes half a copy for a log
    seen: list[CopyProgress] = []
    copy_log(source, target, progress=seen.append)
    assert seen[0].step == "compare"
    copied_before = max(one.total for one in seen if one.step == "compare")
    assert copied_before >= after
    assert max((one.done for one in seen if one.step == "copy"), default=0) == 2_500 - copied_before
    check_copied(source, target)


class TestRefusals:
    def test_a_source_that_was_trimmed(
        self, source: PostgresLog, target: KafkaSettings, postgres_dsn: str
    ) -> None:
        with psycopg.connect(postgres_dsn) as connection:
            connection.execute('DELETE FROM kvfold_log.log_record WHERE partition = 1 AND "offset" = 0')
        with pytest.raises(LogMisconfiguredError, match=r"partitions \[1\].*offset 0"):
            copy_log(source, target)
        assert "does not exist" in check_topic(target)[0], "nothing was made"

    def test_another_partition_count(self, source: PostgresLog, target: KafkaSettings) -> None:
        with pytest.raises(LogMisconfiguredError, match="KVFOLD_PARTITIONS=3"):
            copy_log(source, replace(target, partition_count=4))

    def test_a_topic_with_another_partition_count(self, source: PostgresLog, target: KafkaSettings) -> None:
        create_topic(replace(target, partition_count=4))
        with pytest.raises(LogMisconfiguredError, match="has 4 partitions and 3 are configured"):
            copy_log(source, target)

    def test_a_topic_with_other_settings(self, source: PostgresLog, target: KafkaSettings) -> None:
        create_topic(target)
        with KafkaAdminClient(bootstrap_servers=target.bootstrap_servers) as admin:
            admin.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, target.topic, {"retention.ms": "1"})]
            )
        with pytest.raises(LogMisconfiguredError, match=r"retention\.ms=-1"):
            copy_log(source, target)

    def test_a_topic_in_use(self, source: PostgresLog, target: KafkaSettings) -> None:
        create_topic(target)
        log = KafkaLog.open(target)
        append(log, 2, small("mine"))
        log.close()
        with pytest.raises(LogDivergedError, match="in use"):
            copy_log(source, target)
        assert check_topic(target) == [], "it is as it was"

    def test_a_topic_with_something_else_in_it(self, source: PostgresLog, target: KafkaSettings) -> None:
        create_topic(target, timestamp_type="CreateTime")
        write(target, 0, "another")
        with pytest.raises(LogDivergedError, match=r"record 0:0 .* differ"):
            copy_log(source, target)

    def test_a_topic_that_holds_more_than_the_source(
        self, source: PostgresLog, target: KafkaSettings
    ) -> None:
        create_topic(target, timestamp_type="CreateTime")
        write(target, 2, "more")
        with pytest.raises(LogDivergedError, match=r"partitions \[2\] .* more") as diverged:
            copy_log(source, target)
        assert diverged.value.partitions == (2,)

    def test_somebody_who_writes_into_the_topic_meanwhile(
        self, source: PostgresLog, target: KafkaSettings
    ) -> None:
        written: list[CopyProgress] = []

        def meddle(progress: CopyProgress) -> None:
            if progress.step == "copy" and not written:
                written.append(progress)
                write(target, 1, "meddled")

        with pytest.raises(LogDivergedError, match="somebody else writes into it"):
            copy_log(source, target, progress=meddle)

    def test_a_writer_that_was_not_stopped(self, source: PostgresLog, target: KafkaSettings) -> None:
        def write_on(progress: CopyProgress) -> None:
            if progress.step == "verify" and progress.done == progress.total:
                append(source, 0, small("late"))

        with pytest.raises(LogDivergedError, match="grew while it was copied"):
            copy_log(source, target, progress=write_on)
        # It is stopped now: the copy goes on.
        copy_log(source, target)
        log = KafkaLog.open(target)
        assert values(everything(log)[0])[-1] == "late"
        log.close()


def write(target: KafkaSettings, partition: int, text: str) -> None:
    """A foreign producer's record."""
    producer = KafkaProducer(bootstrap_servers=target.bootstrap_servers)
    producer.send(target.topic, key=b"k", value=text.encode(), partition=partition).get(30)
    producer.close(timeout=30)
