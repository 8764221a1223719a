"""The move of an embedded log into a Kafka topic, as `kvfold log copy` does it.

```
quiet?   no projector and no other process of kvfold is connected
copy     records with their offsets and times; interrupted, the same command goes on (`kvfold.log.copy`)
hand over, one transaction under a lock that keeps every writer out:
         the embedded log has not grown · the projections are bound to the topic · the embedded log's schema is renamed
```

Projectors that start afterwards with KVFOLD_KAFKA go on at the offsets they stood at. A writer that was overlooked fails
from the hand-over on, instead of writing into a log that nobody folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import psycopg
from psycopg import Connection

from kvfold.log.copy import CopyProgress, copy_log
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.log.kafka_topic import APPEND_TIME, CREATE_TIME, TopicAdmin
from kvfold.log.port import LogDescription
from kvfold.log.postgres import PostgresLog
from kvfold.projector.postgres_store import translated
from kvfold.schemas.errors import KvfoldError, LogDivergedError, LogMisconfiguredError

__all__ = ["MOVED_SCHEMA", "LogInUseError", "move_log"]

MOVED_SCHEMA: Final = "kvfold_log_moved"
"""What the embedded log's schema is called after the move; it is never read again, and may be dropped."""

_SCHEMA: Final = "kvfold_log"
_TIMESTAMP_TYPE: Final = "message.timestamp.type"


class LogInUseError(KvfoldError):
    """Processes of kvfold are connected to the database: they have to be stopped first."""

    def __init__(self, who: list[str]) -> None:
        names = ", ".join(who)
        super().__init__(f"the log is in use by {names}: stop every gateway and projector", code="log-in-use")


def move_log(
    dsn: str,
    target: KafkaSettings,
    *,
    progress: Callable[[CopyProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> LogDescription:
    """Moves the embedded log in this database into the topic, and binds the projections to it; gives the topic.

    Raises:
        LogInUseError: projectors or gateways run.
        CancelledError, LogMisconfiguredError, LogDivergedError, LogUnavailableError: as `copy_log`; nothing is bound, and
            the same call later goes on.
        StoreUnavailableError: Postgres does not answer.
    """
    with translated(), psycopg.connect(dsn, autocommit=True, connect_timeout=5) as connection:
        _check_not_moved(connection)
        _check_quiet(connection)
        source = PostgresLog.open(dsn, partition_count=None)
        try:
            count = source.describe().partition_count
            ends = {partition: bounds.end for partition, bounds in source.bounds(range(count)).items()}
            _reopen_finished_copy(target, ends)
            topic = copy_log(source, target, progress=progress, should_stop=should_stop)
            _hand_over(connection, source.describe(), topic, ends)
        finally:
            source.close()
        return topic


def _check_not_moved(connection: Connection[Any]) -> None:
    if not _exists(connection, f"{_SCHEMA}.log") and _exists(connection, f"{MOVED_SCHEMA}.log"):
        raise LogMisconfiguredError("the embedded log of this database was moved to a topic already")


def _check_quiet(connection: Connection[Any]) -> None:
    """Refuses while sessions of projectors, or others that name themselves after kvfold, are connected."""
    rows = connection.execute(
        """
        SELECT DISTINCT application_name FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'kvfold%'
        ORDER BY 1
        """
    ).fetchall()
    if rows:
        raise LogInUseError([row[0] for row in rows])


def _reopen_finished_copy(target: KafkaSettings, ends: Mapping[int, int]) -> None:
    """Makes a copy that was finished, but not handed over, one that `copy_log` compares and finishes again.

    Only a topic that ends exactly where the source does: one in use has other ends, and `copy_log` refuses it.
    """
    admin = TopicAdmin(target)
    try:
        try:
            found = admin.describe()
        except LogMisconfiguredError:
            return
        if found.partition_count != len(ends) or not any(ends.values()):
            return
        bounds = admin.bounds(range(found.partition_count))
        same = all(bounds[partition].end == end for partition, end in ends.items())
        if same and admin.config()[_TIMESTAMP_TYPE] == APPEND_TIME:
            admin.alter({_TIMESTAMP_TYPE: CREATE_TIME})
    finally:
        admin.close()


def _hand_over(
    connection: Connection[Any], source: LogDescription, topic: LogDescription, ends: Mapping[int, int]
) -> None:
    """Binds the projections to the topic and takes the embedded log out of use, both or neither."""
    with connection.transaction():
        connection.execute(f"LOCK TABLE {_SCHEMA}.log_partition IN ACCESS EXCLUSIVE MODE")
        rows = connection.execute(f"SELECT partition, offset_next FROM {_SCHEMA}.log_partition").fetchall()
        if dict(rows) != dict(ends):
            raise LogDivergedError(
                "the embedded log grew while it was copied: stop every writer and copy again"
            )
        if _exists(connection, "kvfold.log"):
            bound = connection.execute(
                """
                UPDATE kvfold.log SET kind = %(kind)s, name = %(name)s, log_id = %(log_id)s
                WHERE log_id = %(old_id)s AND partition_count = %(count)s
                """,
                {
                    "kind": topic.kind,
                    "name": topic.name,
                    "log_id": topic.log_id,
                    "old_id": source.log_id,
                    "count": topic.partition_count,
                },
            )
            if bound.rowcount == 0 and connection.execute("SELECT 1 FROM kvfold.log").fetchone():
                raise LogDivergedError("the projections in this database were folded from another log")
        connection.execute(f"ALTER SCHEMA {_SCHEMA} RENAME TO {MOVED_SCHEMA}")


def _exists(connection: Connection[Any], table: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,)).fetchone()
    return row is not None and bool(row[0])
