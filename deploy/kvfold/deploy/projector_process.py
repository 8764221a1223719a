"""The process `kvfold projector`: a projector, its telemetry, and an orderly end."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from kvfold.deploy.environment import PortTakenError, owner_name, postgres_dsn, when_available
from kvfold.deploy.stopping import StopRequest
from kvfold.log.open import open_log
from kvfold.log.port import Log
from kvfold.log.settings import Settings
from kvfold.projector.run import Projector, ProjectorSettings
from kvfold.projector.telemetry import PartitionView, Telemetry, TelemetryServer

__all__ = ["AnnouncingTelemetry", "projector_settings", "run_projector", "start_projector"]

_log = structlog.get_logger(__name__)


class AnnouncingTelemetry(Telemetry):
    """Says once in the log that the first partitions are held, or that others hold them all for now."""

    _announced = ""

    def observed(
        self,
        partitions: Mapping[int, PartitionView],
        *,
        open_transactions: tuple[tuple[int, int, int], ...],
        notification_queue: float | None,
    ) -> None:
        """The control loop's view, after each of its turns."""
        super().observed(
            partitions, open_transactions=open_transactions, notification_queue=notification_queue
        )
        if partitions and self._announced != "ready":
            self._announced = "ready"
            _log.info("projector ready", partitions=sorted(partitions))
        elif not self._announced:
            self._announced = "standing by"
            _log.info("projector stood by", reason="other projectors hold all partitions")


def projector_settings(settings: Settings) -> ProjectorSettings:
    """How the projector of this process works."""
    return ProjectorSettings(
        owner=owner_name(settings),
        claim_ms=settings.claim_ms,
        # Some renewals must fit into the time that a claim holds.
        turn_ms=min(1_000, settings.claim_ms // 4),
        fold_threads=settings.fold_threads,
    )


def run_projector(settings: Settings, stop: StopRequest) -> None:
    """Folds until the stop is asked for; waits for log and Postgres at the start.

    Raises:
        ConfigurationError: KVFOLD_POSTGRES is missing, the telemetry's port is taken, or the log is misconfigured.
        LogDivergedError: the log is not the one that the database was folded from.
    """
    dsn = postgres_dsn(settings)
    telemetry = AnnouncingTelemetry()
    server = _telemetry_server(telemetry, settings)
    try:
        log = when_available(lambda: open_log(settings, dsn), stop, what="log")
        if log is None:
            return
        try:
            projector = when_available(
                lambda: start_projector(log, dsn, settings, telemetry), stop, what="postgres"
            )
            if projector is not None:
                stop.wait()
                projector.stop()
        finally:
            log.close()
    finally:
        server.close()


def start_projector(log: Log, dsn: str, settings: Settings, telemetry: Telemetry) -> Projector:
    """A projector that has begun; raises as `Projector.start`."""
    projector = Projector(log, dsn, projector_settings(settings), telemetry)
    projector.start()
    return projector


def _telemetry_server(telemetry: Telemetry, settings: Settings) -> TelemetryServer:
    try:
        server = TelemetryServer(telemetry, host=settings.host, port=settings.telemetry_port)
    except OSError as error:
        raise PortTakenError(
            f"cannot listen on {settings.host}:{settings.telemetry_port} ({error.strerror or error}): choose another "
            "with KVFOLD_TELEMETRY_PORT"
        ) from error
    _log.info("telemetry served", host=settings.host, port=server.port)
    return server
