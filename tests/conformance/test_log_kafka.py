"""The log's contract on `KafkaLog`."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, TopicPartition

from conformance.log_contract import PARTITIONS, WAIT_S, LogContract
from conformance.record_contexts_contract import RecordContextsContract
from kvfold.log.kafka import KafkaLog, KafkaSettings, create_topic
from kvfold.log.port import Log

__all__: list[str] = []


@pytest.mark.kafka
class TestKafkaLog(LogContract, RecordContextsContract):
    @pytest.fixture
    def log(self, kafka_bootstrap: str) -> Iterator[Log]:
        self._settings = KafkaSettings(
            bootstrap_servers=kafka_bootstrap, topic=f"log-{uuid4().hex}", partition_count=PARTITIONS
        )
        create_topic(self._settings)
        log = KafkaLog.open(self._settings)
        yield log
        log.close()

    def trim(self, log: Log, partition: int, offset: int) -> None:
        with KafkaAdminClient(bootstrap_servers=self._settings.bootstrap_servers) as admin:
            admin.delete_records({TopicPartition(self._settings.topic, partition): offset})

    def remake(self, log: Log) -> Log:
        log.close()
        with KafkaAdminClient(bootstrap_servers=self._settings.bootstrap_servers) as admin:
            admin.delete_topics([self._settings.topic])
        deadline = monotonic() + WAIT_S
        while not create_topic(self._settings):  # the deletion takes a moment
            assert monotonic() < deadline
        return KafkaLog.open(self._settings)
