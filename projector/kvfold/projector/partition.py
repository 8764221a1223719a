"""One partition's fold, as the run loop and the simulation both drive it; and the check at a take-over."""

from __future__ import annotations

from collections.abc import Sequence

from kvfold.log.port import Bounds, LogReader
from kvfold.projector.batch import Batch, FormatAheadError, project, record_digest
from kvfold.projector.needs import Step, cut, needs
from kvfold.projector.store import FencedError, ProjectionStore
from kvfold.projector.tables import PartitionState
from kvfold.schemas.errors import LogDivergedError
from kvfold.schemas.record import Record

__all__ = ["PartitionFold", "check_take_over"]


class PartitionFold:
    """Folds what the log gives of one partition, under one claim. `offset_next` is what is committed."""

    def __init__(self, partition: int, *, epoch: int, state: PartitionState) -> None:
        self.partition = partition
        self.epoch = epoch
        self.offset_next = state.offset_next

    def fold(self, store: ProjectionStore, steps: Sequence[Step], offset_next: int) -> list[Batch]:
        """Folds records that follow each other, and moves the offset to `offset_next` also where none are left.

        Gives the batches that were committed, in order; each commit is complete in itself.

        Raises:
            FormatAheadError: everything before the record that raises the level is committed.
            FencedError, StoreUnavailableError: from the store; what was committed before stays.
        """
        chunks = list(cut(steps)) or [()]
        committed: list[Batch] = []
        for number, chunk in enumerate(chunks, 1):
            last = number == len(chunks)
            end = offset_next if last else chunk[-1][0].offset + 1
            if end > self.offset_next:
                committed.append(self._commit(store, chunk, end))
        return committed

    def _commit(self, store: ProjectionStore, steps: Sequence[Step], offset_next: int) -> Batch:
        try:
            loaded = store.load(self.partition, needs(steps))
            if loaded.partition.offset_next != self.offset_next:
                raise FencedError(
                    f"partition {self.partition} is at {loaded.partition.offset_next}, and was left at {self.offset_next}"
                )
            batch = project(steps, loaded, partition=self.partition, offset_next=offset_next)
        except FormatAheadError as ahead:
            before = [step for step in steps if step[0].offset < ahead.offset]
            if ahead.offset > self.offset_next:
                self._commit(store, before, ahead.offset)
            raise
        store.commit(batch, epoch=self.epoch)
        self.offset_next = offset_next
        return batch


def check_take_over(reader: LogReader, state: PartitionState, partition: int, bounds: Bounds) -> None:
    """Makes sure that the log is the one that was folded: reads the last folded record again.

    Raises:
        LogDivergedError: the log was made anew, truncated, or trimmed past the stored offset.
        LogUnavailableError: the log does not answer.
    """
    if state.offset_next < bounds.start:
        raise LogDivergedError(
            f"partition {partition}: folding stands at {state.offset_next} and the log begins at {bounds.start}: records "
            "were removed before they were folded. Restore them, or rebuild from a checkpoint.",
            code="offset-out-of-range",
            partitions=(partition,),
        )
    if state.offset_next > bounds.end:
        raise _diverged(partition, f"folding stands at {state.offset_next} and the log ends at {bounds.end}")
    if state.last_offset is None or state.last_offset < bounds.start:
        return
    record = _read(reader, partition, state.last_offset)
    if record is None or record.offset != state.last_offset:
        raise _diverged(partition, f"the last folded record, at {state.last_offset}, is not in the log")
    if record_digest(record) != state.last_digest or record.timestamp_ms != state.last_timestamp_ms:
        raise _diverged(
            partition, f"another record stands at {state.last_offset} than the one that was folded"
        )


def _read(reader: LogReader, partition: int, offset: int) -> Record | None:
    """The first record from an offset on; None at the end of what can be read."""
    reader.assign({partition: offset})
    for _ in range(10):
        for batch in reader.poll(timeout_ms=1_000, records_max=1, bytes_max=1):
            if batch.records:
                return batch.records[0]
    return None


def _diverged(partition: int, what: str) -> LogDivergedError:
    return LogDivergedError(
        f"partition {partition}: {what}: the log is not the one that was folded. Point to the old log, or fold into an "
        "empty database.",
        partitions=(partition,),
    )
