"""A whole kvfold in memory for unit tests: a log, and a waiter that folds it when it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from kvfold.log.memory import MemoryLog
from kvfold.projector.batch import prepare
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.partition import PartitionFold
from kvfold.projector.tables import DecisionRow
from kvfold.reads.decisions import DecisionView
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.position import Position

__all__ = ["FoldingWaiter"]


class FoldingWaiter:
    """Folds what the log has with the real fold, and answers at once. One thread."""

    def __init__(self, log: MemoryLog) -> None:
        self.store = MemoryStore()
        self._count = log.describe().partition_count
        self._folds = {
            partition: PartitionFold(partition, epoch=0, state=self.store.state(partition))
            for partition in range(self._count)
        }
        self._reader = log.reader()
        self._reader.assign(dict.fromkeys(self._folds, 0))
        self.decisions: dict[Position, DecisionRow] = {}

    def decision(self, position: Position, timeout_s: float) -> Future[DecisionView]:
        """The decision, made now if need be."""
        self.fold()
        row = self.decisions[position]
        if row.repeat_of is not None:
            row = self.decisions[Position(row.partition, row.repeat_of)]
        decision = Decision(DecisionStatus(row.status), row.code, row.version, row.removed, row.detail)
        first = Position(row.partition, row.record_offset)
        future: Future[DecisionView] = Future()
        future.set_result(DecisionView(first, row.scope, row.mutation_id, row.type, decision, row.time_ms))
        return future

    def position_reached(self, positions: Mapping[int, int], timeout_s: float) -> Future[None]:
        """Folds up to the end, which is at least that."""
        self.fold()
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def fold(self) -> None:
        """Folds all that the log has."""
        while batches := self._reader.poll(timeout_ms=0, records_max=10_000, bytes_max=1 << 30):
            for batch in batches:
                steps = prepare(batch.records, self._count)
                for folded in self._folds[batch.partition].fold(self.store, steps, batch.offset_next):
                    for row in folded.decisions:
                        assert isinstance(row, DecisionRow)
                        self.decisions[Position(row.partition, row.record_offset)] = row
