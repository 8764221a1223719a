"""The threads that fold one generation, in one process.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import Any

import psycopg

from kvfold.log.port import Log
from kvfold.projector.control import STOP_WAIT_S, Control
from kvfold.projector.loops import CommitCheck, Fetch, Fold
from kvfold.projector.ownership import Claims, fold_session_name
from kvfold.projector.pace import Pace
from kvfold.projector.postgres_store import PostgresStore, connect_for_folding
from kvfold.projector.supervision import ProjectorSettings, shared_by_loops
from kvfold.projector.telemetry import GenerationTelemetry

__all__ = ["GenerationRun", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a replay adds: offsets to stop before (by partition, all of them), a pace, a check of each fold thread."""

    until: Mapping[int, int]
    pace: Pace | None = None
    new_check: Callable[[], CommitCheck] | None = None


class GenerationRun:
    """Folds one generation until it is stopped. Any number of them, in any processes, share its partitions."""

    def __init__(
        self,
        log: Log,
        dsn: str,
        settings: ProjectorSettings,
        telemetry: GenerationTelemetry,
        *,
        partition_count: int,
        limits: Limits | None = None,
    ) -> None:
        self.generation = telemetry.generation
        self._dsn = dsn
        self._settings = settings
        self._telemetry = telemetry
        self._shared = shared = shared_by_loops(settings, telemetry)
        claims = Claims(
            self._connect_for_control,
            generation=self.generation,
            owner=settings.owner,
            claim_ms=settings.claim_ms,
            partition_count=partition_count,
        )
        until, pace = (None, None) if limits is None else (limits.until, limits.pace)
        new_check = None if limits is None else limits.new_check
        loops: list[tuple[str, Callable[[], None]]] = [
            ("control", Control(log, claims, self._new_store(), shared, settings).run),
            ("fetch", Fetch(log.reader(), shared, settings, partition_count, until=until, pace=pace).run),
        ]
        for number in range(settings.fold_threads):
            name, check = f"fold-{number}", None if new_check is None else new_check()
            loops.append((name, Fold(name, self._new_store(), shared, check).run))
        self._threads = [
            Thread(target=run, name=f"projector-g{self.generation}-{name}", daemon=True)
            for name, run in loops
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def paused(self) -> dict[int, tuple[str, str]]:
        """The partitions that stand still here, with reason and detail, as the fold threads last said."""
        said = {p: trouble.paused for p, trouble in list(self._shared.troubles.items())}
        parts = {p: text.partition(": ") for p, text in said.items() if text is not None}
        return {p: (reason, detail) for p, (reason, _, detail) in parts.items()}

    def request_stop(self) -> None:
        """Lets the threads end: the batches under way are finished, and all claims are given up."""
        self._shared.stopping.set()
        self._shared.wake.set()
        self._shared.board.stop()

    def stop(self) -> None:
        """Ends the threads; waits for them some seconds."""
        self.request_stop()
        for thread in self._threads:
            thread.join(STOP_WAIT_S)
        self._telemetry.ended()

    def _new_store(self) -> PostgresStore:
        return PostgresStore(self._connect, self.generation)

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
