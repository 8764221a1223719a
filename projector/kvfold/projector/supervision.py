"""What the projector's loops share besides the board: settings, troubles, and the wish to stop."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Event

import structlog

from kvfold.projector.board import Board
from kvfold.projector.telemetry import GenerationTelemetry
from kvfold.schemas.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX

__all__ = ["PAUSE_RETRY_S", "ProjectorSettings", "Shared", "Trouble", "shared_by_loops"]

_log = structlog.get_logger(__name__)
PAUSE_RETRY_S = 5.0
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
class Trouble:
    """Why a partition is off the board: when to try again, and the reason of a pause."""

    retry_at: float
    failures: int = 0
    paused: str | None = None


@dataclass(slots=True)
class Shared:
    """What the loops share besides the board. Troubles are written by fold threads and read by control: single
    assignments of whole values, which Python makes atomic.
    """

    board: Board
    telemetry: GenerationTelemetry
    stopping: Event = field(default_factory=Event)
    wake: Event = field(default_factory=Event)
    troubles: dict[int, Trouble] = field(default_factory=dict)

    def failed(self, partition: int, error: Exception) -> None:
        """A fault of the infrastructure: try again, later each time."""
        failures = (self.troubles.get(partition) or Trouble(0)).failures + 1
        delay = min(5.0, 0.05 * 2**failures)
        self.troubles[partition] = Trouble(time.monotonic() + delay, failures)
        self.telemetry.failed("infrastructure")
        _log.warning("partition set back", partition=partition, failures=failures, error=str(error))
        self.wake.set()

    def paused(self, partition: int, reason: str, detail: str) -> None:
        """A fault that an operator has to mend."""
        self.troubles[partition] = Trouble(time.monotonic() + PAUSE_RETRY_S, paused=f"{reason}: {detail}")
        self.telemetry.failed(reason)
        _log.error("partition paused", partition=partition, reason=reason, detail=detail)
        self.wake.set()


def shared_by_loops(settings: ProjectorSettings, telemetry: GenerationTelemetry) -> Shared:
    """An empty board, no troubles."""
    board = Board(queue_bytes_max=settings.queue_bytes_max, queue_records_max=settings.queue_records_max)
    return Shared(board, telemetry)
