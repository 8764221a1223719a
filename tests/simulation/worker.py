"""A simulated projector: claims partitions, reads, and folds through `PartitionFold`, as the run loop does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kvfold.log.memory import MemoryLog
from kvfold.projector import batch as core
from kvfold.projector.needs import Step
from kvfold.projector.partition import PartitionFold, check_take_over
from kvfold.projector.store import FencedError
from kvfold.schemas.errors import StoreUnavailableError
from simulation.faults import Fault, FaultyStore, Server

__all__ = ["Held", "Worker"]


@dataclass(slots=True)
class Held:
    """A partition that a worker believes to hold: its fold, and what was read ahead."""

    fold: PartitionFold
    offset_read: int
    chunks: deque[tuple[list[Step], int]] = field(default_factory=deque)


class Worker:
    """One process. It may be behind the times: a partition that another took stays in `held` until a commit is refused."""

    def __init__(self, log: MemoryLog, server: Server, store: FaultyStore) -> None:
        self._log = log
        self._server = server
        self._store = store
        self._reader = log.reader()
        self._partition_count = log.describe().partition_count
        self.held: dict[int, Held] = {}

    def crash(self) -> None:
        """Everything that only the process knew is gone."""
        self.held = {}

    def claim(self, partition: int) -> None:
        """Takes a partition, also from a worker that lives."""
        epochs = self._server.store.shared.epochs
        epochs[partition] = epochs.get(partition, 0) + 1
        self._take_over(partition, epochs[partition])

    def _take_over(self, partition: int, epoch: int) -> None:
        state = self._store.state(partition)
        check_take_over(self._reader, state, partition, self._log.bounds([partition])[partition])
        fold = PartitionFold(partition, epoch=epoch, state=state)
        self.held[partition] = Held(fold, state.offset_next)

    def is_stale(self, partition: int) -> bool:
        """Another worker has taken the partition since."""
        return self._server.store.shared.epochs[partition] != self.held[partition].fold.epoch

    def read(self, partition: int, *, records_max: int, bytes_max: int) -> bool:
        """Reads one batch ahead. False if there was nothing."""
        held = self.held[partition]
        self._reader.assign({partition: held.offset_read})
        for batch in self._reader.poll(timeout_ms=0, records_max=records_max, bytes_max=bytes_max):
            steps = core.prepare(batch.records, self._partition_count)
            held.chunks.append((steps, batch.offset_next))
            held.offset_read = batch.offset_next
            return True
        return False

    def fold(self, partition: int, *, chunks_max: int) -> None:
        """Folds what was read, several reads together; whatever fails sets the partition back to the store's offset."""
        held = self.held[partition]
        steps: list[Step] = []
        offset_next = None
        for _ in range(min(chunks_max, len(held.chunks))):
            more, offset_next = held.chunks.popleft()
            steps += more
        if offset_next is None:
            return
        stale = self.is_stale(partition)
        try:
            held.fold.fold(self._store, steps, offset_next)
        except (FencedError, StoreUnavailableError):
            self._set_back(partition)
        if stale:
            self._server.faults[Fault.STALE_WORKER] += 1

    def _set_back(self, partition: int) -> None:
        epoch = self.held.pop(partition).fold.epoch
        # The claims say whether the partition is still ours; if so, the store says where it stands.
        if self._server.store.shared.epochs[partition] == epoch:
            self._take_over(partition, epoch)
