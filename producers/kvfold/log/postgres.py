"""`PostgresLog`: the log in a Postgres table, the embedded default.

It keeps the contract of the topic: dense offsets, commit order, timestamps that are the log's own. Each record is durable
when it is acknowledged, and readers are woken by `NOTIFY` on channel `kvfold_log` with payload `partition:offset`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Self

from psycopg import Connection

from kvfold.log.port import Appended, Bounds, LogDescription
from kvfold.log.postgres_append import PostgresAppender
from kvfold.log.postgres_connection import GuardedConnection, Watchdog
from kvfold.log.postgres_read import ANSWER_TIMEOUT_S, PostgresLogReader
from kvfold.log.statements import statement
from kvfold.schemas.errors import LogMisconfiguredError, LogUnavailableError
from kvfold.schemas.record import NewRecord

__all__ = ["APPEND_TIMEOUT_MS", "PostgresLog"]

APPEND_TIMEOUT_MS: Final = 5_000
ANSWER_TIMEOUT_MS: Final = int(ANSWER_TIMEOUT_S * 1000)
LOG_NAME: Final = "kvfold_log"


class PostgresLog:
    """The embedded log; implements `Log`. Made by `open`."""

    def __init__(
        self, conninfo: str, *, partition_count: int, append_timeout_ms: int = APPEND_TIMEOUT_MS
    ) -> None:
        self._conninfo = conninfo
        self._partition_count = partition_count
        self._watchdog = Watchdog()
        self._lock = threading.Lock()
        self._control = GuardedConnection(conninfo, self._watchdog, statement_timeout_ms=ANSWER_TIMEOUT_MS)
        self._appender = PostgresAppender(
            conninfo, self._watchdog, partition_count=partition_count, timeout_ms=append_timeout_ms
        )
        self._closed = False

    @classmethod
    def open(
        cls, conninfo: str, *, partition_count: int | None, append_timeout_ms: int = APPEND_TIMEOUT_MS
    ) -> Self:
        """Opens the log and makes its tables if they are not there; processes may start at the same time.

        The partition count is fixed when the log is made. None takes the count it was made with.

        Raises:
            LogUnavailableError: the server does not answer.
            LogMisconfiguredError: the log has another partition count, or None was given and there is no log.
        """
        watchdog = Watchdog()
        connection = GuardedConnection(conninfo, watchdog, statement_timeout_ms=ANSWER_TIMEOUT_MS)
        try:
            with connection.use(timeout_s=ANSWER_TIMEOUT_S) as server:
                if partition_count is not None:
                    _create(server, partition_count)
                stored = _select_log(server).partition_count
        finally:
            connection.close()
            watchdog.close()
        _check_partition_count(stored, partition_count or stored)
        return cls(conninfo, partition_count=stored, append_timeout_ms=append_timeout_ms)

    def describe(self) -> LogDescription:
        """Identity and partition count, from the server; see `Log.describe`."""
        with self._lock, self._use_control() as server:
            description = _select_log(server)
        _check_partition_count(description.partition_count, self._partition_count)
        return description

    def append(self, partition: int, record: NewRecord) -> Future[Appended]:
        """Queues a record; see `Log.append`.

        A future fails `append_timeout_ms` after the call, or later by what a last try takes (1 s; 3 s to connect).
        A record that was still queued then is never sent; one that was being sent may be in the log.
        """
        return self._appender.append(partition, record)

    def bounds(self, partitions: Sequence[int]) -> Mapping[int, Bounds]:
        """Start and end of each partition now; see `Log.bounds`. There are no open transactions here."""
        with self._lock, self._use_control() as server:
            rows = server.execute(statement("select_bounds"), {"partitions": list(partitions)}, binary=True)
            return {partition: Bounds(start, end, end) for partition, start, end in rows}

    def reader(self) -> PostgresLogReader:
        """A new reader with nothing assigned and a connection of its own."""
        return PostgresLogReader(self._conninfo, self._watchdog)

    def open_transactions(self, partitions: Sequence[int]) -> list[tuple[int, int, int]]:
        """Always empty: nobody can leave a transaction open in this log."""
        return []

    def close(self) -> None:
        """Sends what is queued (for at most 5 seconds), then closes. Readers that exist go on, unguarded."""
        self._appender.close()
        with self._lock:
            self._closed = True
            self._control.close()
        self._watchdog.close()

    def _use_control(self) -> Any:
        if self._closed:
            raise LogUnavailableError("the log is closed")
        return self._control.use(timeout_s=ANSWER_TIMEOUT_S)


def _create(server: Connection[Any], partition_count: int) -> None:
    """Makes what is missing. The lock is taken only then: a start does not wait for another process's start."""
    row = server.execute(statement("schema_exists")).fetchone()
    if row is not None and row[0]:
        return
    with server.transaction():
        server.execute(statement("lock_schema"))
        server.execute(statement("create_schema"))
        server.execute(statement("create_log"))
        server.execute(statement("create_log_partition"))
        server.execute(statement("create_log_record"))
        server.execute(statement("alter_log_record_value"))
        server.execute(statement("insert_log"), {"name": LOG_NAME, "partition_count": partition_count})
        server.execute(statement("insert_log_partitions"))


def _select_log(server: Connection[Any]) -> LogDescription:
    row = server.execute(statement("select_log")).fetchone()
    if row is None:
        raise LogMisconfiguredError(
            "the embedded log's tables are there and name no log: restore schema kvfold_log"
        )
    log_id, name, partition_count = row
    return LogDescription("postgres", name, log_id, partition_count)


def _check_partition_count(stored: int, configured: int) -> None:
    if stored != configured:
        raise LogMisconfiguredError(
            f"the embedded log was made with {stored} partitions and {configured} are configured: the count is fixed "
            f"at first use; set KVFOLD_PARTITIONS={stored}"
        )
