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
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, Final

import psycopg
import structlog

from kvfold.log.port import Bounds, Log, LogReader
from kvfold.projector.batch import Batch, FormatAheadError, prepare
from kvfold.projector.board import Board, Chunk, Work
from kvfold.projector.generations import ensure_serving_generation
from kvfold.projector.ownership import Claims, fold_session_name
from kvfold.projector.partition import PartitionFold, check_take_over
from kvfold.projector.postgres_store import PostgresStore, connect_for_folding, translated
from kvfold.projector.store import FencedError
from kvfold.projector.tables import DecisionRow
from kvfold.projector.telemetry import PartitionView, Telemetry
from kvfold.schemas.errors import KvfoldError, LogDivergedError, UnavailableError
from kvfold.schemas.form import Formed
from kvfold.schemas.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX

__all__ = ["PartitionView", "Projector", "ProjectorSettings"]

_log = structlog.get_logger(__name__)
_RANGE_ALLOWANCE_S: Final = 24 * 3600.0
_STOP_WAIT_S: Final = 10.0
_PAUSE_RETRY_S = 5.0
"""A paused partition is tried again after this: what an operator has mended resumes by itself."""


@dataclass(frozen=True, slots=True)
class ProjectorSettings:
    """How a projector process works; nothing of it changes a decision.

    - `claim_ms`: how long a claim holds without a renewal; fold transactions end by themselves at 4/5 of it.
    - `turn_ms`: between turns of the control loop.
    - `fold_threads`: partitions folded at the same time; while one waits for Postgres the next computes.
    """

    owner: str
    claim_ms: int = 10_000
    turn_ms: int = 1_000
    fold_threads: int = 2
    poll_ms: int = 500
    queue_bytes_max: int = 2 * BATCH_BYTES_MAX
    queue_records_max: int = 2 * BATCH_RECORDS_MAX


@dataclass(slots=True)
class _Trouble:
    """Why a partition is off the board: when to try again, and the reason of a pause."""

    retry_at: float
    failures: int = 0
    paused: str | None = None


@dataclass(slots=True)
class _Shared:
    """What the loops share besides the board. Troubles are written by fold threads and read by control: single
    assignments of whole values, which Python makes atomic.
    """

    board: Board
    telemetry: Telemetry
    stopping: Event = field(default_factory=Event)
    wake: Event = field(default_factory=Event)
    troubles: dict[int, _Trouble] = field(default_factory=dict)

    def failed(self, partition: int, error: Exception) -> None:
        """A fault of the infrastructure: try again, later each time."""
        failures = (self.troubles.get(partition) or _Trouble(0)).failures + 1
        delay = min(5.0, 0.05 * 2**failures)
        self.troubles[partition] = _Trouble(time.monotonic() + delay, failures)
        self.telemetry.failed("infrastructure")
        _log.warning("partition set back", partition=partition, failures=failures, error=str(error))
        self.wake.set()

    def paused(self, partition: int, reason: str, detail: str, *, retry_s: float) -> None:
        """A fault that an operator has to mend."""
        self.troubles[partition] = _Trouble(time.monotonic() + retry_s, paused=f"{reason}: {detail}")
        self.telemetry.failed(reason)
        _log.error("partition paused", partition=partition, reason=reason, detail=detail)
        self.wake.set()


class Projector:
    """Folds a log into Postgres until it is stopped. Any number of them share the partitions."""

    def __init__(
        self, log: Log, dsn: str, settings: ProjectorSettings, telemetry: Telemetry | None = None
    ) -> None:
        self._log = log
        self._dsn = dsn
        self._settings = settings
        self.telemetry = telemetry or Telemetry()
        self._shared = _Shared(_board(settings), self.telemetry)
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
            ("control", _Control(self._log, claims, new_store(), shared, settings).run),
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
            thread.join(_STOP_WAIT_S)
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


def _board(settings: ProjectorSettings) -> Board:
    return Board(queue_bytes_max=settings.queue_bytes_max, queue_records_max=settings.queue_records_max)


class _Control:
    """The control loop. It alone adds partitions to the board."""

    def __init__(
        self, log: Log, claims: Claims, store: PostgresStore, shared: _Shared, settings: ProjectorSettings
    ) -> None:
        self._log = log
        self._claims = claims
        self._store = store
        self._shared = shared
        self._settings = settings
        self._reader: LogReader | None = None
        self._log_id: str | None = None
        self._bounds: dict[int, Bounds] = {}
        self._trim_turn = 0

    def run(self) -> None:
        """Turns until the projector stops; then gives everything up, once the folds under way have ended."""
        while not self._shared.stopping.is_set():
            self._shared.telemetry.beat("control")
            self._shared.wake.clear()
            try:
                self._turn()
            except KvfoldError as error:
                self._shared.telemetry.failed(error.code)
                _log.warning("control turn failed", error=str(error))
            except Exception:
                self._shared.telemetry.failed("internal-error")
                _log.exception("control turn failed")
            self._shared.wake.wait(self._pause_s())
        self._leave()

    def _pause_s(self) -> float:
        """Until the next turn, or until the first partition is due again."""
        due = [trouble.retry_at - time.monotonic() for trouble in self._shared.troubles.values()]
        return max(0.01, min([self._settings.turn_ms / 1000, *(wait for wait in due if wait > 0)]))

    def _turn(self) -> None:
        shares = self._claims.turn()
        board = self._shared.board
        for partition, work in board.works().items():
            if shares.held.get(partition) != work.fold.epoch:
                _log.warning("partition lost", partition=partition, epoch=work.fold.epoch)
                board.remove(partition)
        self._release(shares.surplus)
        keep = {
            partition: epoch for partition, epoch in shares.held.items() if partition not in shares.surplus
        }
        if self._is_same_log(keep):
            self._observe_log(sorted(keep))
            for partition, epoch in keep.items():
                if partition not in board.works() and self._is_due(partition):
                    self._take_over(partition, epoch)
        self._settle_troubles(shares.paused)
        self._trim(sorted(keep))
        self._report(keep)

    def _release(self, surplus: tuple[int, ...]) -> None:
        """Only what nobody works on; the rest is released at a later turn."""
        idle = [partition for partition in surplus if self._shared.board.remove(partition, wait_s=1.0)]
        if idle:
            self._claims.release(idle)
            _log.info("partitions released", partitions=idle)

    def _is_due(self, partition: int) -> bool:
        trouble = self._shared.troubles.get(partition)
        return trouble is None or time.monotonic() >= trouble.retry_at

    def _observe_log(self, partitions: list[int]) -> None:
        try:
            self._bounds = dict(self._log.bounds(partitions)) if partitions else {}
        except UnavailableError:
            self._bounds = {}
            raise

    def _take_over(self, partition: int, epoch: int) -> None:
        try:
            self._claims.fence(partition, epoch)
            state = self._store.state(partition)
            if self._reader is None:
                self._reader = self._log.reader()
            check_take_over(self._reader, state, partition, self._bounds[partition])
        except LogDivergedError as error:
            self._pause(partition, error.code, str(error))
        except UnavailableError as error:
            self._store.reset()
            self._shared.failed(partition, error)
        else:
            self._shared.board.add(PartitionFold(partition, epoch=epoch, state=state))

    def _is_same_log(self, held: Iterable[int]) -> bool:
        """Whether the log is the one that this process began with; every partition pauses where it is not."""
        log_id = self._log.describe().log_id
        if self._log_id is None:
            self._log_id = log_id
        if log_id == self._log_id:
            return True
        for partition in held:
            self._shared.board.remove(partition)
            detail = f"the log was made anew: its id was {self._log_id} and is now {log_id}"
            self._pause(partition, "log-diverged", detail)
        return False

    def _pause(self, partition: int, reason: str, detail: str) -> None:
        self._shared.paused(partition, reason, detail, retry_s=_PAUSE_RETRY_S)

    def _settle_troubles(self, recorded: frozenset[int]) -> None:
        """Records pauses that began, removes the record of those that ended."""
        works = self._shared.board.works()
        for partition, trouble in list(self._shared.troubles.items()):
            if trouble.paused is not None:
                reason, _, detail = trouble.paused.partition(": ")
                self._claims.pause(partition, reason, detail)
        for partition, work in works.items():
            bounds = self._bounds.get(partition)
            caught_up = bounds is not None and work.fold.offset_next >= bounds.stable_end
            if work.fold.offset_next > work.started_at or caught_up:
                self._shared.troubles.pop(partition, None)
                if partition in recorded:
                    self._claims.resume(partition)
                    _log.info("partition resumed", partition=partition)

    def _trim(self, partitions: list[int]) -> None:
        """Some old mutation ids of one partition a turn; the same partition again while there are more."""
        if partitions and not self._claims.trim_ids(partitions[self._trim_turn % len(partitions)]):
            self._trim_turn += 1

    def _report(self, keep: dict[int, int]) -> None:
        works = self._shared.board.works()
        views = {}
        for partition, epoch in keep.items():
            work, trouble = works.get(partition), self._shared.troubles.get(partition)
            waiting = None
            if work is not None and work.chunks and (chunk := work.chunks[0]).steps:
                waiting = chunk.steps[0][0].timestamp_ms
            views[partition] = PartitionView(
                partition,
                epoch,
                self._store.state(partition).offset_next if work is None else work.fold.offset_next,
                self._bounds.get(partition),
                None if trouble is None or trouble.paused is None else trouble.paused.partition(": ")[0],
                waiting,
            )
        hanging = [partition for partition, bounds in self._bounds.items() if bounds.stable_end < bounds.end]
        self._shared.telemetry.observed(
            views,
            open_transactions=tuple(self._log.open_transactions(hanging)) if hanging else (),
            notification_queue=self._claims.notification_queue_usage(),
        )

    def _leave(self) -> None:
        try:
            for partition in self._shared.board.works():
                self._shared.board.remove(partition, wait_s=_STOP_WAIT_S)
            self._claims.leave()
        except KvfoldError as error:
            _log.warning("claims left to expire", error=str(error))
        finally:
            self._claims.close()
            self._store.close()
            if self._reader is not None:
                self._reader.close()


class _Fetch:
    """The fetch loop: one reader for all partitions held."""

    def __init__(
        self, reader: LogReader, shared: _Shared, settings: ProjectorSettings, partition_count: int
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
                self._shared.paused(partition, error.code, str(error), retry_s=_PAUSE_RETRY_S)
                self._shared.board.discard(work)


class _Fold:
    """A fold loop: one store connection, one partition at a time."""

    def __init__(self, name: str, store: PostgresStore, shared: _Shared) -> None:
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
        self._shared.paused(work.partition, reason, detail, retry_s=_PAUSE_RETRY_S)


def _labels(batch: Batch) -> list[tuple[str, str, str]]:
    labels = []
    for row in batch.decisions:
        assert isinstance(row, DecisionRow)
        family = row.type.split(".")[1] if row.type is not None and row.type.count(".") == 3 else "unknown"
        known = family if family in ("capsule", "deployment", "orchestration", "system") else "unknown"
        labels.append((known, row.status, row.code or ""))
    return labels
