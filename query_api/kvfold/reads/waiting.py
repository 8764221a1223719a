"""Waiting for the projection: until positions are reached, or until a record is decided.

One thread and one connection serve every waiter of a process. The connection listens; projectors notify after each
commit. A notification of something that nobody waits for costs an entry in a dict; any other one is followed by one query
that serves all waiters. Results come from that query alone, never from the notification: only the query tells which
generation serves.

A notification is a hint, and losing one costs 100 ms: while anybody waits, the query is asked that often in any case.
A notification that came before its waiter is not lost either: the highest offset seen is kept by generation and
partition, and a waiter that comes later is compared with it. A lost connection is made again; waiters go on until their
own time is over.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import Any, Final

import structlog

from kvfold.reads.decisions import DecisionView
from kvfold.reads.listening import ListenConnection, QueryFailedError
from kvfold.reads.statements import statement
from kvfold.reads.waiters import Look, Waiters, Waiting
from kvfold.schemas.errors import StoreUnavailableError
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.position import Position
from kvfold.schemas.projection import schema_name

__all__ = ["WAITING_CONNECTION_LOST", "WAITING_CONNECTION_MADE", "Noted", "Waiter"]

Noted = Callable[[int, int], None]
"""Told of a commit: partition, and the offset last covered, of whatever generation. Called in the waiter's thread."""

WAITING_CONNECTION_LOST: Final = "waiting_connection_lost"
WAITING_CONNECTION_MADE: Final = "waiting_connection_made"

WAITERS_MAX: Final = 20_000
_NET_S: Final = 0.1
_RETRY_S: Final = 0.1
_RETRY_S_MAX: Final = 1.0
_SEEN_MAX: Final = 4_096
_GENERATION_GONE: Final = frozenset({"3F000", "42P01", "0A000"})

_logger = structlog.get_logger(__name__)


class Waiter:
    """Everything that a process waits for. Safe to use from any thread; the thread starts with `start` or a waiter."""

    def __init__(self, dsn: str) -> None:
        self._connection = ListenConnection(dsn, self._noted)
        self._lock = threading.Lock()
        self._arrived: deque[Waiting] = deque()
        self._count = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        # From here on the thread's own; `_seen` and `_generation` are read by others, which is harmless when outdated.
        self._waiters = Waiters()
        self._told: tuple[Noted, ...] = ()
        self._seen: dict[tuple[int, int], int] = {}
        self._generation: int | None = None
        self._is_idle = False
        self._hinted = False
        self._asked_at = float("-inf")
        self._expired_at = monotonic()

    @property
    def waiting_count(self) -> int:
        """How many wait now."""
        return self._count

    def start(self) -> None:
        """Begins to listen; without it the first waiter pays for the connection."""
        with self._lock:
            self._start()

    def tell(self, noted: Noted) -> Callable[[], None]:
        """Calls `noted` for every notification from now on; gives what ends that. Lost notifications are not made up for."""
        with self._lock:
            self._start()
            self._told = (*self._told, noted)

        def end() -> None:
            with self._lock:
                self._told = tuple(each for each in self._told if each is not noted)

        return end

    def close(self) -> None:
        """Ends the thread; whoever still waits gets StoreUnavailableError."""
        with self._lock:
            self._closed = True
            self._wake()
        if self._thread is not None:
            self._thread.join()
        self._admit()
        self._waiters.fail_all(StoreUnavailableError("the process is shutting down"))
        with self._lock:
            if self._wake_read >= 0:
                os.close(self._wake_read)
                os.close(self._wake_write)
                self._wake_read = self._wake_write = -1

    def position_reached(self, positions: Mapping[int, int], timeout_s: float) -> Future[None]:
        """Done when the serving generation covers each offset (by partition).

        The future fails with NotUpToPositionError after `timeout_s`, and with PartitionPausedError at once when one of
        the partitions is not up to its offset and paused.
        """
        demand = {partition: offset for partition, offset in positions.items() if offset >= 0}
        waiting = Waiting(demand, monotonic() + timeout_s, decides=False)
        if not demand:
            waiting.succeed(None)
            return waiting.future
        return self._wait(waiting)

    def decision(self, position: Position, timeout_s: float) -> Future[DecisionView]:
        """The decision on the record at `position`; for a repeat the first decision, with the first position.

        The future fails with NotUpToPositionError after `timeout_s`, with PartitionPausedError at once when the
        partition is paused and not up to the record, and with GoneError where the partition is past the position and
        no decision is kept.
        """
        demand = {position.partition: position.offset}
        return self._wait(Waiting(demand, monotonic() + timeout_s, decides=True))

    def _wait(self, waiting: Waiting) -> Future[Any]:
        with self._lock:
            if self._closed or self._count >= WAITERS_MAX:
                why = "the process is shutting down" if self._closed else "too many requests wait already"
                waiting.fail(StoreUnavailableError(why))
                return waiting.future
            self._start()
            is_first = self._count == 0
            self._count += 1
            self._arrived.append(waiting)
            # Others wait already: the thread looks up soon enough by itself, unless this one can be served right now.
            if is_first or self._is_covered(waiting):
                self._wake()
        waiting.future.add_done_callback(self._left)
        return waiting.future

    def _left(self, _: Future[Any]) -> None:
        with self._lock:
            self._count -= 1

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="kvfold-waiting", daemon=True)
            self._thread.start()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # full of wake-ups: it will wake up
            os.write(self._wake_write, b"\x00")

    # --- the thread ---

    def _run(self) -> None:
        retry_s = _RETRY_S
        while not self._closed:
            try:
                talk = self._talk()
                events = next(talk)
                while not self._closed:
                    retry_s = _RETRY_S if self._is_idle else retry_s
                    events = talk.send(self._sleep(events, None if self._is_idle else _NET_S))
            except StoreUnavailableError as error:
                _logger.warning(WAITING_CONNECTION_LOST, reason=str(error), retry_s=retry_s)
            finally:
                self._connection.close()
            self._forget()
            self._pause(retry_s)
            retry_s = min(retry_s * 2, _RETRY_S_MAX)

    def _talk(self) -> Generator[int, bool, None]:
        """The conversation with Postgres, for ever; yields the poll events that it waits for."""
        yield from self._connection.connect()
        _logger.info(WAITING_CONNECTION_MADE)
        while True:
            self._admit()
            if self._waiters and (self._hinted or monotonic() >= self._asked_at + _NET_S):
                yield from self._ask()
            else:
                self._is_idle = True
                yield from self._connection.idle()
                self._is_idle = False

    def _sleep(self, events: int, seconds: float | None) -> bool:
        """Waits for the connection, for a wake-up, or for time to pass; True if for the connection."""
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        if self._connection.socket >= 0:
            poller.register(self._connection.socket, events)
        if seconds is None and (self._waiters or self._arrived):
            seconds = _NET_S
        ready = [fd for fd, _ in poller.poll(None if seconds is None else seconds * 1_000)]
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 65_536)
        now = monotonic()
        if now >= self._expired_at + _NET_S / 2:
            self._expired_at = now
            self._admit()
            self._waiters.expire(now)
        return self._connection.socket in ready

    def _pause(self, seconds: float) -> None:
        """Time before the next connection; waiters expire meanwhile."""
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0 and not self._closed:
            self._sleep(0, min(left, _NET_S))

    def _admit(self) -> None:
        """Takes in the waiters that arrived."""
        while self._arrived:
            waiting = self._arrived.popleft()
            self._waiters.add(waiting)
            self._hinted = self._hinted or self._is_covered(waiting)

    def _is_covered(self, waiting: Waiting) -> bool:
        """Whether what was seen makes it worth asking for this waiter."""
        generation = self._generation
        if generation is None:
            return False
        seen = self._seen
        return all(seen.get((generation, p), -1) >= offset for p, offset in waiting.demand.items())

    def _noted(self, payload: bytes) -> None:
        """A projector committed: `generation:partition:offset`, the offset the last one covered."""
        try:
            generation, partition, offset = map(int, payload.split(b":"))
        except ValueError:
            return  # anybody may notify on a channel
        self._saw(generation, partition, offset)
        for noted in self._told:
            noted(partition, offset)
        if not self._hinted and generation == self._generation:
            self._admit()
            self._hinted = self._waiters.wants(partition, offset)

    def _saw(self, generation: int, partition: int, offset: int) -> None:
        if len(self._seen) > _SEEN_MAX:
            self._seen.clear()
        place = (generation, partition)
        if offset > self._seen.get(place, -1):
            self._seen[place] = offset

    def _forget(self) -> None:
        """After a lost connection nothing that was seen counts: Postgres may come back with less than it had."""
        self._seen.clear()
        self._generation = None
        self._is_idle = self._hinted = False
        self._asked_at = float("-inf")

    def _ask(self) -> Generator[int, bool, None]:
        """One query for all waiters, of the generation that served last time."""
        is_net = not self._hinted
        self._hinted = False
        generation = self._generation
        try:
            if generation is None:
                rows = yield from self._connection.ask(statement("serving").encode(), ())
                self._asked_at = monotonic() if not rows else float("-inf")
                self._generation = int(rows[0][0] or 0) if rows else None
                return
            yield from self._look(generation, is_net=is_net)
        except QueryFailedError as error:
            if error.sqlstate not in _GENERATION_GONE:
                raise StoreUnavailableError(f"Postgres fails: {error}") from error
            # The pointer is asked again: at once after a generation went, else with the next beat.
            self._generation = None
            self._asked_at = monotonic() if generation is None else float("-inf")

    def _look(self, generation: int, *, is_net: bool) -> Generator[int, bool, None]:
        seen = {p: offset for (g, p), offset in self._seen.items() if g == generation}
        asked = self._waiters.asked(None if is_net else seen)
        text = statement("waiting").replace("{g}", schema_name(generation)).encode()
        arrays = (_array(p for p, _ in asked), _array(offset for _, offset in asked))
        rows = yield from self._connection.ask(text, arrays)
        self._asked_at = monotonic()
        if not rows or int(rows[0][0] or 0) != generation:
            self._generation = None
            self._asked_at = float("-inf") if rows else self._asked_at
            return
        look = _look_of(rows)
        self._waiters.settle(look, asked)
        for partition, offset_next in look.offsets_next.items():
            # A notification that is ahead of what can be read afterwards was none of ours.
            if offset_next <= seen.get(partition, -1) == self._seen.get((generation, partition)):
                del self._seen[generation, partition]
            self._saw(generation, partition, offset_next - 1)
        self._hinted = any(
            self._waiters.wants(p, offset) for (g, p), offset in self._seen.items() if g == generation
        )


def _array(numbers: Iterable[int]) -> bytes:
    return b"{" + b",".join(b"%d" % number for number in numbers) + b"}"


def _look_of(rows: list[tuple[bytes | None, ...]]) -> Look:
    offsets_next: dict[int, int] = {}
    pauses: dict[int, str] = {}
    decisions: dict[tuple[int, int], DecisionView] = {}
    for _, partition_, offset_next, reason, detail, asked, *decision in rows:
        partition = int(partition_ or 0)
        offsets_next[partition] = int(offset_next or 0)
        if reason is not None:
            pauses[partition] = f"{reason.decode()}: {(detail or b'').decode()}"
        if asked is not None:
            decisions[partition, int(asked)] = _view(partition, decision)
    return Look(offsets_next, pauses, decisions)


def _view(partition: int, columns: list[bytes | None]) -> DecisionView:
    texts = [None if column is None else column.decode() for column in columns]
    offset, scope, mutation_id, kind, status, code, version, removed, detail, time_ms = texts
    assert offset is not None and time_ms is not None
    decision = Decision(
        DecisionStatus(status or ""),
        code,
        None if version is None else int(version),
        None if removed is None else int(removed),
        detail,
    )
    return DecisionView(Position(partition, int(offset)), scope, mutation_id, kind, decision, int(time_ms))
