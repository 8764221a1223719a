"""The control loop: claims, take-overs, releases, pauses, lag. It alone adds partitions to the board."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

import structlog

from kvfold.log.port import Bounds, Log, LogReader
from kvfold.projector.batch import FormatAheadError, check_level
from kvfold.projector.ownership import Claims
from kvfold.projector.partition import PartitionFold, check_take_over
from kvfold.projector.postgres_store import PostgresStore
from kvfold.projector.supervision import ProjectorSettings, Shared
from kvfold.projector.telemetry import PartitionView
from kvfold.schemas.errors import KvfoldError, LogDivergedError, UnavailableError

__all__ = ["STOP_WAIT_S", "Control"]

_log = structlog.get_logger(__name__)
STOP_WAIT_S: Final = 10.0
"""How long a stop waits for a batch under way."""


class Control:
    """The control loop. It alone adds partitions to the board."""

    def __init__(
        self, log: Log, claims: Claims, store: PostgresStore, shared: Shared, settings: ProjectorSettings
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
            check_level(state)
            if self._reader is None:
                self._reader = self._log.reader()
            check_take_over(self._reader, state, partition, self._bounds[partition])
        except LogDivergedError as error:
            self._shared.paused(partition, error.code, str(error))
        except FormatAheadError as error:
            self._shared.paused(partition, "format-level-ahead", str(error))
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
            self._shared.paused(partition, "log-diverged", detail)
        return False

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
        """Some old mutation ids and some of the past of one partition a turn; the same again while there are more."""
        if not partitions:
            return
        partition = partitions[self._trim_turn % len(partitions)]
        if not (self._claims.trim_ids(partition) | self._claims.trim_past(partition)):
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
                self._shared.board.remove(partition, wait_s=STOP_WAIT_S)
            self._claims.leave()
        except KvfoldError as error:
            _log.warning("claims left to expire", error=str(error))
        finally:
            self._claims.close()
            self._store.close()
            if self._reader is not None:
                self._reader.close()
