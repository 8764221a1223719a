"""The topic: making it, checking its settings, asking about it."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer import IsolationLevel, OffsetSpec

from kvfold.log.kafka_client import make_client, translated
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.log.port import Bounds, LogDescription
from kvfold.schemas.errors import LogMisconfiguredError, LogUnavailableError
from kvfold.schemas.limits import RECORD_BYTES_MAX

__all__ = ["APPEND_TIME", "CREATE_TIME", "TopicAdmin", "check_topic", "create_topic", "topic_config"]

APPEND_TIME: Final = "LogAppendTime"
CREATE_TIME: Final = "CreateTime"

_T = TypeVar("_T")


def topic_config(settings: KafkaSettings, *, timestamp_type: str = APPEND_TIME) -> dict[str, str]:
    """The settings of the topic that kvfold depends on. `CreateTime` is right only while a log is copied into it."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": timestamp_type,
        "max.message.bytes": str(RECORD_BYTES_MAX),
        "min.insync.replicas": str(settings.min_insync_replicas),
    }


def create_topic(settings: KafkaSettings, *, timestamp_type: str = APPEND_TIME) -> bool:
    """Makes the topic with the settings that kvfold needs; False if it was there already (unchanged: check it).

    Raises:
        LogUnavailableError: no broker answers.
        LogMisconfiguredError: the brokers refuse it (fewer brokers than replicas, a policy, no permission).
    """
    with _opened(settings) as admin:
        return admin.create(topic_config(settings, timestamp_type=timestamp_type))


def check_topic(settings: KafkaSettings) -> list[str]:
    """What is wrong with the topic, each with the command that mends it; empty if it is as kvfold needs it.

    Raises:
        LogUnavailableError: no broker answers.
    """
    with _opened(settings) as admin:
        return admin.problems()


class TopicAdmin:
    """Questions about the topic over one admin client, made when first needed and anew after it failed.

    Safe to use from several threads, one after the other. Every call ends within about twice `delivery_timeout_ms`.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: Any = None
        self._closed = False

    def describe(self) -> LogDescription:
        """The topic's id and partition count, from a broker.

        Raises:
            LogUnavailableError: no broker answers.
            LogMisconfiguredError: there is no such topic.
        """
        topic = self._describe()
        if topic is None:
            raise LogMisconfiguredError(_missing(self._settings))
        return LogDescription("kafka", self._settings.topic, str(topic["topic_id"]), len(topic["partitions"]))

    def bounds(self, partitions: Sequence[int]) -> dict[int, Bounds]:
        """Start, last stable offset and high watermark of each partition.

        Raises:
            LogUnavailableError: no broker answers.
            LogMisconfiguredError: the topic or a partition does not exist.
        """
        topic_partitions = [TopicPartition(self._settings.topic, partition) for partition in partitions]
        if not topic_partitions:
            return {}

        def offsets(client: Any, spec: Any, isolation: Any) -> Mapping[Any, Any]:
            asked = dict.fromkeys(topic_partitions, spec)
            found: Mapping[Any, Any] = client.list_partition_offsets(asked, isolation_level=isolation)
            return found

        def ask(client: Any) -> dict[int, Bounds]:
            # In this order the three agree as start <= stable_end <= end while the log grows.
            start = offsets(client, OffsetSpec.EARLIEST, IsolationLevel.READ_UNCOMMITTED)
            stable = offsets(client, OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)
            end = offsets(client, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)
            return {
                tp.partition: Bounds(start[tp].offset, stable[tp].offset, end[tp].offset)
                for tp in topic_partitions
            }

        return self._ask(ask)

    def open_transactions(self, partitions: Sequence[int]) -> list[tuple[int, int, int]]:
        """The open transactions of producers as (partition, first offset, producer id), in that order.

        Raises:
            LogUnavailableError: no broker answers.
        """
        topic_partitions = [TopicPartition(self._settings.topic, partition) for partition in partitions]
        states = self._ask(lambda client: client.describe_producers(topic_partitions))
        return sorted(
            (tp.partition, producer.current_transaction_start_offset, producer.producer_id)
            for tp, state in states.items()
            for producer in state.active_producers
            if producer.current_transaction_start_offset >= 0
        )

    def problems(self) -> list[str]:
        """What `check_topic` answers."""
        topic = self._describe()
        if topic is None:
            return [_missing(self._settings)]
        found = []
        count, wanted = len(topic["partitions"]), self._settings.partition_count
        if count != wanted:
            found.append(_wrong_count(self._settings, count))
        actual = self.config()
        for name, value in topic_config(self._settings).items():
            if actual.get(name) != value:
                mend = _command("kafka-configs.sh", self._settings, f"--alter --add-config {name}={value}")
                found.append(
                    f"{name} of topic {self._settings.topic} is {actual.get(name)} and must be {value}: {mend}"
                )
        return found

    def config(self) -> dict[str, str]:
        """All settings of the topic."""
        resource = ConfigResource(ConfigResourceType.TOPIC, self._settings.topic)
        answer = self._ask(lambda client: client.describe_configs([resource], config_filter="all"))
        return {name: entry["value"] for name, entry in answer["topic"][self._settings.topic].items()}

    def alter(self, config: Mapping[str, str]) -> None:
        """Changes settings of the topic."""
        resource = ConfigResource(ConfigResourceType.TOPIC, self._settings.topic, dict(config))
        self._ask(lambda client: client.alter_configs([resource]))

    def create(self, config: Mapping[str, str]) -> bool:
        """Makes the topic; False if it is there."""
        settings = self._settings
        topic = {
            "num_partitions": settings.partition_count,
            "replication_factor": settings.replication_factor,
            "configs": dict(config),
        }

        def make(client: Any) -> bool:
            answer = client.create_topics({settings.topic: topic}, raise_errors=False)["topics"][0]
            if answer["error_code"] == TopicAlreadyExistsError.errno:
                return False
            if answer["error_code"] != 0:
                reason = answer["error_message"] or f"code {answer['error_code']}"
                raise LogMisconfiguredError(f"Kafka refuses to make topic {settings.topic}: {reason}")
            client.wait_for_topics([settings.topic])
            return True

        return self._ask(make)

    def close(self) -> None:
        """Closes the connection; later calls fail with `LogUnavailableError`."""
        with self._lock:
            self._closed = True
            self._drop()

    def _describe(self) -> dict[str, Any] | None:
        topics = self._ask(lambda client: client.describe_topics([self._settings.topic]))
        found = [topic for topic in topics if topic["error_code"] == 0 and topic["partitions"]]
        if topics and not found and topics[0]["error_code"] != UnknownTopicOrPartitionError.errno:
            raise LogUnavailableError(
                f"topic {self._settings.topic} is not ready (code {topics[0]['error_code']})"
            )
        return found[0] if found else None

    def _ask(self, question: Callable[[Any], _T]) -> _T:
        with self._lock:
            if self._closed:
                raise LogUnavailableError("the log is closed")
            try:
                if self._client is None:
                    timeout_ms = self._settings.delivery_timeout_ms
                    self._client = make_client(
                        KafkaAdminClient, self._settings, request_timeout_ms=timeout_ms
                    )
                return question(self._client)
            except UnknownTopicOrPartitionError as error:
                raise LogMisconfiguredError(_missing(self._settings)) from error
            except KafkaError as error:
                self._drop()
                raise translated(error) from error

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(KafkaError):
                client.close()


@contextmanager
def _opened(settings: KafkaSettings) -> Iterator[TopicAdmin]:
    admin = TopicAdmin(settings)
    try:
        yield admin
    finally:
        admin.close()


def _command(script: str, settings: KafkaSettings, arguments: str) -> str:
    servers = shlex.quote(settings.bootstrap_servers)
    entity = "--entity-type topics --entity-name" if script == "kafka-configs.sh" else "--topic"
    return f"{script} --bootstrap-server {servers} {entity} {shlex.quote(settings.topic)} {arguments}"


def _missing(settings: KafkaSettings) -> str:
    return f"topic {settings.topic} does not exist: make it with `kvfold topic create`"


def _wrong_count(settings: KafkaSettings, count: int) -> str:
    if count < settings.partition_count:
        mend = _command("kafka-topics.sh", settings, f"--alter --partitions {settings.partition_count}")
        return (
            f"topic {settings.topic} has {count} partitions and {settings.partition_count} are configured: set "
            f"KVFOLD_PARTITIONS={count}; only while the topic is empty may it be raised instead: {mend}"
        )
    return (
        f"topic {settings.topic} has {count} partitions and {settings.partition_count} are configured: set "
        f"KVFOLD_PARTITIONS={count} if the log was made with that count; if partitions were added since, scopes would "
        "have two orders: move to a new topic"
    )
