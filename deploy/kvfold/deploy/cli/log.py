"""`kvfold log copy`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.deploy.stopping import stop_signals

if TYPE_CHECKING:
    from kvfold.log.copy import CopyProgress
    from kvfold.log.settings import Settings

__all__ = ["log"]


@click.group
def log() -> None:
    """Look after the log.

    \b
    Example:
      KVFOLD_KAFKA=127.0.0.1:9092 kvfold log copy
    """


@log.command
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def copy(as_json: bool) -> None:
    """Move the embedded log into a Kafka topic, with the same offsets and times.

    Stop `kvfold dev`, every gateway and every projector first. The log is the one in KVFOLD_POSTGRES, else in the folder
    KVFOLD_DATA; the topic is KVFOLD_TOPIC at KVFOLD_KAFKA, which is made if it does not exist. Ctrl-C is safe, and the same
    command goes on afterwards. At the end everything was compared, the projections are bound to the topic, and projectors
    that are started with KVFOLD_KAFKA simply continue.

    \b
    Example:
      KVFOLD_DATA=./kvfold-data KVFOLD_KAFKA=127.0.0.1:9092 kvfold log copy
      KVFOLD_DATA=./kvfold-data KVFOLD_KAFKA=127.0.0.1:9092 kvfold dev
    """
    with stop_signals() as stop:
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.log_move import move_log
        from kvfold.deploy.progress import progress_of
        from kvfold.schemas.errors import ConfigurationError

        settings = started_process()
        if settings.kafka is None:
            raise ConfigurationError(
                "KVFOLD_KAFKA is not set: it names the brokers to copy to, such as 127.0.0.1:9092"
            )
        with _source(settings) as dsn, progress_of("records") as tell:
            try:
                topic = move_log(
                    dsn, settings.kafka_settings(), progress=_told(tell), should_stop=stop.is_set
                )
            except CancelledError as stopped:
                fail(str(stopped), EXIT_REFUSED)
    if as_json:
        facts = {"topic": topic.name, "log_id": topic.log_id, "partitions": topic.partition_count}
        click.echo(json.dumps(facts))
    else:
        click.echo(f"the log is now topic {topic.name}; start kvfold with KVFOLD_KAFKA={settings.kafka}")


def _told(tell: Callable[[str, int, int], None]) -> Callable[[CopyProgress], None]:
    return lambda progress: tell(progress.step, progress.done, progress.total)


@contextmanager
def _source(settings: Settings) -> Iterator[str]:
    """The database of the embedded log: the one that is named, else the embedded server, run for this command."""
    from kvfold.deploy.embedded_postgres import EmbeddedPostgres
    from kvfold.deploy.environment import postgres_dsn
    from kvfold.schemas.errors import LogMisconfiguredError

    if settings.postgres is not None:
        yield postgres_dsn(settings)
        return
    if not (settings.data / "pgdata").exists():
        raise LogMisconfiguredError(
            f"there is no embedded log in {settings.data}: set KVFOLD_DATA to the folder of `kvfold dev`"
        )
    with EmbeddedPostgres.start(settings.data) as server:
        yield server.dsn
