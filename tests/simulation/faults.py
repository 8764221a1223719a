"""The named faults of the simulated world, and a store that has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from kvfold.projector.batch import Batch, Loaded
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.needs import Needs
from kvfold.projector.store import FencedError
from kvfold.projector.tables import PartitionState, Row
from kvfold.schemas.errors import StoreUnavailableError

__all__ = ["Commit", "Fault", "FaultyStore", "Server"]


class Fault(StrEnum):
    """What may go wrong; each is counted, and a suite in which one never happened fails."""

    LOAD_FAILED = "the store did not answer a load"
    COMMIT_FAILED = "the connection broke before the commit"
    ANSWER_LOST = "the commit went through and its answer was lost"
    COMMIT_TORN = "the server died in the middle of a commit and rolled it back"
    COMMIT_LATE = "a commit was given up, and reached the server later"
    WORKER_CRASHED = "a worker's process died"
    STALE_WORKER = "a worker went on after another took its partition"
    FENCED = "a commit was refused"
    SHORT_READ = "a read gave less than there was"
    APPEND_LOST = "an append failed"
    APPEND_ANSWER_LOST = "a record was appended and its producer not told"
    LATE_RETRY = "a mutation was appended once more, later"
    CLOCK_BACK = "the broker's clock stepped back"
    CLOCK_LEAP = "days went by"
    GAP = "an offset was skipped"
    TRANSACTION_COMMITTED = "a foreign transaction was committed, its marker takes an offset"
    TRANSACTION_ABORTED = "a foreign transaction was aborted"
    ENDS_IN_MARKER = "the log ended in an offset without a record"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that went through: whose it was, and from where to where it moved the offset."""

    partition: int
    epoch: int
    offset_expected: int
    offset_next: int


@dataclass(slots=True)
class Server:
    """The database's side: the tables, commits that went through, and commits that are still on their way.

    `is_transactional` is what a real server gives and the guard that `test_guards.py` takes away.
    """

    store: MemoryStore = field(default_factory=MemoryStore)
    commits: list[Commit] = field(default_factory=list)
    late: list[tuple[Batch, int]] = field(default_factory=list)
    faults: Counter[Fault] = field(default_factory=Counter)
    is_transactional: bool = True

    def commit(self, batch: Batch, epoch: int) -> None:
        """Commits, and keeps account of it."""
        try:
            self.store.commit(batch, epoch=epoch)
        except FencedError:
            self.faults[Fault.FENCED] += 1
            raise
        expected = batch.offset_expected
        self.commits.append(Commit(batch.partition, epoch, expected, batch.state.offset_next))

    def tear(self, batch: Batch) -> None:
        """Writes a part of a batch and dies; coming up again, the server rolls back what was not committed."""
        tables = self.store.shared.tables
        saved = {table: dict(tables[table]) for table in batch.puts}
        for table, puts in batch.puts.items():
            tables[table].update(puts)
        if self.is_transactional:
            tables.update(saved)


class FaultyStore:
    """A worker's connection to the server; implements `ProjectionStore`. `draw` says what goes wrong now."""

    def __init__(self, server: Server, draw: Callable[[], Fault | None]) -> None:
        self._server = server
        self._draw = draw

    def state(self, partition: int) -> PartitionState:
        return self._server.store.state(partition)

    def load(self, partition: int, needs: Needs) -> Loaded:
        fault = self._draw()
        if fault is Fault.LOAD_FAILED:
            self._fail(fault)
        return self._server.store.load(partition, needs)

    def commit(self, batch: Batch, *, epoch: int) -> None:
        fault = self._draw()
        match fault:
            case Fault.COMMIT_FAILED:
                self._fail(fault)
            case Fault.COMMIT_TORN:
                self._server.tear(batch)
                self._fail(fault)
            case Fault.COMMIT_LATE:
                self._server.late.append((batch, epoch))
                self._fail(fault)
            case Fault.ANSWER_LOST:
                self._server.commit(batch, epoch)
                self._fail(fault)
            case _:
                self._server.commit(batch, epoch)

    def rows(self, table: str) -> Iterator[Row]:
        return self._server.store.rows(table)

    def reset(self) -> None:
        """A new connection is as good as the old one."""

    def close(self) -> None:
        """Nothing to give back."""

    def _fail(self, fault: Fault) -> None:
        self._server.faults[fault] += 1
        raise StoreUnavailableError(fault.value)
