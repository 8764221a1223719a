"""The brokers that the tests use: they answer, and they keep their data whatever ended them."""

from __future__ import annotations

import threading
import uuid

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, UnknownTopicOrPartitionError

from support.broker import Broker

pytestmark = pytest.mark.kafka


def make_topic(bootstrap: str) -> str:
    name = f"smoke-{uuid.uuid4().hex[:12]}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
    finally:
        admin.close()
    return name


def produce(bootstrap: str, topic: str, value: bytes) -> int:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    try:
        metadata = producer.send(topic, value=value, partition=1).get(timeout=30)
    finally:
        producer.close()
    offset: int = metadata.offset
    return offset


def consume(bootstrap: str, topic: str, *, count: int) -> list[bytes]:
    partition = TopicPartition(topic, 1)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=30_000)
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


def test_the_shared_broker_takes_and_gives_back(kafka_broker: Broker, kafka_bootstrap: str) -> None:
    assert kafka_bootstrap == kafka_broker.bootstrap
    topic = make_topic(kafka_bootstrap)
    assert [produce(kafka_bootstrap, topic, value) for value in (b"a", b"")] == [0, 1]
    assert consume(kafka_bootstrap, topic, count=2) == [b"a", b""]


def test_a_topic_that_nobody_made_is_an_error(kafka_bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    try:
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics([f"never-made-{uuid.uuid4().hex}"])
    finally:
        admin.close()
    producer = KafkaProducer(bootstrap_servers=kafka_bootstrap, max_block_ms=2_000)
    try:
        with pytest.raises(KafkaError):
            producer.send(f"never-made-{uuid.uuid4().hex}", b"x").get(timeout=10)
    finally:
        producer.close()


@pytest.mark.slow
def test_restart_and_kill_keep_address_and_data(own_kafka_broker: Broker) -> None:
    broker = own_kafka_broker
    address = broker.bootstrap
    topic = make_topic(address)
    produce(address, topic, b"first")
    broker.restart()
    assert broker.bootstrap == address
    assert consume(address, topic, count=1) == [b"first"]
    assert produce(address, topic, b"second") == 1
    broker.kill()
    broker.restart()
    assert broker.bootstrap == address
    assert produce(address, topic, b"third") == 2
    assert consume(address, topic, count=3) == [b"first", b"second", b"third"]
    broker.pause()
    wake = threading.Timer(1.0, broker.resume)
    wake.start()
    assert produce(address, topic, b"fourth") == 3
    wake.join()
