"""The process `kvfold worker`, and the worker within `kvfold dev --app`: an application's code, and an orderly end."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from kvfold.deploy.environment import owner_name, postgres_dsn, when_available
from kvfold.deploy.stopping import StopRequest
from kvfold.deploy.worker_telemetry import worker_telemetry
from kvfold.log.open import open_log
from kvfold.log.port import Log
from kvfold.log.settings import Settings
from kvfold.producers.client import Client
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.worker import Worker, WorkerSettings
from kvfold.schemas.errors import ConfigurationError

__all__ = ["load_registry", "run_worker", "running_worker"]

_log = structlog.get_logger(__name__)


def load_registry(app: str) -> Registry:
    """The registry that `module:attribute` names; modules in the working directory are found, too.

    Raises:
        ConfigurationError: there is no such module, no such attribute, or it is no `Registry`.
    """
    module, separator, attribute = app.partition(":")
    if not separator or not module or not attribute:
        raise ConfigurationError(
            f"--app is {app!r}: accepted is MODULE:REGISTRY, such as shop.orders:registry"
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"--app is {app!r}: {error}") from error
    except AttributeError as error:
        raise ConfigurationError(
            f"--app is {app!r}: the module {module} has no attribute {attribute}"
        ) from error
    if not isinstance(found, Registry):
        raise ConfigurationError(f"--app is {app!r}: it is a {type(found).__name__}, and no Registry")
    return found


def run_worker(registry: Registry, settings: Settings, stop: StopRequest, *, activities_max: int) -> None:
    """Works until the stop is asked for; waits for the log at the start.

    Raises:
        ConfigurationError: KVFOLD_POSTGRES is missing, or the log is misconfigured.
    """
    dsn = postgres_dsn(settings)
    log = when_available(lambda: open_log(settings, dsn), stop, what="log")
    if log is None:
        return
    work = WorkerSettings(owner_name(settings), activities_max=activities_max)
    with running_worker(registry, log, dsn, settings, work):
        stop.wait()


@contextmanager
def running_worker(
    registry: Registry, log: Log, dsn: str, settings: Settings, work: WorkerSettings
) -> Iterator[None]:
    """A worker of this process, inside the `with`; at its end it finishes what is under way. The log is closed then.

    Raises:
        ConfigurationError: as `worker_telemetry`.
    """
    with (
        Client(log, dsn, source=f"/worker/{work.name}") as client,
        worker_telemetry(settings, log) as telemetry,
    ):
        worker = Worker(
            registry,
            client.producer,
            client.orchestration(),
            dsn,
            work,
            telemetry.observer,
            telemetry.traces,
        )
        worker.start()
        try:
            yield
        finally:
            worker.stop()
