"""The stream of one watcher: what is sent, in which order, and when it ends.

The id of an event is the position to resume from, so only the last event of a mutation has one: a client that was cut off
within a mutation gets the whole of it again. Events of a mutation are sent in one piece.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from kvfold.query_api.watch.events import HEARTBEAT, Event, control_event, id_line
from kvfold.query_api.watch.hub import RETRY_S, WatchHub
from kvfold.query_api.watch.subscription import Mutation, Subscription
from kvfold.schemas.errors import GoneError, StoreUnavailableError

__all__ = ["HEARTBEAT_S", "watch_stream"]

HEARTBEAT_S: Final = 15.0
"""How long a stream is silent at most."""

_RECONNECT: Final = b"retry: 1000\n\n"
_PIECE_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class _Stream:
    hub: WatchHub
    subscription: Subscription
    heartbeat_s: float
    sent_id: str = ""
    sent_at: float = 0.0

    async def run(self, *, with_snapshot: bool) -> AsyncGenerator[bytes, None]:
        yield _RECONNECT
        try:
            if with_snapshot:
                async for piece in self._snapshot():
                    yield self._sent(piece)
                if self.hub.is_closed:
                    return  # an end that is none would look whole
            self.sent_id = position = self.subscription.position
            name = "snapshot-end" if with_snapshot else "progress"
            yield self._sent(control_event(name, {"position": position}, id_=position))
            while not self.hub.is_closed:
                async for piece in self._next():
                    yield piece
        except GoneError as error:
            data = {"code": error.code, "position": self.subscription.position, "detail": str(error)}
            yield control_event("gone", data)

    async def _snapshot(self) -> AsyncIterator[bytes]:
        """What the scope holds at the first position. Without ids: a client that was cut off begins anew."""
        (partition,) = self.subscription.behind
        cursor: tuple[str, str] | None = None
        while not self.hub.is_closed:
            try:
                page = await self.hub.snapshot_page(self.subscription, partition, cursor)
                for put in page.puts:
                    event = Event(put)
                    await self.hub.load(event)
                    yield event.encoded() + id_line(None)
                    cursor = (put.namespace or "", put.key)
            except StoreUnavailableError:
                yield HEARTBEAT
                await asyncio.sleep(RETRY_S)
                continue
            cursor = page.cursor
            if cursor is None:
                return

    async def _next(self) -> AsyncIterator[bytes]:
        """What there is now: queued mutations, a page of its own; else waits until there is something."""
        subscription = self.subscription
        subscription.woken.clear()
        try:
            queued = await self._joined(subscription.next, subscription.take)
            if queued:
                yield self._sent(queued)
            partition = subscription.turn()
            if partition is not None:
                async for piece in self._page(partition):
                    yield piece
            elif not queued:
                self.hub.deliver_live(subscription)
                await self._wait(self.heartbeat_s)
        except StoreUnavailableError:
            await self._wait(RETRY_S)
        if monotonic() >= self.sent_at + self.heartbeat_s:
            yield self._sign_of_life()

    async def _page(self, partition: int) -> AsyncIterator[bytes]:
        """What it wants of the next page of a partition in which it is behind."""
        subscription, hub = self.subscription, self.hub
        before = subscription.behind[partition]
        page = await hub.page(subscription, partition)
        waiting = deque(subscription.read(partition, page.changes))

        def taken() -> None:
            subscription.behind[partition] = waiting.popleft().offset

        while piece := await self._joined(lambda: waiting[0] if waiting else None, taken):
            yield self._sent(piece)
        subscription.deliver(partition, page.offset)
        hub.has_read(subscription, partition, page)
        if partition in subscription.behind and page.offset == before:
            # The projection is behind the watcher: Postgres lost its newest commits, and they are folded again.
            await self._wait(RETRY_S)

    async def _joined(self, following: Callable[[], Mutation | None], taken: Callable[[], None]) -> bytes:
        """Some of the mutations that follow, each told to be taken, as one piece; empty where none follows."""
        pieces: list[bytes] = []
        size = 0
        while size < _PIECE_BYTES and (mutation := following()) is not None:
            try:
                piece = await self._written(mutation)
            except (GoneError, StoreUnavailableError):
                if not pieces:
                    raise
                break  # what comes before it is sent first
            taken()
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    async def _written(self, mutation: Mutation) -> bytes:
        """A mutation's events; from now on they count as handed over."""
        for event in mutation.events:
            await self.hub.load(event)
        self.sent_id = self.subscription.deliver(mutation.partition, mutation.offset)
        *first, last = (event.encoded() for event in mutation.events)
        return b"".join(piece + id_line(None) for piece in first) + last + id_line(self.sent_id)

    async def _wait(self, seconds: float) -> None:
        """Waits for a wake-up, or for the time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.subscription.woken.wait()

    def _sign_of_life(self) -> bytes:
        """`progress`, where the position has moved; else a comment."""
        position = self.subscription.position
        if position == self.sent_id:
            return self._sent(HEARTBEAT)
        self.sent_id = position
        return self._sent(control_event("progress", {"position": position}, id_=position))

    def _sent(self, piece: bytes) -> bytes:
        self.sent_at = monotonic()
        return piece


def watch_stream(
    hub: WatchHub,
    subscription: Subscription,
    *,
    with_snapshot: bool = False,
    heartbeat_s: float,
) -> AsyncGenerator[bytes, None]:
    """Pieces of a stream, each of whole events; ends after `gone`, or when the hub is stopped.

    Begins with a snapshot of the scope and `snapshot-end`, or with a `progress` that tells the first position: so a client
    that is cut off before the first change can resume, too. The subscription stays the caller's.
    """
    return _Stream(hub, subscription, heartbeat_s).run(with_snapshot=with_snapshot)
