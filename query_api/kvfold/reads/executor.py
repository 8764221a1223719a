"""Runs reads against Postgres: `Reader` for threads, `AsyncReader` for an event loop.

What a read is made of is said once, as a generator that yields what to ask Postgres and is sent the rows or thrown the
driver's error; each reader only adds how it asks. So both refresh the serving generation alike: when the pointer in the
answer is another one, or the schema is gone, the read is repeated once against the generation that serves now.

A connection that Postgres closed while it waited in the pool is found out by the read that gets it; that read asks again on
another one, until a time limit. Answers are bounded: `READ_TIMEOUT_S` after which a connection is cut.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Generator
from contextlib import suppress
from functools import lru_cache
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout, TooManyRequests

from kvfold.log.postgres_connection import Watchdog
from kvfold.reads.query import Query, Read, Rows
from kvfold.reads.statements import in_generation, statement
from kvfold.schemas.errors import StoreUnavailableError
from kvfold.schemas.partitioning import partition_of

__all__ = ["PLAN_SETTINGS", "READ_TIMEOUT_S", "AsyncReader", "Reader", "async_read_pool", "read_pool"]

T = TypeVar("T")

READ_TIMEOUT_S: Final = 5.0
"""How long one statement may take before its connection is cut."""

_RECONNECT_S: Final = 3.0  # how long a read goes on asking for a connection that works
_POOL_TIMEOUT_S: Final = 3.0
# A pool that gave up tries anew with the next read. Its own retries back off to minutes, so they are kept short.
_POOL_RECONNECT_S: Final = 1.0
PLAN_SETTINGS: Final = (
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; "
    "SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off"
)
"""How a connection of reads plans: once a statement, by index. Every read is look-ups and index ranges, and a plan that
was made while a table was small must stay right when it has grown."""

_POOL_WAITING_MAX: Final = 4_096
_CONNECT_TIMEOUT_S: Final = 3
_STATEMENTS_MAX: Final = 512

# invalid_schema_name, undefined_table, feature_not_supported ("cached plan must not change result type")
_GENERATION_GONE: Final = frozenset({"3F000", "42P01", "0A000"})
_PLAN_OUTDATED: Final = "0A000"

# Once known, then once more after a swap; the third is for a swap right between pointer and read.
_GENERATIONS_TRIED_MAX: Final = 3
_CONNECTIONS_TRIED_MAX: Final = 256

_Ask = tuple[bytes, tuple[Any, ...]]
_Steps = Generator[_Ask, Rows, T]


class _Catalogue:
    """What a reader knows of the database, and the steps of everything that it is asked. Does no I/O."""

    def __init__(self) -> None:
        self._generation: int | None = None
        self._schema_version = 1
        self._partition_count: int | None = None
        self._statements: dict[tuple[str, int], bytes] = {}
        self.partition_of_scope = lru_cache(maxsize=8_192)(self._partition_of_scope)

    @property
    def partition_count(self) -> int | None:
        return self._partition_count

    def _partition_of_scope(self, scope: str) -> int:
        assert self._partition_count is not None
        return partition_of(scope.encode(), self._partition_count)

    def read(self, query: Query[T]) -> _Steps[Read[T]]:
        """Yields what to ask; gives the read."""
        for _ in range(_GENERATIONS_TRIED_MAX):
            generation = self._generation
            if generation is None:
                generation = yield from self._refresh()
            try:
                rows = yield self._statement(query.statement, generation), query.parameters
            except psycopg.Error as error:
                if error.sqlstate not in _GENERATION_GONE:
                    raise
                rows = ()
            if rows and rows[0][0] == generation:
                return _interpreted(query, rows, generation)
            self._generation = None
        raise StoreUnavailableError("the serving generation is being switched, or its tables are gone")

    def count(self) -> _Steps[int]:
        """Yields what to ask; gives the partition count of the log that this database is folded from."""
        try:
            rows = yield statement("partition_count").encode(), ()
        except psycopg.errors.UndefinedTable:
            rows = ()
        if not rows:
            raise StoreUnavailableError("no log is bound to this database yet: has a projector been started?")
        self._partition_count = int(rows[0][0])
        return self._partition_count

    def _refresh(self) -> _Steps[int]:
        try:
            rows = yield statement("serving").encode(), ()
        except psycopg.errors.UndefinedTable:
            rows = ()
        if not rows:
            raise StoreUnavailableError("no generation serves yet: has a projector been started?")
        self._generation, self._schema_version = int(rows[0][0]), int(rows[0][1])
        return self._generation

    def _statement(self, text: str, generation: int) -> bytes:
        key = (text, generation)
        built = self._statements.get(key)
        if built is None:
            if len(self._statements) >= _STATEMENTS_MAX:  # generations come and go
                self._statements.clear()
            statement_ = in_generation(text, generation, self._schema_version)
            built = self._statements[key] = statement_.encode()
        return built


def _interpreted(query: Query[T], rows: Rows, generation: int) -> Read[T]:
    progress = rows[0][1]
    if query.partition is not None:
        positions = {query.partition: -1 if progress is None else progress - 1}
    else:
        positions = {int(partition): offset - 1 for partition, offset in (progress or {}).items()}
    return Read(query.shape(rows), positions, generation)


class _Attempts:
    """Whether a statement is asked again after the driver's error, and what the error is called otherwise."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self._tried = 0

    def failed(self, error: psycopg.Error, connection: Connection[Any] | AsyncConnection[Any] | None) -> None:
        """Returns where the statement is worth another connection.

        Raises:
            StoreUnavailableError: Postgres is away, or shutting down, or out of memory or disk.
            psycopg.Error: any other error is the statement's own.
        """
        if connection is not None and error.sqlstate == _PLAN_OUTDATED:
            # The connection would answer so for ever: the plan is prepared there.
            connection.pgconn.finish()
        self._tried += 1
        self._deadline = self._deadline or monotonic() + _RECONNECT_S
        broken = connection is not None and connection.closed
        if broken and self._tried < _CONNECTIONS_TRIED_MAX and monotonic() < self._deadline:
            return
        away = broken or connection is None or (error.sqlstate or "")[:2] in ("08", "53", "57", "58")
        if not away:
            raise error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StoreUnavailableError(f"Postgres does not answer: {reason}") from error


class AsyncReader:
    """Reads for an event loop; safe for any number of tasks. The pool is the caller's, to open and to close."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool
        self._catalogue = _Catalogue()

    @property
    def pool(self) -> AsyncConnectionPool[Any]:
        """The pool that was given."""
        return self._pool

    async def read(self, query: Query[T]) -> Read[T]:
        """Runs a read in one round trip (two or three after a swap).

        Raises:
            StoreUnavailableError: Postgres is away, or no generation serves yet.
        """
        return await self._drive(self._catalogue.read(query))

    async def partition_count(self) -> int:
        """The log's partition count; asked once.

        Raises:
            StoreUnavailableError: Postgres is away, or the database is not bound to a log yet.
        """
        known = self._catalogue.partition_count
        return known if known is not None else await self._drive(self._catalogue.count())

    async def partition(self, scope: str) -> int:
        """The partition that a scope lives in. Raises as `partition_count`."""
        if self._catalogue.partition_count is None:
            await self.partition_count()
        return self._catalogue.partition_of_scope(scope)

    async def _drive(self, steps: _Steps[T]) -> T:
        try:
            ask = next(steps)
            while True:
                try:
                    rows = await self._fetch(ask)
                except psycopg.Error as error:
                    ask = steps.throw(error)
                else:
                    ask = steps.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _fetch(self, ask: _Ask) -> Rows:
        attempts = _Attempts()
        while True:
            connection: AsyncConnection[Any] | None = None
            try:
                connection = await self._pool.getconn()
                limit = asyncio.get_running_loop().call_later(READ_TIMEOUT_S, _cut, connection)
                try:
                    cursor = AsyncRawCursor(connection)
                    await cursor.execute(ask[0], ask[1], binary=True)
                    return await cursor.fetchall()
                finally:
                    limit.cancel()
            except (psycopg.Error, PoolTimeout, TooManyRequests) as error:
                attempts.failed(error, connection)
            finally:
                if connection is not None:
                    await self._pool.putconn(connection)


class Reader:
    """Reads for threads; safe for any number of them. The pool is the caller's, to open and to close."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool
        self._catalogue = _Catalogue()
        self._watchdog = Watchdog()

    def read(self, query: Query[T]) -> Read[T]:
        """As `AsyncReader.read`."""
        return self._drive(self._catalogue.read(query))

    def partition_count(self) -> int:
        """As `AsyncReader.partition_count`."""
        known = self._catalogue.partition_count
        return known if known is not None else self._drive(self._catalogue.count())

    def partition(self, scope: str) -> int:
        """As `AsyncReader.partition`."""
        self.partition_count()
        return self._catalogue.partition_of_scope(scope)

    def close(self) -> None:
        """Stops watching over reads; the pool stays as it is."""
        self._watchdog.close()

    def _drive(self, steps: _Steps[T]) -> T:
        try:
            ask = next(steps)
            while True:
                try:
                    rows = self._fetch(ask)
                except psycopg.Error as error:
                    ask = steps.throw(error)
                else:
                    ask = steps.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result

    def _fetch(self, ask: _Ask) -> Rows:
        attempts = _Attempts()
        while True:
            connection: Connection[Any] | None = None
            try:
                connection = self._pool.getconn()
                with self._watchdog.limit(connection, READ_TIMEOUT_S):
                    cursor = RawCursor(connection)
                    cursor.execute(ask[0], ask[1], binary=True)
                    return cursor.fetchall()
            except (psycopg.Error, PoolTimeout, TooManyRequests) as error:
                attempts.failed(error, connection)
            finally:
                if connection is not None:
                    self._pool.putconn(connection)


def async_read_pool(dsn: str, *, size_max: int, size_min: int = 1) -> AsyncConnectionPool[Any]:
    """A pool as reads want it, not opened yet: autocommit, and quick to give up and to come back.

    The caller opens it within the event loop (`await pool.open()`), which does not wait for Postgres.
    """

    async def configure(connection: AsyncConnection[Any]) -> None:
        await connection.execute(PLAN_SETTINGS)

    return AsyncConnectionPool(dsn, configure=configure, **_pool_settings(size_min, size_max))


def read_pool(dsn: str, *, size_max: int, size_min: int = 1) -> ConnectionPool[Any]:
    """As `async_read_pool`, for threads."""

    def configure(connection: Connection[Any]) -> None:
        connection.execute(PLAN_SETTINGS)

    return ConnectionPool(dsn, configure=configure, **_pool_settings(size_min, size_max))


def _pool_settings(size_min: int, size_max: int) -> dict[str, Any]:
    return {
        "kwargs": {
            "autocommit": True,
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "application_name": "kvfold-reads",
            "prepare_threshold": 1,
        },
        "min_size": size_min,
        "max_size": size_max,
        "timeout": _POOL_TIMEOUT_S,
        "max_waiting": _POOL_WAITING_MAX,
        "reconnect_timeout": _POOL_RECONNECT_S,
        "open": False,
        "name": "kvfold-reads",
    }


def _cut(connection: AsyncConnection[Any]) -> None:
    """Shuts the socket down under a read that waits on it: the read fails at once, whatever the server does."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
