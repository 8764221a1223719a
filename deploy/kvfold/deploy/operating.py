"""What commands for operators find: the database of the installation, and the log that it is folded from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from kvfold.deploy.environment import postgres_dsn
from kvfold.log.open import open_log
from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog
from kvfold.log.settings import Settings
from kvfold.projector.generations import ensure_serving_generation
from kvfold.projector.postgres_store import translated
from kvfold.schemas.errors import ConfigurationError, LogMisconfiguredError, StoreUnavailableError

__all__ = ["connected", "dsn_file", "operated", "operated_dsn"]


def dsn_file(data: Path) -> Path:
    """Where `kvfold dev` leaves the address of its Postgres, in its data folder."""
    return data / "dsn"


def operated_dsn(settings: Settings) -> str:
    """The connection string in KVFOLD_POSTGRES, else of the `kvfold dev` that runs on KVFOLD_DATA.

    Raises:
        ConfigurationError: neither is there.
    """
    file = dsn_file(settings.data)
    if settings.postgres is not None or not file.exists():
        try:
            return postgres_dsn(settings)
        except ConfigurationError as error:
            if settings.postgres is None:
                error.add_note(f"(there is no {file} of a `kvfold dev` either; KVFOLD_DATA names its folder)")
            raise
    return file.read_text("utf-8")


@contextmanager
def connected(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    """A connection in autocommit mode; the driver's errors become kvfold's.

    Raises:
        StoreUnavailableError: Postgres does not answer, or nothing was ever folded into the database.
    """
    with (
        translated(),
        psycopg.connect(
            operated_dsn(settings), autocommit=True, connect_timeout=5, application_name="kvfold-operator"
        ) as connection,
    ):
        row = connection.execute("SELECT to_regclass('kvfold.log') IS NOT NULL").fetchone()
        if row is None or not row[0]:
            raise StoreUnavailableError("no log is bound to this database yet: has a projector been started?")
        yield connection


@contextmanager
def operated(settings: Settings) -> Iterator[tuple[psycopg.Connection[Any], Log]]:
    """As `connected`, and the log that the database is folded from; its catalogue is brought up to this release.

    Raises:
        LogMisconfiguredError: the settings name no broker, and the database is folded from a topic.
        LogDivergedError: they name another log.
    """
    with connected(settings) as connection:
        log = _bound_log(settings, connection)
        try:
            ensure_serving_generation(connection, log.describe())
            yield connection, log
        finally:
            log.close()


def _bound_log(settings: Settings, connection: psycopg.Connection[Any]) -> Log:
    """Opened with the partition count that is stored, so that nobody has to repeat it."""
    row = connection.execute("SELECT kind, name, partition_count FROM kvfold.log").fetchone()
    if row is None:
        raise StoreUnavailableError("no log is bound to this database yet: has a projector been started?")
    kind, name, count = row
    dsn = operated_dsn(settings)
    if settings.kafka is not None:
        return open_log(settings.model_copy(update={"partitions": count}), dsn)
    if kind != "postgres":
        raise LogMisconfiguredError(
            f"this database is folded from the {kind} topic {name!r}: set KVFOLD_KAFKA to its brokers"
        )
    return PostgresLog.open(dsn, partition_count=None)
