"""The projector: folds every live generation of a database, the serving one and those beside it.

Each generation has its own threads, claims and offsets (`GenerationRun`), so that one that is being made never holds
the serving one up by more than its share of the machine. A thread looks at the catalogue every turn, takes up
generations that appear and lets go of those that are dropped, or that this release does not know the tables of.
"""

from __future__ import annotations

import gc
from threading import Event, Thread
from typing import Any

import psycopg
import structlog

from kvfold.log.port import Log
from kvfold.projector.control import STOP_WAIT_S
from kvfold.projector.generation_run import GenerationRun
from kvfold.projector.generations import (
    FOLDED_STATES,
    ensure_serving_generation,
    knows_schema,
    list_generations,
    serving_generation,
)
from kvfold.projector.postgres_store import translated
from kvfold.projector.supervision import ProjectorSettings
from kvfold.projector.telemetry import Telemetry, VerifiedView
from kvfold.schemas.errors import KvfoldError

__all__ = ["Projector", "ProjectorSettings", "tune_collector"]

_log = structlog.get_logger(__name__)


def tune_collector() -> None:
    """A batch is some hundred thousand small objects that all die together: collecting after every 700 of them, as Python
    does by default, costs a third of the projector's time.
    """
    gc.set_threshold(200_000, 50, 100)


class Projector:
    """Folds a log into Postgres until it is stopped. Any number of them share the partitions."""

    def __init__(
        self, log: Log, dsn: str, settings: ProjectorSettings, telemetry: Telemetry | None = None
    ) -> None:
        self._log = log
        self._dsn = dsn
        self._settings = settings
        self.telemetry = telemetry or Telemetry()
        self._partition_count = 0
        self._runs: dict[int, GenerationRun] = {}
        self._stopping = Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = Thread(target=self._watch, name="projector-generations", daemon=True)

    def start(self) -> None:
        """Sets the database up where it is empty, binds it to the log, and starts the threads.

        Raises:
            LogMisconfiguredError, LogDivergedError: the log is not the one that was folded.
            UnavailableError: log or Postgres is away.
        """
        tune_collector()
        description = self._log.describe()
        self._partition_count = description.partition_count
        try:
            with translated():
                generation = ensure_serving_generation(self._connected(), description)
                self._turn()
        except BaseException:
            self._end()
            raise
        self._thread.start()
        _log.info(
            "projector started",
            owner=self._settings.owner,
            generation=generation,
            partitions=self._partition_count,
        )

    def stop(self) -> None:
        """Finishes the batches under way, gives all claims up, and ends the threads. Waits for them some seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WAIT_S)
        self._end()
        _log.info("projector stopped", owner=self._settings.owner)

    def _end(self) -> None:
        for run in self._runs.values():
            run.request_stop()
        for run in self._runs.values():
            run.stop()
        self._runs.clear()
        if self._connection is not None:
            self._connection.close()

    def _watch(self) -> None:
        while not self._stopping.wait(self._settings.turn_ms / 1000):
            self.telemetry.beat("generations")
            try:
                with translated():
                    self._turn()
            except KvfoldError as error:
                self.telemetry.failed(error.code)
                _log.warning("generations not looked at", error=str(error))
            except Exception:
                self.telemetry.failed("internal-error")
                _log.exception("turn of generations failed")

    def _turn(self) -> None:
        """Takes up and lets go of generations, as the catalogue has them now."""
        connection = self._connected()
        self.telemetry.serving = serving_generation(connection)
        self.telemetry.verified = _verified(connection)
        wanted = {
            found.id
            for found in list_generations(connection)
            if found.state in FOLDED_STATES and knows_schema(found.schema_version)
        }
        for generation in self._runs.keys() - wanted:
            self._runs.pop(generation).stop()
            _log.info("generation let go", generation=generation)
        for generation in sorted(wanted - self._runs.keys()):
            telemetry = self.telemetry.of(generation)
            run = GenerationRun(
                self._log, self._dsn, self._settings, telemetry, partition_count=self._partition_count
            )
            run.start()
            self._runs[generation] = run
            _log.info("generation taken up", generation=generation)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            name = f"kvfold-generations {self._settings.owner}"[:63]
            timeout = f"-c statement_timeout={self._settings.claim_ms}"
            self._connection = psycopg.connect(
                self._dsn, autocommit=True, connect_timeout=5, application_name=name, options=timeout
            )
        return self._connection


def _verified(connection: psycopg.Connection[Any]) -> tuple[VerifiedView, ...]:
    """The last verification of each generation, whoever ran it: every projector tells it."""
    rows = connection.execute(
        "SELECT generation, extract(epoch FROM finished_at)::float8, difference_count FROM kvfold.verification ORDER BY 1"
    )
    return tuple(VerifiedView(*row) for row in rows)
