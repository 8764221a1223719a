"""The loops that read and fold one generation: `Fetch` and `Fold`, each a thread of a `GenerationRun`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from kvfold.log.port import LogReader, RecordBatch
from kvfold.projector.batch import Batch, FormatAheadError, prepare
from kvfold.projector.board import Chunk, Work
from kvfold.projector.pace import Pace
from kvfold.projector.postgres_store import PostgresStore
from kvfold.projector.store import FencedError
from kvfold.projector.supervision import ProjectorSettings, Shared
from kvfold.projector.tables import DecisionRow
from kvfold.schemas.errors import KvfoldError, LogDivergedError, UnavailableError
from kvfold.schemas.form import Formed
from kvfold.schemas.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX

__all__ = ["CommitCheck", "CommitCheckError", "Fetch", "Fold"]

_log = structlog.get_logger(__name__)
_RANGE_ALLOWANCE_S: Final = 24 * 3600.0


class CommitCheckError(KvfoldError):
    """What was folded is not as it should be: the partition pauses, with the error's code as the reason."""


class CommitCheck(Protocol):
    """Looks at what a fold thread has committed. Belongs to that thread."""

    def committed(self, partition: int, offset_next: int) -> None:
        """The partition is folded up to `offset_next`.

        Raises:
            CommitCheckError: it is not as it should be.
            UnavailableError: nothing is known; the partition is taken over again.
        """
        ...

    def close(self) -> None:
        """No more commits come."""
        ...


class Fetch:
    """The fetch loop: one reader for all partitions held.

    `until` are offsets to stop before, by partition; `pace` limits the records a second. None of either: all that there
    is, at once.
    """

    def __init__(
        self,
        reader: LogReader,
        shared: Shared,
        settings: ProjectorSettings,
        partition_count: int,
        *,
        until: Mapping[int, int] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._reader = reader
        self._shared = shared
        self._settings = settings
        self._partition_count = partition_count
        self._until = until
        self._pace = pace
        self._records_max = BATCH_RECORDS_MAX if pace is None else min(BATCH_RECORDS_MAX, pace.slice_records)
        self._serial = -1
        self._works: dict[int, Work] = {}

    def run(self) -> None:
        """Polls until the projector stops."""
        while not self._shared.stopping.is_set():
            self._shared.telemetry.beat("fetch")
            try:
                self._follow_assignment()
                self._poll()
            except LogDivergedError as error:
                self._diverged(error)
            except KvfoldError as error:
                self._shared.telemetry.failed(error.code)
                _log.warning("log not read", error=str(error))
                self._begin_anew()
                self._shared.stopping.wait(0.2)
            except Exception:
                self._shared.telemetry.failed("internal-error")
                _log.exception("fetch turn failed")
                self._shared.stopping.wait(1.0)
        self._reader.close()

    def _follow_assignment(self) -> None:
        serial, works = self._shared.board.assignment()
        if serial != self._serial:
            places = {partition: work.offset_read for partition, work in works.items()}
            self._reader.assign({p: offset for p, offset in places.items() if self._goes_on(p, offset)})
            self._serial, self._works = serial, works

    def _goes_on(self, partition: int, offset: int) -> bool:
        return self._until is None or offset < self._until[partition]

    def _poll(self) -> None:
        batches = self._reader.poll(
            timeout_ms=self._settings.poll_ms, records_max=self._records_max, bytes_max=BATCH_BYTES_MAX
        )
        for whole in batches:
            work = self._works.get(whole.partition)
            if work is None:
                continue
            batch = whole if self._until is None else _before(self._until[whole.partition], whole)
            if batch.offset_next == work.offset_read:
                continue
            steps = prepare(batch.records, self._partition_count)
            size = sum(record.size() for record in batch.records)
            self._shared.telemetry.beat("fetch")
            self._shared.board.offer(work, Chunk(steps, batch.offset_next, size))
            if not self._goes_on(batch.partition, batch.offset_next):
                self._serial = -1
        if self._pace is not None:
            self._shared.stopping.wait(self._pace.spend(sum(len(batch.records) for batch in batches)))

    def _begin_anew(self) -> None:
        """After any fault of the log it may be another one: each partition is taken over again, with its checks."""
        for work in self._works.values():
            self._shared.board.discard(work)
        self._shared.wake.set()

    def _diverged(self, error: LogDivergedError) -> None:
        for partition in error.partitions or tuple(self._works):
            work = self._works.get(partition)
            if work is not None:
                self._shared.paused(partition, error.code, str(error))
                self._shared.board.discard(work)


class Fold:
    """A fold loop: one store connection, one partition at a time; what it commits is given to the check."""

    def __init__(
        self, name: str, store: PostgresStore, shared: Shared, check: CommitCheck | None = None
    ) -> None:
        self._name = name
        self._store = store
        self._shared = shared
        self._check = check

    def run(self) -> None:
        """Folds until the projector stops; a batch under way is finished."""
        while not self._shared.stopping.is_set():
            self._shared.telemetry.beat(self._name)
            taken = self._shared.board.take(timeout_s=1.0)
            if taken is None:
                continue
            work, chunk = taken
            has_range = any(isinstance(formed, Formed) and formed.type.is_range for _, formed in chunk.steps)
            self._shared.telemetry.beat(self._name, allowance_s=_RANGE_ALLOWANCE_S if has_range else 0.0)
            try:
                self._fold(work, chunk)
            finally:
                self._shared.board.done(work)
        self._store.close()
        if self._check is not None:
            self._check.close()

    def _fold(self, work: Work, chunk: Chunk) -> None:
        try:
            for batch in work.fold.fold(self._store, chunk.steps, chunk.offset_next):
                self._shared.telemetry.decided(_labels(batch))
            if self._check is not None:
                self._check.committed(work.partition, work.fold.offset_next)
        except FencedError as error:
            # Somebody else moved the partition, or an answer was lost and the commit went through after all.
            _log.warning("commit refused", partition=work.partition, error=str(error))
            self._set_back(work, error)
        except UnavailableError as error:
            self._set_back(work, error)
        except FormatAheadError as error:
            self._pause(work, "format-level-ahead", str(error))
        except CommitCheckError as error:
            self._pause(work, error.code, str(error))
        except Exception as error:
            # Our own mistake: the partition stops with a name, and nothing is skipped.
            _log.exception("fold failed", partition=work.partition)
            self._pause(
                work, "internal-error", f"{type(error).__name__} at or after offset {work.fold.offset_next}"
            )

    def _set_back(self, work: Work, error: Exception) -> None:
        self._store.reset()
        self._shared.board.discard(work)
        self._shared.failed(work.partition, error)

    def _pause(self, work: Work, reason: str, detail: str) -> None:
        self._store.reset()
        self._shared.board.discard(work)
        self._shared.paused(work.partition, reason, detail)


def _before(end: int, batch: RecordBatch) -> RecordBatch:
    """The part of a batch that stands before an offset."""
    records = [record for record in batch.records if record.offset < end]
    return RecordBatch(batch.partition, records, min(batch.offset_next, end))


def _labels(batch: Batch) -> list[tuple[str, str, str]]:
    labels = []
    for row in batch.decisions:
        assert isinstance(row, DecisionRow)
        family = row.type.split(".")[1] if row.type is not None and row.type.count(".") == 3 else "unknown"
        known = family if family in ("capsule", "deployment", "orchestration", "system") else "unknown"
        labels.append((known, row.status, row.code or ""))
    return labels
