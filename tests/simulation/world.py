"""A seeded world: producers, a log with everything that logs do, workers, a database, and faults by name.

One seed is one run: the world draws every choice from it and reads no clock. After every step all checkers look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from kvfold.log.memory import AppendFault, MemoryLog
from kvfold.log.port import Appended
from kvfold.projector.store import FencedError
from kvfold.schemas.errors import LogUnavailableError
from kvfold.schemas.record import NewRecord
from simulation.checkers import Checkers
from simulation.faults import Fault, FaultyStore, Server
from simulation.worker import Worker
from support.chance import Chance
from support.workload import Workload

__all__ = ["Sabotage", "World"]

_DAY_MS = 86_400_000
_STEPS = 120
_TURNS_MAX = 1_000
Sabotage = Callable[[], AbstractContextManager[None]]
"""Takes a guard away from what the workers and the server do; the checkers never run inside it."""

_STORE_FAULTS = (
    Fault.COMMIT_FAILED,
    Fault.ANSWER_LOST,
    Fault.COMMIT_TORN,
    Fault.COMMIT_LATE,
    Fault.LOAD_FAILED,
)


class World:
    """One run."""

    def __init__(self, seed: int, *, sabotage: Sabotage = nullcontext, is_transactional: bool = True) -> None:
        self.chance = Chance(seed)
        self._sabotage = sabotage
        self.partition_count = self.chance.randrange(1, 4)
        self._now_ms = 1_700_000_000_000
        self._quiet = False
        self.server = Server(is_transactional=is_transactional)
        self.log = MemoryLog(
            partition_count=self.partition_count, clock=self._clock, gap=self._gap, fault=self._append_fault
        )
        self._workload = Workload(self.chance, partition_count=self.partition_count)
        self._sent: list[tuple[int, NewRecord]] = []
        self._in_transaction: set[int] = set()
        self.acknowledged: list[Appended] = []
        self.workers = [self._new_worker() for _ in range(self.chance.randrange(2, 4))]
        self.checkers = Checkers(self.log, self.server)

    @property
    def faults(self) -> Counter[Fault]:
        """How often each fault happened."""
        return self.server.faults

    def run(self) -> None:
        """Some steps with faults, then quiet: everything must come to rest, folded to the log's end."""
        actions = (
            *(self._produce,) * 6,
            *(self._work,) * 12,
            *(self._claim,) * 2,
            *(self._crash, self._transaction, self._clock_moves, self._deliver_late),
        )
        with self._guards_down():
            for partition in range(self.partition_count):
                self.chance.choice(self.workers).claim(partition)
        for _ in range(_STEPS):
            with self._guards_down():
                self.chance.choice(actions)()
            self.checkers.look()
        self._come_to_rest()
        self.checkers.at_rest(self.acknowledged)

    @contextmanager
    def _guards_down(self) -> Iterator[None]:
        with self._sabotage():
            yield

    # --- producers ---

    def _produce(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            if self._sent and self.chance.one_in(6):
                partition, record = self.chance.choice(self._sent)
                self.faults[Fault.LATE_RETRY] += 1
            else:
                partition, record = self._workload.draw()
            self._sent = [*self._sent[-20:], (partition, record)]
            self._append(partition, record)

    def _append(self, partition: int, record: NewRecord) -> None:
        try:
            self.acknowledged.append(self.log.append(partition, record).result(0))
        except LogUnavailableError:
            if self.chance.one_in(2):
                self._append(partition, record)

    def _append_fault(self, _partition: int, _record: NewRecord) -> AppendFault | None:
        if not self.chance.one_in(20):
            return None
        fault = self.chance.choice((AppendFault.NOT_APPENDED, AppendFault.ANSWER_LOST))
        lost = fault is AppendFault.NOT_APPENDED
        self.faults[Fault.APPEND_LOST if lost else Fault.APPEND_ANSWER_LOST] += 1
        return fault

    # --- the log ---

    def _clock(self) -> int:
        self._now_ms += self.chance.randrange(3)
        if self.chance.one_in(10):
            self.faults[Fault.CLOCK_BACK] += 1
            return self._now_ms - self.chance.randrange(1, 5_000)
        return self._now_ms

    def _clock_moves(self) -> None:
        days = self.chance.choice((-9, -1, 1, 3, 7, 8))
        self.faults[Fault.CLOCK_LEAP if days > 0 else Fault.CLOCK_BACK] += 1
        self._now_ms += days * _DAY_MS

    def _gap(self, _partition: int, _offset_next: int) -> int:
        if not self.chance.one_in(5):
            return 0
        self.faults[Fault.GAP] += 1
        return self.chance.randrange(1, 4)

    def _transaction(self) -> None:
        partition = self.chance.randrange(self.partition_count)
        if partition not in self._in_transaction:
            drawn = [self._workload.draw() for _ in range(self.chance.randrange(4))]
            self.log.begin_transaction(partition, [record for at, record in drawn if at == partition])
            self._in_transaction.add(partition)
        else:
            self._end_transaction(partition)

    def _end_transaction(self, partition: int) -> None:
        commit = self.chance.one_in(2)
        self.log.end_transaction(partition, commit=commit)
        self._in_transaction.discard(partition)
        self.faults[Fault.TRANSACTION_COMMITTED if commit else Fault.TRANSACTION_ABORTED] += 1

    # --- projectors ---

    def _new_worker(self) -> Worker:
        return Worker(self.log, self.server, FaultyStore(self.server, self._store_fault))

    def _store_fault(self) -> Fault | None:
        return None if self._quiet or not self.chance.one_in(8) else self.chance.choice(_STORE_FAULTS)

    def _work(self) -> None:
        worker = self.chance.choice(self.workers)
        if not worker.held:
            return
        partition = self.chance.choice(sorted(worker.held))
        if self.chance.one_in(3) and worker.held[partition].chunks:
            worker.fold(partition, chunks_max=self.chance.randrange(1, 5))
            return
        before = self.log.bounds([partition])[partition].stable_end
        records_max, bytes_max = self.chance.choice((1, 2, 5, 100)), self.chance.choice((1, 300, 1 << 20))
        worker.read(partition, records_max=records_max, bytes_max=bytes_max)
        if worker.held[partition].offset_read < before:
            self.faults[Fault.SHORT_READ] += 1
        if self.chance.one_in(2):
            worker.fold(partition, chunks_max=self.chance.randrange(1, 5))

    def _claim(self) -> None:
        self.chance.choice(self.workers).claim(self.chance.randrange(self.partition_count))

    def _crash(self) -> None:
        self.chance.choice(self.workers).crash()
        self.faults[Fault.WORKER_CRASHED] += 1

    def _deliver_late(self) -> None:
        """A commit that its worker gave up reaches the server now."""
        if self.server.late:
            batch, epoch = self.server.late.pop(self.chance.randrange(len(self.server.late)))
            try:
                self.server.commit(batch, epoch)
            except FencedError:
                return

    # --- the end ---

    def _come_to_rest(self) -> None:
        """No more faults: what is open ends, what is late arrives, and one worker folds what is left."""
        self._quiet = True
        for partition in sorted(self._in_transaction):
            self._end_transaction(partition)
        while self.server.late:
            with self._guards_down():
                self._deliver_late()
            self.checkers.look()
        for partition in range(self.partition_count):
            part = self.log.bounds([partition])[partition]
            worker = self.chance.choice(self.workers)
            with self._guards_down():
                worker.claim(partition)
                for _ in range(_TURNS_MAX):
                    if not worker.read(partition, records_max=7, bytes_max=1 << 20):
                        break
                    worker.fold(partition, chunks_max=1)
            self.checkers.look()
            if self.checkers.known_end(partition) < part.end:
                self.faults[Fault.ENDS_IN_MARKER] += 1
