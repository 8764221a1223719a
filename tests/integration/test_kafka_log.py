"""The log in a topic beside foreign producers and wrong settings, on the broker that all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any, Final
from uuid import uuid4

import pytest
from crc32c import crc32c
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from conformance.log_contract import WAIT_S, append, opened, read, small, values
from kvfold.log.kafka import KafkaLog, KafkaSettings, check_topic, create_topic
from kvfold.schemas.errors import LogMisconfiguredError, LogUnavailableError

__all__: list[str] = []

pytestmark = pytest.mark.kafka

PARTITIONS: Final = 2


@pytest.fixture
def settings(kafka_bootstrap: str) -> KafkaSettings:
    topic = f"kafka-log-{uuid4().hex}"
    return KafkaSettings(bootstrap_servers=kafka_bootstrap, topic=topic, partition_count=PARTITIONS)


@pytest.fixture
def log(settings: KafkaSettings) -> Iterator[KafkaLog]:
    create_topic(settings)
    log = KafkaLog.open(settings)
    yield log
    log.close()


@contextmanager
def transactional(settings: KafkaSettings) -> Iterator[Any]:
    """A foreign producer that uses transactions."""
    producer = KafkaProducer(
        bootstrap_servers=settings.bootstrap_servers,
        transactional_id=f"foreign-{uuid4().hex}",
        max_block_ms=30_000,
    )
    try:
        producer.init_transactions()
        yield producer
    finally:
        producer.close(timeout=WAIT_S)


def send(producer: Any, settings: KafkaSettings, partition: int, *texts: str) -> None:
    for sent in [
        producer.send(settings.topic, key=b"k", value=text.encode(), partition=partition) for text in texts
    ]:
        sent.get(WAIT_S)


class TestTransactionsOfForeignProducers:
    def test_an_aborted_one_at_the_end_is_passed(self, log: KafkaLog, settings: KafkaSettings) -> None:
        append(log, 0, small("before"))
        with transactional(settings) as producer:
            producer.begin_transaction()
            send(producer, settings, 0, "never", "never")
            producer.abort_transaction()
        with opened(log, {0: 0}) as reader:
            end = _settled(log, 0)
            assert end == 4  # one record, two aborted, the marker
            assert values(read(reader, {0: end})[0]) == ["before"]

    def test_an_aborted_one_alone_moves_a_position_that_stands_before_it(
        self, log: KafkaLog, settings: KafkaSettings
    ) -> None:
        with opened(log, {0: 0}) as reader:
            assert not reader.poll(timeout_ms=100, records_max=10, bytes_max=1_000)
            with transactional(settings) as producer:
                producer.begin_transaction()
                send(producer, settings, 0, "never")
                producer.abort_transaction()
            assert read(reader, {0: _settled(log, 0)}) == {0: []}

    def test_a_committed_one_at_the_end_is_passed(self, log: KafkaLog, settings: KafkaSettings) -> None:
        with transactional(settings) as producer:
            producer.begin_transaction()
            send(producer, settings, 0, "a", "b")
            producer.commit_transaction()
            producer.begin_transaction()
            send(producer, settings, 0, "c")
            producer.commit_transaction()
        with opened(log, {0: 0}) as reader:
            end = _settled(log, 0)
            found = read(reader, {0: end}, records_max=1)[0]
        assert [(record.offset, record.value) for record in found] == [(0, b"a"), (1, b"b"), (3, b"c")]
        assert end == 5

    @pytest.mark.parametrize("commit", [True, False])
    def test_an_open_one_hides_what_follows_and_is_named(
        self, log: KafkaLog, settings: KafkaSettings, commit: bool
    ) -> None:
        append(log, 0, small("before"))
        with transactional(settings) as producer, opened(log, {0: 0}) as reader:
            producer.begin_transaction()
            send(producer, settings, 0, "in")
            append(log, 0, small("after"))
            bounds = log.bounds([0])[0]
            assert (bounds.start, bounds.stable_end, bounds.end) == (0, 1, 3)
            [(partition, first_offset, producer_id)] = log.open_transactions(range(PARTITIONS))
            assert (partition, first_offset) == (0, 1)
            assert producer_id >= 0
            assert values(read(reader, {0: 1})[0]) == ["before"]
            assert not reader.poll(timeout_ms=300, records_max=10, bytes_max=1_000)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            found = read(reader, {0: _settled(log, 0)})[0]
        assert values(found) == (["in", "after"] if commit else ["after"])
        assert log.open_transactions(range(PARTITIONS)) == []

    def test_one_that_spans_partitions_and_leaves_one_empty(
        self, log: KafkaLog, settings: KafkaSettings
    ) -> None:
        with transactional(settings) as producer:
            producer.begin_transaction()
            send(producer, settings, 0, "never")
            send(producer, settings, 1, "never")
            producer.abort_transaction()
        append(log, 1, small("on"))
        with opened(log, {0: 0, 1: 0}) as reader:
            found = read(reader, {0: _settled(log, 0), 1: _settled(log, 1)})
        assert found[0] == []
        assert values(found[1]) == ["on"]


def _settled(log: KafkaLog, partition: int) -> int:
    """The end, once the markers of ended transactions are written (the broker does it after its answer)."""
    deadline = monotonic() + WAIT_S
    while True:
        bounds = log.bounds([partition])[partition]
        if bounds.stable_end == bounds.end and not log.open_transactions([partition]):
            return bounds.end
        assert monotonic() < deadline


class TestForeignRecords:
    def test_odd_headers_are_read_and_what_follows_too(self, log: KafkaLog, settings: KafkaSettings) -> None:
        append(log, 0, small("before"))
        produce_raw(
            settings, 0, headers=[("ce_XX", b"1"), ("null", None)], replacing=(b"ce_XX", b"ce_\xff\xfe")
        )
        append(log, 0, small("after"))
        with opened(log, {0: 0}) as reader:
            before, odd, after = read(reader, {0: 3})[0]
        assert (before.value, after.value) == (b"before", b"after")
        assert odd.headers == (("ce_\udcff\udcfe", b"1"), ("null", b""))

    @pytest.mark.parametrize("codec", ["gzip"])
    def test_compressed_batches_are_read(self, log: KafkaLog, settings: KafkaSettings, codec: str) -> None:
        producer = KafkaProducer(
            bootstrap_servers=settings.bootstrap_servers, compression_type=codec, linger_ms=100
        )
        send(producer, settings, 0, *(f"{number}-" + "x" * 1_000 for number in range(20)))
        producer.close(timeout=WAIT_S)
        with opened(log, {0: 7}) as reader:  # from the middle of a batch, probably
            found = read(reader, {0: 20}, records_max=3)[0]
        assert [record.offset for record in found] == list(range(7, 20))
        assert values(found)[0].startswith("7-")


def produce_raw(
    settings: KafkaSettings, partition: int, *, headers: list[Any], replacing: tuple[bytes, bytes]
) -> None:
    """Produces a record that the client would not make, straight through the protocol."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    builder.append(0, 1_700_000_000_000, b"k", b"odd", headers)
    data = bytearray(bytes(builder.build()).replace(*replacing))
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData(index=partition, records=bytes(data))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[topic(name=settings.topic, partition_data=[part])],
        max_version=9,
    )

    async def ask(manager: Any) -> Any:
        return await manager.send(request)

    with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
        answer = admin._manager.run(ask, admin._manager)
    [answered] = answer.responses[0].partition_responses
    assert answered.error_code == 0, answered


class TestCheckTopic:
    def test_a_topic_that_was_made_by_us_is_right(self, settings: KafkaSettings) -> None:
        assert create_topic(settings)
        assert check_topic(settings) == []
        assert not create_topic(settings)

    @pytest.mark.parametrize(
        ("name", "wrong", "right"),
        [
            ("cleanup.policy", "compact", "delete"),
            ("retention.ms", "604800000", "-1"),
            ("retention.bytes", "1000", "-1"),
            ("message.timestamp.type", "CreateTime", "LogAppendTime"),
            ("max.message.bytes", "1048588", "2097152"),
            ("min.insync.replicas", "2", "1"),
        ],
    )
    def test_each_wrong_setting_is_named_with_its_remedy(
        self, settings: KafkaSettings, name: str, wrong: str, right: str
    ) -> None:
        create_topic(settings)
        with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, settings.topic, {name: wrong})])
        [problem] = check_topic(settings)
        assert problem == (
            f"{name} of topic {settings.topic} is {wrong} and must be {right}: kafka-configs.sh --bootstrap-server "
            f"{settings.bootstrap_servers} --entity-type topics --entity-name {settings.topic} --alter --add-config "
            f"{name}={right}"
        )
        with pytest.raises(LogMisconfiguredError, match=f"{name}={right}"):
            KafkaLog.open(settings)

    def test_all_wrong_settings_are_named_together(self, settings: KafkaSettings) -> None:
        with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
            admin.create_topics(
                {settings.topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True
            )
        with pytest.raises(LogMisconfiguredError) as refused:
            KafkaLog.open(settings)
        lines = str(refused.value).splitlines()
        assert len(lines) == 4
        for text in (
            "has 1 partitions and 2 are configured",
            "retention.ms",
            "message.timestamp.type",
            "max.message",
        ):
            assert any(text in line for line in lines), text

    def test_a_missing_topic(self, settings: KafkaSettings) -> None:
        [problem] = check_topic(settings)
        assert "does not exist" in problem
        assert "kvfold topic create" in problem
        with pytest.raises(LogMisconfiguredError, match="does not exist"):
            KafkaLog.open(settings)

    def test_a_raised_partition_count_is_refused_and_seen_by_a_log_that_is_open(
        self, log: KafkaLog, settings: KafkaSettings
    ) -> None:
        assert log.describe().partition_count == PARTITIONS
        with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
            admin.create_partitions({settings.topic: PARTITIONS + 1})
        deadline = monotonic() + WAIT_S
        while log.describe().partition_count == PARTITIONS:
            assert monotonic() < deadline
        [problem] = check_topic(settings)
        assert f"has {PARTITIONS + 1} partitions and {PARTITIONS} are configured" in problem
        with pytest.raises(LogMisconfiguredError, match="two orders"):
            KafkaLog.open(settings)

    def test_more_replicas_than_brokers_are_refused_with_the_brokers_words(
        self, settings: KafkaSettings
    ) -> None:
        with pytest.raises(LogMisconfiguredError, match="replication factor"):
            create_topic(replace(settings, replication_factor=3))

    def test_a_topic_that_was_deleted_is_no_longer_described(
        self, log: KafkaLog, settings: KafkaSettings
    ) -> None:
        with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
            admin.delete_topics([settings.topic])
        with pytest.raises(LogMisconfiguredError):
            deadline = monotonic() + WAIT_S
            while monotonic() < deadline:
                log.describe()
        with pytest.raises(LogMisconfiguredError):
            log.bounds([0])

    def test_no_broker(self) -> None:
        settings = KafkaSettings(bootstrap_servers="127.0.0.1:1")
        with pytest.raises(LogUnavailableError):
            check_topic(settings)

    def test_a_refused_client_setting_is_named(self, settings: KafkaSettings) -> None:
        with pytest.raises(LogMisconfiguredError, match="the Kafka settings are refused"):
            check_topic(replace(settings, security_protocol="SSL", ssl_cafile="/nowhere/ca.pem"))
