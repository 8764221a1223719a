"""One connection that listens and asks, without ever blocking its thread: the conversation with libpq as a generator.

The generator yields the poll events that it waits for and is sent whether they came (False: the thread woke up for
another reason). So one thread serves a connection, its waiters' time limits and new waiters alike, and a server that
does not answer delays none of them. Only looking up a host name blocks, as libpq has it.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import Final

import psycopg
from psycopg import pq

from kvfold.schemas.errors import StoreUnavailableError
from kvfold.schemas.projection import NOTIFY_CHANNEL

__all__ = ["ListenConnection", "QueryFailedError", "Waits"]

"""Where projectors notify; the payload is `generation:partition:offset`."""

_CONNECT_TIMEOUT_S: Final = 3.0
_ANSWER_TIMEOUT_S: Final = 2.0
_SETTINGS: Final = (
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET application_name = 'kvfold-waiting'"
)

Waits = Generator[int, bool]
"""Yields poll events, is sent whether they came."""


class QueryFailedError(Exception):
    """The server answered a statement with an error; the connection is as good as before."""

    def __init__(self, message: str, *, sqlstate: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class ListenConnection:
    """A connection to one database. Methods that give `Waits` are run by `yield from`.

    Raises:
        StoreUnavailableError: from each of them, when the connection is lost or the server does not answer in time.
    """

    def __init__(self, conninfo: str, noted: Callable[[bytes], None]) -> None:
        """`noted` is called with the payload of every notification, in order."""
        self._conninfo = conninfo
        self._noted = noted
        self._pgconn: pq.abc.PGconn | None = None
        self._prepared: dict[bytes, bytes] = {}

    @property
    def socket(self) -> int:
        """The file descriptor to poll; it may change while connecting. -1 where there is none."""
        return -1 if self._pgconn is None else self._pgconn.socket

    def close(self) -> None:
        """Ends the connection; `connect` makes a new one."""
        if self._pgconn is not None:
            self._pgconn.finish()
            self._pgconn = None
        self._prepared.clear()

    def connect(self) -> Generator[int, bool, None]:
        """Connects and listens."""
        deadline = monotonic() + _CONNECT_TIMEOUT_S
        pgconn = self._pgconn = pq.PGconn.connect_start(self._conninfo.encode())
        if pgconn.status == pq.ConnStatus.BAD:
            raise self._lost()
        waiting_for = select.POLLOUT
        while True:
            if not (yield waiting_for):
                if monotonic() > deadline:
                    raise StoreUnavailableError("Postgres does not answer a new connection")
                continue
            match pgconn.connect_poll():
                case pq.PollingStatus.OK:
                    break
                case pq.PollingStatus.READING:
                    waiting_for = select.POLLIN
                case pq.PollingStatus.WRITING:
                    waiting_for = select.POLLOUT
                case _:
                    raise self._lost()
        pgconn.nonblocking = 1
        pgconn.send_query(f"LISTEN {NOTIFY_CHANNEL}; {_SETTINGS}".encode())
        yield from self._results()

    def idle(self) -> Generator[int, bool, None]:
        """Waits for the server to say something, or for the thread to wake up for another reason."""
        yield select.POLLIN
        self.take_notifications()

    def take_notifications(self) -> None:
        """Takes in what the server sent."""
        pgconn = self._connected()
        try:
            pgconn.consume_input()
        except psycopg.Error as error:
            raise self._lost() from error
        while (notification := pgconn.notifies()) is not None:
            self._noted(notification.extra)

    def ask(
        self, statement: bytes, parameters: Sequence[bytes | None]
    ) -> Generator[int, bool, list[tuple[bytes | None, ...]]]:
        """Runs a statement, prepared at its first use; values in and out are text.

        Raises:
            QueryFailedError: the server answers with an error.
        """
        pgconn = self._connected()
        name = self._prepared.get(statement)
        if name is None:
            name = b"kvfold_%d" % len(self._prepared)
            pgconn.send_prepare(name, statement)
            yield from self._results()
            self._prepared[statement] = name
        pgconn.send_query_prepared(name, parameters)
        result = (yield from self._results())[-1]
        columns = range(result.nfields)
        return [tuple(result.get_value(row, column) for column in columns) for row in range(result.ntuples)]

    def _results(self) -> Generator[int, bool, list[pq.abc.PGresult]]:
        """Sends what is queued, and waits for all results of what was sent."""
        pgconn = self._connected()
        deadline = monotonic() + _ANSWER_TIMEOUT_S
        results: list[pq.abc.PGresult] = []
        while True:
            try:
                unsent = pgconn.flush()
                while not unsent and not pgconn.is_busy():
                    result = pgconn.get_result()
                    if result is None:
                        return _checked(results)
                    results.append(result)
            except psycopg.Error as error:
                raise self._lost() from error
            if pgconn.status == pq.ConnStatus.BAD:
                raise self._lost()
            if monotonic() > deadline:
                raise StoreUnavailableError("Postgres does not answer")
            yield select.POLLIN | select.POLLOUT if unsent else select.POLLIN
            self.take_notifications()

    def _connected(self) -> pq.abc.PGconn:
        if self._pgconn is None or self._pgconn.status != pq.ConnStatus.OK:
            raise self._lost()
        return self._pgconn

    def _lost(self) -> StoreUnavailableError:
        said = b"" if self._pgconn is None else self._pgconn.error_message
        reason = (said.decode("utf-8", "replace").splitlines() or ["the connection is closed"])[0]
        return StoreUnavailableError(f"the connection to Postgres is lost: {reason}")


def _checked(results: list[pq.abc.PGresult]) -> list[pq.abc.PGresult]:
    for result in results:
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
            message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
            raise QueryFailedError(message.decode("utf-8", "replace"), sqlstate=sqlstate.decode())
    return results
