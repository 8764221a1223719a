"""`KafkaLog`: the log in a Kafka topic.

The topic and its settings are checked when the log is opened. Appends go through `kafka_append`, reads through
`kafka_read`, questions about the topic through `kafka_topic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Self

from kvfold.log.kafka_append import KafkaAppender
from kvfold.log.kafka_read import KafkaLogReader
from kvfold.log.kafka_settings import KafkaSettings, keep_values_out_of_logs
from kvfold.log.kafka_topic import TopicAdmin, check_topic, create_topic
from kvfold.log.port import Appended, Bounds, LogDescription
from kvfold.schemas.errors import LogMisconfiguredError
from kvfold.schemas.record import NewRecord

__all__ = ["KafkaLog", "KafkaSettings", "check_topic", "create_topic"]


class KafkaLog:
    """The log in a topic; implements `Log`. Made by `open`."""

    def __init__(self, settings: KafkaSettings) -> None:
        keep_values_out_of_logs()
        self._settings = settings
        self._admin = TopicAdmin(settings)
        self._appender = KafkaAppender(settings, partition_count=settings.partition_count)

    @classmethod
    def open(cls, settings: KafkaSettings) -> Self:
        """Opens the topic after checking it.

        Raises:
            LogUnavailableError: no broker answers.
            LogMisconfiguredError: the topic does not exist or is not as kvfold needs it; the message names everything
                that is wrong, with the commands that mend it.
        """
        log = cls(settings)
        try:
            problems = log._admin.problems()
        except BaseException:
            log.close()
            raise
        if problems:
            log.close()
            raise LogMisconfiguredError("\n".join(problems))
        return log

    def describe(self) -> LogDescription:
        """The topic's id and partition count, from a broker; see `Log.describe`."""
        return self._admin.describe()

    def append(self, partition: int, record: NewRecord) -> Future[Appended]:
        """Queues a record; see `Log.append`. A future fails `delivery_timeout_ms` after the call, or up to 0.7 s later."""
        return self._appender.append(partition, record)

    def bounds(self, partitions: Sequence[int]) -> Mapping[int, Bounds]:
        """Start, last stable offset and high watermark of each partition now; see `Log.bounds`."""
        return self._admin.bounds(partitions)

    def reader(self) -> KafkaLogReader:
        """A new reader with nothing assigned; it connects with its first poll."""
        return KafkaLogReader(self._settings, self._admin.bounds)

    def open_transactions(self, partitions: Sequence[int]) -> list[tuple[int, int, int]]:
        """The open transactions of foreign producers as (partition, first offset, producer id), sorted.

        Raises:
            LogUnavailableError: no broker answers.
        """
        return self._admin.open_transactions(partitions)

    def close(self) -> None:
        """Sends what is queued (for at most 5 seconds), then closes. Readers that exist go on."""
        self._appender.close()
        self._admin.close()
