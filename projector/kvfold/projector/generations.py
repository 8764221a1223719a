"""Generations: complete sets of projection tables, each in a schema of its own, and the pointer to the serving one."""

from __future__ import annotations

from typing import Any, Final

from psycopg import Connection

from kvfold.log.port import LogDescription
from kvfold.projector.statements import sql_files
from kvfold.schemas.errors import LogDivergedError, LogMisconfiguredError
from kvfold.schemas.projection import schema_name

__all__ = ["SCHEMA_VERSION", "bind_log", "ensure_serving_generation"]

SCHEMA_VERSION: Final = 1
"""Version of a generation's tables that this release writes."""

_SETUP_LOCK: Final = 0x6B76666F6C64  # "kvfold": one process at a time sets a database up


def ensure_serving_generation(connection: Connection[Any], log: LogDescription) -> int:
    """Makes the catalogue and the first generation where there is none, and binds the database to its log.

    Safe for any number of processes at once. Gives the number of the serving generation.

    Raises:
        LogMisconfiguredError: the database's projections were folded from a log with another partition count.
        LogDivergedError: … from another log, or from a topic that was made anew since.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))
        for statement in sql_files("catalog", 0):
            connection.execute(statement)
        bind_log(connection, log)
        row = connection.execute("SELECT serving FROM kvfold.pointer").fetchone()
        if row is not None:
            return int(row[0])
        _create(connection, 1, log.partition_count)
        connection.execute(
            "INSERT INTO kvfold.generation (id, state, schema_version) VALUES (1, 'serving', %s)",
            (SCHEMA_VERSION,),
        )
        connection.execute("INSERT INTO kvfold.pointer (serving) VALUES (1)")
        return 1


def bind_log(connection: Connection[Any], log: LogDescription) -> None:
    """Remembers the log at first use, and from then on refuses any other."""
    row = connection.execute("SELECT kind, name, log_id, partition_count FROM kvfold.log").fetchone()
    if row is None:
        connection.execute(
            "INSERT INTO kvfold.log (kind, name, log_id, partition_count) VALUES (%s, %s, %s, %s)",
            (log.kind, log.name, log.log_id, log.partition_count),
        )
        return
    bound = LogDescription(*row)
    if bound.partition_count != log.partition_count:
        raise LogMisconfiguredError(
            f"the log {log.name!r} has {log.partition_count} partitions, but this database was folded from "
            f"{bound.partition_count}: a count never changes once a log is in use. Bring the old count back, or fold "
            "into an empty database."
        )
    if bound != log:
        raise LogDivergedError(
            f"this database was folded from the {bound.kind} log {bound.name!r} with id {bound.log_id}, and this is the "
            f"{log.kind} log {log.name!r} with id {log.log_id}: the topic was made anew, or the settings name another "
            "one. Point to the old log, or fold into an empty database."
        )


def _create(connection: Connection[Any], generation: int, partition_count: int) -> None:
    schema = schema_name(generation)
    connection.execute(f"CREATE SCHEMA {schema}")
    for statement in sql_files("generation", generation):
        connection.execute(statement)
    for table in ("partition_offset", "claim"):
        connection.execute(
            f"INSERT INTO {schema}.{table} (partition) SELECT * FROM generate_series(0, %s)",
            (partition_count - 1,),
        )
