"""The projector's process: threads that claim, read and fold.

```
control   every second: claims; take-overs (fence, read the state, check the log); releases; pauses; lag
fetch     polls the log for every partition held, judges the form of each record, queues it on the board
fold × n  takes one partition with all that waits for it: load → project → commit → notify
```

Whatever goes wrong with a partition takes it off the board. The control loop brings it back from the database's offset,
with a growing delay while the infrastructure is away, or records a pause with its reason. Nothing is ever skipped, and no
fault of the infrastructure becomes a rejection.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Thread
from typing import Any, Final

import psycopg
import structlog

from kvfold.log.port import Log, LogReader
from kvfold.projector.batch import Batch, FormatAheadError, prepare
from kvfold.projector.board import Chunk, Work
from kvfold.projector.control import STOP_WAIT_S, Control
from kvfold.projector.generations import ensure_serving_generation
from kvfold.projector.ownership import Claims, fold_session_name
from kvfold.projector.postgres_store import PostgresStore, connect_for_folding, translated
from kvfold.projector.store import FencedError
from kvfold.projector.supervision import ProjectorSettings, Shared, shared_by_loops
from kvfold.projector.tables import DecisionRow
from kvfold.projector.telemetry import Telemetry
from kvfold.schemas.errors import KvfoldError, LogDivergedError, UnavailableError
from kvfold.schemas.form import Formed
from kvfold.schemas.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX

__all__ = ["Projector", "ProjectorSettings"]

_log = structlog.get_logger(__name__)
_RANGE_ALLOWANCE_S: Final = 24 * 3600.0


class Projector:
    """Folds a log into Postgres until it is stopped. Any number of them share the partitions."""

    def __init__(
        self, log: Log, dsn: str, settings: ProjectorSettings, telemetry: Telemetry | None = None
    ) -> None:
        self._log = log
        self._dsn = dsn
        self._settings = settings
        self.telemetry = telemetry or Telemetry()
        self._shared = shared_by_loops(settings, self.telemetry)
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Sets the database up where it is empty, binds it to the log, and starts the threads.

        Raises:
            LogMisconfiguredError, LogDivergedError: the log is not the one that was folded.
            UnavailableError: log or Postgres is away.
        """
        # A batch is some hundred thousand small objects that all die together: collecting after every 700 of them, as
        # Python does by default, costs a third of the projector's time.
        gc.set_threshold(200_000, 50, 100)
        description = self._log.describe()
        with translated(), psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as connection:
            generation = ensure_serving_generation(connection, description)
        count = description.partition_count
        settings, shared = self._settings, self._shared

        def new_store() -> PostgresStore:
            return PostgresStore(self._connect, generation)

        claims = Claims(
            self._connect_for_control,
            generation=generation,
            owner=settings.owner,
            claim_ms=settings.claim_ms,
            partition_count=count,
        )
        loops: list[tuple[str, Callable[[], None]]] = [
            ("control", Control(self._log, claims, new_store(), shared, settings).run),
            ("fetch", _Fetch(self._log.reader(), shared, settings, count).run),
        ]
        loops += [
            (f"fold-{n}", _Fold(f"fold-{n}", new_store(), shared).run) for n in range(settings.fold_threads)
        ]
        self._threads = [Thread(target=run, name=f"projector-{name}", daemon=True) for name, run in loops]
        for thread in self._threads:
            thread.start()
        _log.info("projector started", owner=settings.owner, generation=generation, partitions=count)

    def stop(self) -> None:
        """Finishes the batches under way, gives all claims up, and ends the threads. Waits for them some seconds."""
        self._shared.stopping.set()
        self._shared.wake.set()
        self._shared.board.stop()
        for thread in self._threads:
            thread.join(STOP_WAIT_S)
        _log.info("projector stopped", owner=self._settings.owner)

    def _connect(self) -> psycopg.Connection[Any]:
        return connect_for_folding(
            self._dsn,
            transaction_timeout_ms=self._settings.claim_ms * 4 // 5,
            name=fold_session_name(self._settings.owner),
        )

    def _connect_for_control(self) -> psycopg.Connection[Any]:
        name = f"kvfold-control {self._settings.owner}"[:63]
        timeout = f"-c statement_timeout={self._settings.claim_ms // 2} -c synchronous_commit=off"
        return psycopg.connect(
            self._dsn, autocommit=True, connect_timeout=5, application_name=name, options=timeout
        )


class _Fetch:
    """The fetch loop: one reader for all partitions held."""

    def __init__(
        self, reader: LogReader, shared: Shared, settings: ProjectorSettings, partition_count: int
    ) -> None:
        self._reader = reader
        self._shared = shared
        self._settings = settings
        self._partition_count = partition_count
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
            self._reader.assign({partition: work.offset_read for partition, work in works.items()})
            self._serial, self._works = serial, works

    def _poll(self) -> None:
        batches = self._reader.poll(
            timeout_ms=self._settings.poll_ms, records_max=BATCH_RECORDS_MAX, bytes_max=BATCH_BYTES_MAX
        )
        for batch in batches:
            work = self._works.get(batch.partition)
            if work is None or batch.offset_next == work.offset_read:
                continue
            steps = prepare(batch.records, self._partition_count)
            size = sum(record.size() for record in batch.records)
            self._shared.telemetry.beat("fetch")
            self._shared.board.offer(work, Chunk(steps, batch.offset_next, size))

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


class _Fold:
    """A fold loop: one store connection, one partition at a time."""

    def __init__(self, name: str, store: PostgresStore, shared: Shared) -> None:
        self._name = name
        self._store = store
        self._shared = shared

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

    def _fold(self, work: Work, chunk: Chunk) -> None:
        try:
            for batch in work.fold.fold(self._store, chunk.steps, chunk.offset_next):
                self._shared.telemetry.decided(_labels(batch))
        except FencedError as error:
            # Somebody else moved the partition, or an answer was lost and the commit went through after all.
            _log.warning("commit refused", partition=work.partition, error=str(error))
            self._set_back(work, error)
        except UnavailableError as error:
            self._set_back(work, error)
        except FormatAheadError as error:
            self._pause(work, "format-level-ahead", str(error))
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


def _labels(batch: Batch) -> list[tuple[str, str, str]]:
    labels = []
    for row in batch.decisions:
        assert isinstance(row, DecisionRow)
        family = row.type.split(".")[1] if row.type is not None and row.type.count(".") == 3 else "unknown"
        known = family if family in ("capsule", "deployment", "orchestration", "system") else "unknown"
        labels.append((known, row.status, row.code or ""))
    return labels
