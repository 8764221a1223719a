"""Connections to the embedded log's server that answer in bounded time or break.

A server that was stopped, or a network that swallows packets, keeps a blocking client waiting for ever. So every use of
a connection has a limit; past it the socket is shut down, the blocked call fails, and the next use connects anew.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from time import monotonic
from typing import Any, Final

import psycopg
import structlog
from psycopg import Connection

from kvfold.schemas.errors import LogMisconfiguredError, LogUnavailableError

__all__ = ["LOG_CONNECTION_LOST", "GuardedConnection", "Watchdog"]

LOG_CONNECTION_LOST: Final = "log_connection_lost"
CONNECT_TIMEOUT_S: Final = 3
_TICK_S: Final = 0.1

_logger = structlog.get_logger(__name__)


class Watchdog:
    """Shuts the sockets of connections that are used past their limit (late by up to 0.1 s)."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._limits: dict[int, tuple[float, Connection[Any]]] = {}
        self._tokens = count()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def limit(self, connection: Connection[Any], seconds: float) -> Iterator[None]:
        """Bounds the calls made on `connection` in the block together."""
        token = next(self._tokens)
        with self._changed:
            self._limits[token] = (monotonic() + seconds, connection)
            self._start()
            if len(self._limits) == 1:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                del self._limits[token]

    def close(self) -> None:
        """Stops the thread; limits are no longer watched."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="kvfold-log-watchdog", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                # A tick and not the earliest limit: setting a limit is then only an entry in a dict.
                self._changed.wait(_TICK_S if self._limits else None)
                now = monotonic()
                for deadline, connection in self._limits.values():
                    if deadline < now:
                        _cut(connection)


def _cut(connection: Connection[Any]) -> None:
    """Shuts the socket down under a call that is blocked on it in another thread."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


class GuardedConnection:
    """One connection that is made when it is needed, and made anew after it broke. Belongs to one thread at a time."""

    def __init__(
        self, conninfo: str, watchdog: Watchdog, *, statement_timeout_ms: int, listen: bool = False
    ) -> None:
        self._conninfo = conninfo
        # On the server's side, too: a statement whose client is gone would wait for its lock all the same, and one more
        # with each try.
        self._setup = f"SET synchronous_commit = on; SET statement_timeout = {int(statement_timeout_ms)}"
        self._watchdog = watchdog
        self._listen = listen
        self._connection: Connection[Any] | None = None

    @contextmanager
    def use(self, *, timeout_s: float) -> Iterator[Connection[Any]]:
        """The connection, in autocommit mode, for calls that take up to `timeout_s` together.

        Raises:
            LogUnavailableError: it cannot be made, or broke, or took too long.
            LogMisconfiguredError: the log's tables are not there, or not accessible.
        """
        try:
            connection = self._open(timeout_s)
            with self._watchdog.limit(connection, timeout_s):
                yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise LogMisconfiguredError(
                "the tables of the embedded log are gone: start kvfold again to make a new log, or restore them"
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise LogMisconfiguredError(
                f"the embedded log is not accessible: {_first_line(error)}; "
                "grant the role USAGE on schema kvfold_log and SELECT, INSERT, UPDATE on its tables"
            ) from error
        except psycopg.Error as error:
            self._drop(error)
            raise LogUnavailableError(f"the embedded log's server failed: {_first_line(error)}") from error

    def connect(self, *, timeout_s: float) -> None:
        """Makes the connection if it is not there or was closed by the server meanwhile.

        Raises:
            LogUnavailableError: it cannot be made.
        """
        with self.use(timeout_s=timeout_s):
            pass

    @property
    def connected(self) -> Connection[Any] | None:
        """The connection as it is, perhaps broken; None before the first use and after a loss."""
        return self._connection

    def close(self) -> None:
        """Closes the connection; a later use makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, timeout_s: float) -> Connection[Any]:
        # A connection that the server closed while it was idle is found out here and not by the next record.
        if self._connection is not None and (self._connection.closed or _hung_up(self._connection)):
            self.close()
        if self._connection is None:
            connection = psycopg.connect(self._conninfo, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)
            self._connection = connection
            with self._watchdog.limit(connection, timeout_s):
                # Whatever the role's defaults are: an acknowledged record is on disk.
                connection.execute(self._setup.encode())
                if self._listen:
                    connection.execute("LISTEN kvfold_log")
        return self._connection

    def _drop(self, error: psycopg.Error) -> None:
        if self._connection is not None:
            _logger.warning(LOG_CONNECTION_LOST, reason=_first_line(error), sqlstate=error.sqlstate)
        self.close()


def _hung_up(connection: Connection[Any]) -> bool:
    """Whether the server has closed an idle connection; takes in what it may have sent besides."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if not poll.poll(0):
        return False
    try:
        connection.pgconn.consume_input()
    except psycopg.Error:
        return True
    return bool(poll.poll(0))


def _first_line(error: psycopg.Error) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
