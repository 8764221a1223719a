"""The hub of a process's watchers: one tail a partition reads each change once, for all of them.

A tail is woken by projectors' notifications and, where one was lost, by a look at every partition's progress each 200 ms.
It reads the serving generation whatever that is: positions are the log's, so after a swap it goes on where it was, and
after a crash of Postgres it waits until the projection has come up to there again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import structlog

from kvfold.query_api.watch.events import Event, WatchFilter
from kvfold.query_api.watch.subscription import Subscription, by_record
from kvfold.reads.changes import WATCHED_FAMILIES, Change, ChangePage, change_value, changes
from kvfold.reads.executor import AsyncReader
from kvfold.reads.operations import progress
from kvfold.reads.snapshot_of_changes import SnapshotPage, snapshot_page
from kvfold.reads.waiting import Waiter
from kvfold.schemas.errors import GoneError, StoreUnavailableError
from kvfold.schemas.limits import WATCH_QUEUE_BYTES_MAX, WATCHERS_MAX
from kvfold.schemas.position import Position

__all__ = ["RETRY_S", "WATCH_TAIL_FAILED", "WatchHub"]

WATCH_TAIL_FAILED: Final = "watch_tail_failed"
RETRY_S: Final = 0.2
"""How long a read that failed, or that found nothing where there is something, waits before the next one."""

_NET_S: Final = 0.2
_OWN_READS_MAX: Final = 8  # reads at once of those that are behind; the tails come on top

_logger = structlog.get_logger(__name__)


class WatchHub:
    """Watchers of one process. Belongs to the event loop that it is first used in."""

    def __init__(self, reader: AsyncReader, waiter: Waiter) -> None:
        self._reader = reader
        self._waiter = waiter
        self._subscriptions: set[Subscription] = set()
        self._tails: dict[int, _Tail] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._own_reads = asyncio.Semaphore(_OWN_READS_MAX)
        self._net: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_closed = False

    @property
    def watcher_count(self) -> int:
        """How many streams there are."""
        return len(self._subscriptions)

    @property
    def live_count(self) -> int:
        """How many of them are behind nowhere."""
        return sum(not subscription.behind for subscription in self._subscriptions)

    @property
    def tail_count(self) -> int:
        """How many partitions are followed."""
        return len(self._tails)

    def open(self, wanted: WatchFilter, positions: dict[int, int]) -> Subscription:
        """A watcher that has everything up to the positions, one of each partition that it is about.

        Raises:
            StoreUnavailableError: there are too many already, or the process is shutting down.
        """
        if self.is_closed or len(self._subscriptions) >= WATCHERS_MAX:
            raise StoreUnavailableError("too many watchers" if not self.is_closed else "shutting down")
        subscription = Subscription(wanted, positions, queue_bytes_max=WATCH_QUEUE_BYTES_MAX)
        self._subscriptions.add(subscription)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Forgets a watcher."""
        self._subscriptions.discard(subscription)
        for partition in subscription.live:
            self._tails[partition].remove(subscription)
            subscription.fall_behind(partition)

    def stop(self) -> None:
        """Ends every stream after what it is sending; no new one begins."""
        self.is_closed = True
        for subscription in self._subscriptions:
            subscription.woken.set()

    async def close(self) -> None:
        """Ends the streams, and what reads for them."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def page(self, subscription: Subscription, partition: int) -> ChangePage:
        """The next page of a watcher that is behind.

        Raises:
            GoneError, StoreUnavailableError: as the read.
        """
        wanted = subscription.wanted
        query = changes(
            partition, after=subscription.behind[partition], families=wanted.families, scope=wanted.scope
        )
        async with self._own_reads:
            return (await self._reader.read(query)).value

    def has_read(self, subscription: Subscription, partition: int, page: ChangePage) -> None:
        """Tells that a watcher has a page of its own; it goes live if that brought it to where the tail is."""
        subscription.behind[partition] = page.offset
        tail = self._tails.get(partition)
        if tail is None and page.is_last:
            tail = self._tails[partition] = _Tail(self._reader, partition, page.offset)
            self._start(tail)
        if tail is not None and page.offset >= tail.offset:
            subscription.went_live(partition, page.offset)
            tail.add(subscription)

    async def snapshot_page(
        self, subscription: Subscription, partition: int, cursor: tuple[str, str] | None
    ) -> SnapshotPage:
        """A page of the watcher's scope as it was where the watcher begins.

        Raises:
            GoneError, StoreUnavailableError: as the read.
        """
        wanted = subscription.wanted
        assert wanted.scope is not None
        at = Position(partition, subscription.behind[partition])
        query = snapshot_page(
            wanted.scope, namespace=wanted.namespace, prefix=wanted.prefix, cursor=cursor, at=at
        )
        async with self._own_reads:
            return (await self._reader.read(query)).value

    async def load(self, event: Event) -> None:
        """Fetches a value that its page left behind, once for all watchers.

        Raises:
            GoneError, StoreUnavailableError: as the read.
        """
        if event.change.is_left_behind:
            async with event.loading:
                if event.change.is_left_behind:
                    async with self._own_reads:
                        event.change = (await self._reader.read(change_value(event.change))).value

    def deliver_live(self, subscription: Subscription) -> str:
        """Everything that waited was handed over: it has come as far as the tails. Gives the id to resume from."""
        for partition in subscription.live:
            subscription.deliver(partition, self._tails[partition].offset)
        return subscription.position

    # --- tails ---

    def _start(self, tail: _Tail) -> None:
        if self._net is None or self._net.done():
            self._loop = asyncio.get_running_loop()
            self._net = self._task(self._look())
        self._task(self._run(tail))

    def _task(self, work: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, tail: _Tail) -> None:
        try:
            await tail.run()
        except GoneError:
            pass  # whoever it concerns finds out with a read of its own
        except Exception as error:
            _logger.error(WATCH_TAIL_FAILED, partition=tail.partition, error=type(error).__name__)
            await asyncio.sleep(RETRY_S)
        finally:
            del self._tails[tail.partition]
            tail.send_away()

    async def _look(self) -> None:
        """Until no partition is followed: listens, and looks now and then whether a notification was lost."""
        end = self._waiter.tell(self._noted)
        try:
            while self._tails:
                await asyncio.sleep(_NET_S)
                with suppress(StoreUnavailableError):
                    for partition, offset in (await self._reader.read(progress())).positions.items():
                        if partition in self._tails:
                            self._tails[partition].hint(offset)
        finally:
            end()

    def _noted(self, partition: int, offset: int) -> None:
        """From the waiter's thread: a projector committed."""
        tail = self._tails.get(partition)
        if tail is not None and offset > tail.offset and not tail.is_hinted and self._loop is not None:
            tail.is_hinted = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(tail.hint, offset)


class _Tail:
    """One partition's newest changes. `offset`: up to where they were read, and offered to every watcher here."""

    def __init__(self, reader: AsyncReader, partition: int, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.is_hinted = False  # written by the waiter's thread, too: at worst the loop is woken once more
        self._reader = reader
        self._woken = asyncio.Event()
        self._by_scope: dict[str, set[Subscription]] = {}
        self._of_all: set[Subscription] = set()

    def add(self, subscription: Subscription) -> None:
        """Serves a watcher from here on."""
        scope = subscription.wanted.scope
        (self._of_all if scope is None else self._by_scope.setdefault(scope, set())).add(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Serves it no more; the last one ends the tail."""
        scope = subscription.wanted.scope
        if scope is None:
            self._of_all.discard(subscription)
        else:
            self._by_scope[scope].discard(subscription)
            if not self._by_scope[scope]:
                del self._by_scope[scope]
        self._woken.set()

    def hint(self, offset: int) -> None:
        """The projection is said to be up to an offset."""
        if offset > self.offset:
            self._woken.set()

    def send_away(self) -> None:
        """Leaves every watcher to itself."""
        for subscription in [*self._of_all, *(each for group in self._by_scope.values() for each in group)]:
            subscription.fall_behind(self.partition)

    async def run(self) -> None:
        """Reads and offers until nobody is served.

        Raises:
            GoneError: the tail was away for so long that changes after it were forgotten.
        """
        while self._of_all or self._by_scope:
            self._woken.clear()
            self.is_hinted = False
            query = changes(self.partition, after=self.offset, families=WATCHED_FAMILIES)
            try:
                page = (await self._reader.read(query)).value
            except StoreUnavailableError:
                await asyncio.sleep(RETRY_S)
                continue
            self._offer(page)
            if page.is_last:
                await self._woken.wait()

    def _offer(self, page: ChangePage) -> None:
        """Everybody gets what it wants of a page, mutation by mutation."""
        self.offset = page.offset
        for mutation in by_record(self.partition, _events(page.changes)):
            scope = mutation.events[0].change.scope
            for subscription in [*self._by_scope.get(scope, ()), *self._of_all]:
                wanted = tuple(
                    event for event in mutation.events if subscription.wanted.matches(event.change)
                )
                if not wanted:
                    continue
                part = mutation if len(wanted) == len(mutation.events) else mutation.part(wanted)
                if not subscription.offer(part):
                    self.remove(subscription)


def _events(found: Iterable[Change]) -> Iterable[Event]:
    return (Event(change) for change in found)
