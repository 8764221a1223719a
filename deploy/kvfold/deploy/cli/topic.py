"""`kvfold topic create|check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail

if TYPE_CHECKING:
    from kvfold.log.kafka_settings import KafkaSettings

__all__ = ["topic"]


@click.group
def topic() -> None:
    """Make and check the Kafka topic that is the log.

    \b
    Example:
      KVFOLD_KAFKA=127.0.0.1:9092 kvfold topic create
    """


@topic.command
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def create(as_json: bool) -> None:
    """Make the topic with the settings that kvfold needs; one that exists is checked and never changed.

    KVFOLD_TOPIC, KVFOLD_PARTITIONS (12, fixed once the log is in use) and KVFOLD_KAFKA_REPLICATION_FACTOR say how.

    \b
    Example:
      KVFOLD_KAFKA=127.0.0.1:9092 KVFOLD_PARTITIONS=24 kvfold topic create
    """
    from kvfold.log.kafka import create_topic

    settings = _kafka_settings()
    created = create_topic(settings)
    _tell(settings, as_json=as_json, created=created)


@topic.command
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(as_json: bool) -> None:
    """Say whether the topic is as kvfold needs it; exit code 1 and what mends it if it is not.

    \b
    Example:
      KVFOLD_KAFKA=127.0.0.1:9092 kvfold topic check --json
    """
    _tell(_kafka_settings(), as_json=as_json, created=None)


def _tell(settings: KafkaSettings, *, as_json: bool, created: bool | None) -> None:
    """Prints what the topic is; fails where it has problems."""
    from kvfold.log.kafka import check_topic

    problems = check_topic(settings)
    if as_json:
        facts = {"topic": settings.topic, "partitions": settings.partition_count, "problems": problems}
        click.echo(json.dumps(facts if created is None else {**facts, "created": created}))
    elif not problems:
        state = "is as kvfold needs it" if created is None else "was made" if created else "was there already"
        click.echo(f"topic {settings.topic} with {settings.partition_count} partitions {state}")
    if problems:
        fail("\n".join(problems), EXIT_REFUSED)


def _kafka_settings() -> KafkaSettings:
    from kvfold.deploy.environment import started_process
    from kvfold.log.kafka_settings import keep_values_out_of_logs
    from kvfold.schemas.errors import ConfigurationError

    settings = started_process()
    if settings.kafka is None:
        raise ConfigurationError(
            "KVFOLD_KAFKA is not set: it names the brokers, such as KVFOLD_KAFKA=127.0.0.1:9092"
        )
    keep_values_out_of_logs()
    return settings.kafka_settings()
