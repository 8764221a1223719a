"""How the topic is reached."""

from __future__ import annotations

import logging

import pytest

from kvfold.log.kafka_settings import CLIENT_SETTINGS, KafkaSettings, keep_values_out_of_logs
from kvfold.log.kafka_topic import topic_config

__all__: list[str] = []


def test_secrets_are_passed_on_and_not_shown() -> None:
    settings = KafkaSettings(
        bootstrap_servers="a:1, b:2,",
        security_protocol="SASL_SSL",
        ssl_password="hush-key",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="kvfold",
        sasl_plain_password="hush-sasl",
    )
    assert "hush" not in repr(settings) + str(settings)
    options = settings.client_options()
    assert options["bootstrap_servers"] == ["a:1", "b:2"]
    assert options["ssl_password"] == "hush-key"
    assert options["sasl_plain_password"] == "hush-sasl"
    assert set(CLIENT_SETTINGS) <= set(options)


def test_the_topics_settings() -> None:
    settings = KafkaSettings(bootstrap_servers="a:1", min_insync_replicas=2)
    assert topic_config(settings) == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": "2097152",
        "min.insync.replicas": "2",
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (logging.NOTSET, logging.WARNING),
        (logging.DEBUG, logging.WARNING),
        (logging.INFO, logging.INFO),
        (logging.ERROR, logging.ERROR),
    ],
)
def test_the_client_writes_no_values_into_logs(before: int, after: int) -> None:
    logger = logging.getLogger("kafka")
    kept = logger.level
    try:
        logger.setLevel(before)
        keep_values_out_of_logs()
        assert logger.level == after
    finally:
        logger.setLevel(kept)
