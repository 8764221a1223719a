"""What the projector's threads share: which partitions are folded here, what was read for them, who works on which.

One lock. Fold threads wait at a condition of their own, so that a record at the head of the log wakes one of them and
nobody else. A `Work` is one partition under one claim; after any fault it is taken off the board, and the partition
comes back as another `Work` that starts from the database's offset. So nothing that was read for the old one is ever
folded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Condition, RLock

from kvfold.projector.needs import Step
from kvfold.projector.partition import PartitionFold
from kvfold.schemas.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX

__all__ = ["Board", "Chunk", "Work"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one partition, judged for their form, and the offset after them."""

    steps: Sequence[Step]
    offset_next: int
    size: int


@dataclass(slots=True, eq=False)
class Work:
    """A partition on the board. `started_at` is the offset it came with, `offset_read` where reading goes on."""

    fold: PartitionFold
    started_at: int
    offset_read: int
    chunks: deque[Chunk] = field(default_factory=deque)
    busy_since: float | None = None

    @property
    def partition(self) -> int:
        """Its number."""
        return self.fold.partition


class Board:
    """The shared state. Every method is safe from any thread."""

    def __init__(self, *, queue_bytes_max: int, queue_records_max: int) -> None:
        lock = RLock()
        self._condition = Condition(lock)  # room in the queue, the end of work on a partition
        self._foldable = Condition(lock)
        self._works: dict[int, Work] = {}
        self._queued_bytes = 0
        self._queued_records = 0
        self._queue_bytes_max = queue_bytes_max
        self._queue_records_max = queue_records_max
        self._serial = 0
        self._stopping = False

    def add(self, fold: PartitionFold) -> None:
        """Puts a partition on the board: it is read from its offset on, and folded."""
        with self._condition:
            assert fold.partition not in self._works
            self._works[fold.partition] = Work(fold, fold.offset_next, fold.offset_next)
            self._changed()

    def remove(self, partition: int, *, wait_s: float = 0.0) -> bool:
        """Takes a partition off; true when nobody works on it any more, for which it waits up to `wait_s`."""
        deadline = time.monotonic() + wait_s
        with self._condition:
            work = self._works.pop(partition, None)
            if work is None:
                return True
            self._drop(work)
            self._changed()
            while work.busy_since is not None and (left := deadline - time.monotonic()) > 0:
                self._condition.wait(left)
            return work.busy_since is None

    def discard(self, work: Work) -> None:
        """Takes this work off, if it is still the partition's."""
        with self._condition:
            if self._works.get(work.partition) is work:
                del self._works[work.partition]
                self._drop(work)
                self._changed()

    def works(self) -> dict[int, Work]:
        """The works by partition, as of now."""
        with self._condition:
            return dict(self._works)

    def assignment(self) -> tuple[int, dict[int, Work]]:
        """A serial number that grows with each change, and the works to read for."""
        with self._condition:
            return self._serial, dict(self._works)

    def offer(self, work: Work, chunk: Chunk) -> None:
        """Queues what was read; waits while too much is queued. Ignored for a work that was taken off meanwhile."""
        with self._condition:
            while self._is_full() and not self._stopping and self._is_current(work):
                self._condition.wait(1.0)
            if self._stopping or not self._is_current(work):
                return
            work.chunks.append(chunk)
            work.offset_read = chunk.offset_next
            self._queued_bytes += chunk.size
            self._queued_records += len(chunk.steps)
            self._foldable.notify()

    def take(self, *, timeout_s: float) -> tuple[Work, Chunk] | None:
        """The next work to fold with all that waits for it, up to one batch; None if there is none in time."""
        deadline = time.monotonic() + timeout_s
        with self._condition:
            while not self._stopping:
                for work in self._works.values():
                    if work.chunks and work.busy_since is None:
                        # The partition goes to the end of the order, so that none starves.
                        self._works[work.partition] = self._works.pop(work.partition)
                        work.busy_since = time.monotonic()
                        return work, self._gather(work)
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._foldable.wait(left)
            return None

    def done(self, work: Work) -> None:
        """Nobody works on it any more."""
        with self._condition:
            work.busy_since = None
            if work.chunks:
                self._foldable.notify()
            self._condition.notify_all()

    def stop(self) -> None:
        """Ends every wait; nothing more is handed out."""
        with self._condition:
            self._stopping = True
            self._foldable.notify_all()
            self._condition.notify_all()

    def _gather(self, work: Work) -> Chunk:
        steps: list[Step] = []
        size = 0
        offset_next = work.fold.offset_next
        while work.chunks:
            head = work.chunks[0]
            full = len(steps) + len(head.steps) > BATCH_RECORDS_MAX or size + head.size > BATCH_BYTES_MAX
            if steps and full:
                break
            work.chunks.popleft()
            steps.extend(head.steps)
            size += head.size
            offset_next = head.offset_next
        self._queued_bytes -= size
        self._queued_records -= len(steps)
        self._condition.notify_all()
        return Chunk(steps, offset_next, size)

    def _is_full(self) -> bool:
        """By bytes, and by count: a small record takes ten times its bytes once it is decoded."""
        return self._queued_bytes > self._queue_bytes_max or self._queued_records > self._queue_records_max

    def _is_current(self, work: Work) -> bool:
        return self._works.get(work.partition) is work

    def _drop(self, work: Work) -> None:
        self._queued_bytes -= sum(chunk.size for chunk in work.chunks)
        self._queued_records -= sum(len(chunk.steps) for chunk in work.chunks)
        work.chunks.clear()

    def _changed(self) -> None:
        self._serial += 1
        self._condition.notify_all()
