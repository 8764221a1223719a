"""Opens the log that the settings name: the Kafka topic, or the embedded log in Postgres."""

from __future__ import annotations

from kvfold.log.kafka import KafkaLog
from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog
from kvfold.log.settings import Settings

__all__ = ["open_log"]


def open_log(settings: Settings, postgres_dsn: str | None) -> Log:
    """The log, checked and ready.

    Raises:
        LogUnavailableError: its server does not answer.
        LogMisconfiguredError: the topic is missing or set up otherwise; the message says how to mend it.
    """
    if settings.kafka is not None:
        return KafkaLog.open(settings.kafka_settings())
    assert postgres_dsn is not None, "the embedded log lives in Postgres"
    return PostgresLog.open(postgres_dsn, partition_count=settings.partitions)
