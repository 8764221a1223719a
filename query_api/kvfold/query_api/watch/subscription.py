"""One watcher: what waits for it, and how far it has come in each partition. Does no I/O.

In a partition a subscription is live or behind. Live, the partition's tail puts mutations into its queue, and it is as far
as the tail. Behind, it reads pages of its own. It falls behind when its queue is full, and goes live again when it has
caught up. Worked example, one partition, room for two:

```
live, 6 and 7 queued, the tail reads 8      → 8 does not fit: behind, from 7 on
6 and 7 are taken, then a page after 7      → 8 and 9; the projection has no more, and the tail is at 9: live again
```
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from kvfold.query_api.watch.events import Event, WatchFilter, positions_text
from kvfold.reads.changes import Change

__all__ = ["Mutation", "Subscription", "by_record"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """The events of one record that a watcher wants, at least one."""

    partition: int
    offset: int
    events: tuple[Event, ...]

    @property
    def size(self) -> int:
        """About how many bytes they take."""
        return sum(event.size for event in self.events)

    def part(self, events: tuple[Event, ...]) -> Mutation:
        """The same with some of its events."""
        return Mutation(self.partition, self.offset, events)


class Subscription:
    """What one watcher wants and has. Belongs to one event loop."""

    def __init__(self, wanted: WatchFilter, positions: dict[int, int], *, queue_bytes_max: int) -> None:
        """`positions`: the offset last covered of every partition that is watched; it begins behind in all of them."""
        self.wanted = wanted
        self.behind = dict(positions)
        self.woken = asyncio.Event()
        self._delivered = dict(positions)
        self._queue: deque[Mutation] = deque()
        self._queue_bytes = 0
        self._queue_bytes_max = queue_bytes_max
        self._queued = Counter[int]()  # by partition
        # By partition in which it is live: up to where it has, or has queued, everything.
        self._live: dict[int, int] = {}

    @property
    def live(self) -> tuple[int, ...]:
        """Partitions in which a tail serves it."""
        return tuple(self._live)

    @property
    def queued_bytes(self) -> int:
        """About how many bytes wait."""
        return self._queue_bytes

    @property
    def position(self) -> str:
        """The id to resume from: everything up to there was handed over."""
        return positions_text(self._delivered)

    def went_live(self, partition: int, offset: int) -> None:
        """It has everything up to an offset, and the partition's tail serves what comes after."""
        del self.behind[partition]
        self._live[partition] = offset

    def offer(self, mutation: Mutation) -> bool:
        """Queues what the tail read; False where there is no room, and from now on it is behind."""
        partition = mutation.partition
        if mutation.offset <= self._live[partition]:
            return True
        # What does not fit into an empty queue would never fit.
        if self._queue and self._queue_bytes + mutation.size > self._queue_bytes_max:
            self.fall_behind(partition)
            return False
        self._queue.append(mutation)
        self._queue_bytes += mutation.size
        self._queued[partition] += 1
        self._live[partition] = mutation.offset
        self.woken.set()
        return True

    def fall_behind(self, partition: int) -> None:
        """No tail serves it any more: it goes on by itself, from what it has queued."""
        self.behind[partition] = self._live.pop(partition)
        self.woken.set()

    def next(self) -> Mutation | None:
        """The next mutation that waits; None where none does. It waits until it is taken."""
        return self._queue[0] if self._queue else None

    def take(self) -> None:
        """Takes the next one out."""
        mutation = self._queue.popleft()
        self._queue_bytes -= mutation.size
        self._queued[mutation.partition] -= 1

    def turn(self) -> int | None:
        """A partition in which it is behind and nothing waits, another one each time; None where there is none."""
        for partition in self.behind:
            if not self._queued[partition]:
                self.behind[partition] = self.behind.pop(partition)  # to the end of the line
                return partition
        return None

    def deliver(self, partition: int, offset: int) -> str:
        """Everything of the partition up to the offset was handed over; gives the id to resume from.

        It may have come further already: a tail can be behind a page that a watcher read by itself.
        """
        self._delivered[partition] = max(self._delivered[partition], offset)
        return self.position

    def read(self, partition: int, changes: Iterable[Change]) -> list[Mutation]:
        """What it wants of a page of its own."""
        return by_record(partition, (Event(change) for change in changes if self.wanted.matches(change)))


def by_record(partition: int, events: Iterable[Event]) -> list[Mutation]:
    """Events in order, those of one record together."""
    grouped: dict[int, list[Event]] = {}
    for event in events:
        grouped.setdefault(event.change.position.offset, []).append(event)
    return [Mutation(partition, offset, tuple(members)) for offset, members in grouped.items()]
