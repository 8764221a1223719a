"""`kvfold dev`: the whole of kvfold in one process, for one machine.

```
embedded Postgres (KVFOLD_DATA)  unless KVFOLD_POSTGRES names a server
embedded log, in that Postgres   unless KVFOLD_KAFKA names brokers; there the topic is made if it is absent
projector                        threads
volatile tier                    in memory, unless REDIS_URL names a Redis
gateway and query API            one HTTP server, on KVFOLD_HOST:KVFOLD_PORT
worker                           threads, where an application is named
```

Parts start in this order and stop in the opposite one, whatever ends the process. An embedded Postgres that dies is
started again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import structlog

from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from kvfold.deploy.environment import owner_name, postgres_dsn, when_available
from kvfold.deploy.http_server import HttpServer, bound_socket
from kvfold.deploy.operating import dsn_file
from kvfold.deploy.projector_process import AnnouncingTelemetry, start_projector
from kvfold.deploy.secret_keys import keyring
from kvfold.deploy.serving import log_end, serving_app
from kvfold.deploy.stopping import StopRequest
from kvfold.deploy.volatile_tier import memory_or_redis_tier
from kvfold.deploy.worker_process import running_worker
from kvfold.log.kafka import create_topic
from kvfold.log.open import open_log
from kvfold.log.port import Log
from kvfold.log.settings import Settings
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.worker import WorkerSettings

__all__ = ["PORT", "run_dev"]

_log = structlog.get_logger(__name__)
PORT: Final = 8080
_WATCH_S: Final = 1.0


def run_dev(
    settings: Settings, stop: StopRequest, *, say: Callable[[str], None], registry: Registry | None = None
) -> None:
    """Runs until the stop is asked for; `say` is given lines for people once everything is up.

    With a `registry`, its orchestrations and activities run here, too; one under way is finished before anything stops.

    Raises:
        ConfigurationError: a port is taken, REDIS_URL or a key is none, or the log is misconfigured.
        EmbeddedPostgresError: the embedded server does not start, or another process uses the folder.
        LogDivergedError: the log is not the one that the database was folded from.
    """
    secrets = keyring(settings)
    with ExitStack() as parts:
        # First, so that a second start on this port says so at once, and touches nothing.
        listener = bound_socket(settings.host, PORT if settings.port is None else settings.port)
        parts.callback(listener.close)
        volatile = memory_or_redis_tier(settings)
        parts.callback(volatile.close)
        postgres = _postgres(settings, parts)
        dsn = postgres_dsn(settings) if postgres is None else postgres.dsn
        if stop.is_set():
            return
        log = when_available(lambda: _opened_log(settings, dsn), stop, what="log")
        if log is None:
            return
        parts.callback(log.close)
        telemetry = AnnouncingTelemetry()
        projector = when_available(
            lambda: start_projector(log, dsn, settings, telemetry), stop, what="postgres"
        )
        if projector is None:
            return
        parts.callback(projector.stop)
        ready_from = when_available(lambda: log_end(log), stop, what="log")
        if ready_from is None:
            return
        app = serving_app(dsn, log, ready_from=ready_from, volatile=volatile, secrets=secrets)
        server = HttpServer(app, listener)
        parts.callback(server.stop)
        server.start()
        if registry is not None:
            own_log = when_available(lambda: open_log(settings, dsn), stop, what="log")
            if own_log is None:
                return
            work = WorkerSettings(owner_name(settings))
            parts.enter_context(running_worker(registry, own_log, dsn, settings, work))
        for line in _welcome(settings, server.url, postgres, registry):
            say(line)
        _watch(server, postgres, stop)
        say("kvfold stops …")
    say("kvfold has stopped; what was written is kept.")


def _postgres(settings: Settings, parts: ExitStack) -> EmbeddedPostgres | None:
    """The embedded server, started; None where another one is named."""
    if settings.postgres is not None:
        return None
    postgres = EmbeddedPostgres.start(settings.data)
    parts.callback(postgres.stop)
    _log.info("embedded postgres started", data=str(settings.data), pid=postgres.pid)
    _leave_dsn(dsn_file(settings.data), postgres.dsn)
    return postgres


def _leave_dsn(file: Path, dsn: str) -> None:
    """Leaves the address where services on this machine find it; it holds the password, so only we may read it."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(dsn, encoding="utf-8")


def _opened_log(settings: Settings, dsn: str) -> Log:
    if settings.kafka is not None and create_topic(settings.kafka_settings()):
        _log.info("topic created", topic=settings.topic, partitions=settings.partitions)
    return open_log(settings, dsn)


def _watch(server: HttpServer, postgres: EmbeddedPostgres | None, stop: StopRequest) -> None:
    """Waits for the stop; starts the embedded server again where it died."""
    while not stop.wait(_WATCH_S):
        if not server.is_serving():
            raise RuntimeError("the HTTP server ended by itself")
        if postgres is not None and not postgres.is_running():
            _log.error("embedded postgres died", log_file=str(postgres.log_file))
            postgres.restart()
            _log.info("embedded postgres started", data=str(postgres.log_file.parent), pid=postgres.pid)


def _welcome(
    settings: Settings, url: str, postgres: EmbeddedPostgres | None, registry: Registry | None
) -> list[str]:
    """What runs where, and the first thing to try."""
    database = (
        "of KVFOLD_POSTGRES"
        if postgres is None
        else f"embedded, in {settings.data}; KVFOLD_POSTGRES for services is in {dsn_file(settings.data)}"
    )
    log = (
        "embedded, in that Postgres"
        if settings.kafka is None
        else f"topic {settings.topic} at {settings.kafka}"
    )
    volatile = (
        "in memory; REDIS_URL names no server" if settings.redis_url is None else "the Redis of REDIS_URL"
    )
    secrets = (
        "refused; KV_ENCRYPTION_KEY names no key"
        if settings.encryption_key is None
        else "encrypted with KV_ENCRYPTION_KEY"
    )
    lines = [
        "kvfold is running.",
        f"  HTTP      {url}  (reads, writes, /docs)",
        f"  log       {log}",
        f"  Postgres  {database}",
        f"  volatile  {volatile}",
        f"  secrets   {secrets}",
    ]
    tries = [
        f"  curl -X PUT --data-binary 'hello' {url}/deployments/demo/kv/user/greeting",
        f"  curl {url}/deployments/demo/kv/user/greeting",
    ]
    if registry is not None:
        names = sorted(registry.orchestrations)
        lines.append(f"  worker    runs {', '.join(names) or 'activities only'}")
        tries += [
            f"  KVFOLD_URL={url} kvfold instances start my-{name} {name} --input null" for name in names[:1]
        ]
    return [*lines, "Try:", *tries, "Ctrl-C stops it; the next start goes on with what was written."]
