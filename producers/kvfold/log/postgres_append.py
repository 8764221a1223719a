"""The append side of the embedded log: group commit, a queue for each partition.

A few threads, each with a connection, serve all partitions. A thread takes a partition that nobody serves and everything
that is queued for it, and appends that as one transaction; meanwhile the next group gathers. One thread would make each
partition wait for the disk of all the others; a thread for each partition would hold a connection for each in every
process. A partition that is locked by a slow process holds up one thread for at most the append's timeout.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from psycopg.types.numeric import Int8

from kvfold.log.framing import check_record, encode_headers
from kvfold.log.port import Appended
from kvfold.log.postgres_connection import GuardedConnection, Watchdog
from kvfold.log.statements import statement
from kvfold.schemas.errors import InvalidError, KvfoldError, LogUnavailableError
from kvfold.schemas.record import NewRecord

__all__ = ["PostgresAppender"]

THREADS_MAX: Final = 4
GROUP_RECORDS_MAX: Final = 1_000
GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
_RECONNECT_PAUSE_S: Final = 0.1
_SEND_TIMEOUT_MIN_S: Final = 1.0  # a shorter one would break connections under load
_CLOSE_TIMEOUT_S: Final = 5.0


@dataclass(slots=True)
class _Queued:
    record: NewRecord
    future: Future[Appended]
    deadline: float


class PostgresAppender:
    """Appends records to the embedded log. Safe to use from several threads; its threads start when first needed."""

    def __init__(self, conninfo: str, watchdog: Watchdog, *, partition_count: int, timeout_ms: int) -> None:
        self._conninfo = conninfo
        self._watchdog = watchdog
        self._timeout_s = timeout_ms / 1000
        self._changed = threading.Condition()
        self._queues: list[deque[_Queued]] = [deque() for _ in range(partition_count)]
        self._ready: deque[int] = (
            deque()
        )  # partitions with records that no thread serves, longest waiting first
        self._served: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def append(self, partition: int, record: NewRecord) -> Future[Appended]:
        """Queues a record; see `Log.append`. A record whose future failed while it was queued is never sent."""
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()
        try:
            if not 0 <= partition < len(self._queues):
                raise InvalidError(f"the log has no partition {partition}", code="unknown-partition")
            check_record(record)
            with self._changed:
                if self._closed:
                    raise LogUnavailableError("the log is closed")
                self._queues[partition].append(_Queued(record, future, monotonic() + self._timeout_s))
                self._offer(partition)
        except KvfoldError as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Sends what is queued, for at most 5 seconds; what is left fails."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = monotonic() + _CLOSE_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        with self._changed:
            left = [queued for queue in self._queues for queued in queue]
            for queue in self._queues:
                queue.clear()
        _fail(left, LogUnavailableError("the log was closed before the record was sent"))

    # --- what follows is called with the lock held ---

    def _offer(self, partition: int) -> None:
        if partition in self._served or partition in self._ready:
            return
        self._ready.append(partition)
        # A thread that was notified counts as idle until it runs, so the partitions that wait for one are counted.
        if len(self._ready) <= self._idle:
            self._changed.notify()
        elif len(self._threads) < THREADS_MAX:
            thread = threading.Thread(target=self._run, name="kvfold-log-appender", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _take(self, partition: int) -> tuple[list[_Queued], list[_Queued]]:
        """What to send now, and what waited too long."""
        queue, now = self._queues[partition], monotonic()
        group: list[_Queued] = []
        late: list[_Queued] = []
        size = 0
        while queue and len(group) < GROUP_RECORDS_MAX and (not group or size < GROUP_BYTES_MAX):
            queued = queue.popleft()
            if queued.deadline <= now:
                late.append(queued)
            else:
                group.append(queued)
                size += queued.record.size()
        return group, late

    def _take_late(self) -> list[_Queued]:
        """Everything queued that waited too long, of all partitions."""
        now = monotonic()
        late: list[_Queued] = []
        for queue in self._queues:
            while queue and queue[0].deadline <= now:
                late.append(queue.popleft())
        return late

    # --- the threads ---

    def _run(self) -> None:
        connection = GuardedConnection(
            self._conninfo, self._watchdog, statement_timeout_ms=int(self._timeout_s * 1000)
        )
        try:
            while (partition := self._next()) is not None:
                try:
                    self._serve(partition, connection)
                finally:
                    with self._changed:
                        self._served.discard(partition)
                        if self._queues[partition]:
                            self._ready.append(partition)  # this thread takes the next one at once
        finally:
            connection.close()

    def _next(self) -> int | None:
        with self._changed:
            self._idle += 1
            while not self._ready and not self._closed:
                self._changed.wait()
            self._idle -= 1
            if not self._ready:
                return None
            partition = self._ready.popleft()
            self._served.add(partition)
            return partition

    def _serve(self, partition: int, connection: GuardedConnection) -> None:
        try:
            connection.connect(timeout_s=self._timeout_s)
        except KvfoldError as error:
            # Nothing was sent: what is queued waits for the server to come back, each record for its own time.
            with self._changed:
                late = self._take_late()
                if not late:
                    self._changed.wait(_RECONNECT_PAUSE_S)
            _fail(late, error)
            return
        with self._changed:
            group, late = self._take(partition)
        _fail(late, LogUnavailableError("the log did not take the record in time; it was not sent"))
        if group:
            self._send(partition, group, connection)

    def _send(self, partition: int, group: list[_Queued], connection: GuardedConnection) -> None:
        timeout_s = max(group[0].deadline - monotonic(), _SEND_TIMEOUT_MIN_S)
        records = [queued.record for queued in group]
        parameters = {
            "partition": Int8(partition),
            "count": Int8(len(group)),
            "keys": [record.key for record in records],
            "headers": [encode_headers(record.headers) for record in records],
            "values": [record.value for record in records],
        }
        try:
            with connection.use(timeout_s=timeout_s) as server:
                row = server.execute(statement("append"), parameters, prepare=True, binary=True).fetchone()
        except Exception as error:  # of any kind: a future that is never done is worse than an odd cause
            _fail(group, error)
            return
        assert row is not None, "the partition's row is missing"
        base, timestamp_ms = row
        # Acknowledged from here on, whatever becomes of the notification: readers look at the ends by themselves too.
        for place, queued in enumerate(group):
            queued.future.set_result(Appended(partition, base + place, timestamp_ms))
        with suppress(KvfoldError), connection.use(timeout_s=self._timeout_s) as server:
            server.execute(statement("notify"), {"partition": Int8(partition)}, prepare=True)


def _fail(group: list[_Queued], error: Exception) -> None:
    for queued in group:
        failure = LogUnavailableError(f"the log did not acknowledge the record: {error}")
        failure.__cause__ = error
        queued.future.set_exception(failure)
