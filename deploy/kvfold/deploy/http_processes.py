"""The processes `kvfold gateway` and `kvfold query-api`: an app on a socket, and an orderly end."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Final

from kvfold.deploy.environment import postgres_dsn, when_available
from kvfold.deploy.http_server import HttpServer, bound_socket
from kvfold.deploy.secret_keys import keyring
from kvfold.deploy.serving import check_binding, log_end, serving_app
from kvfold.deploy.stopping import StopRequest
from kvfold.deploy.volatile_tier import redis_tier
from kvfold.http.app import App
from kvfold.log.open import open_log
from kvfold.log.settings import Settings

__all__ = ["GATEWAY_PORT", "QUERY_API_PORT", "run_gateway", "run_query_api"]

GATEWAY_PORT: Final = 8081
QUERY_API_PORT: Final = 8080


def run_gateway(settings: Settings, stop: StopRequest) -> None:
    """Serves writes and reads until the stop is asked for; waits for the log and Postgres at the start.

    Raises:
        ConfigurationError: KVFOLD_POSTGRES is missing, REDIS_URL or a key is none, the port is taken, or the log is
            misconfigured.
        LogDivergedError: the database was folded from another log: what is written would never be seen.
    """
    dsn = postgres_dsn(settings)
    secrets = keyring(settings)
    with ExitStack() as parts:
        listener = _listener(settings, GATEWAY_PORT, parts)
        volatile = redis_tier(settings)
        if volatile is not None:
            parts.callback(volatile.close)
        log = when_available(lambda: open_log(settings, dsn), stop, what="log")
        if log is None:
            return
        parts.callback(log.close)
        if not when_available(lambda: check_binding(dsn, log), stop, what="postgres"):
            return
        ready_from = when_available(lambda: log_end(log), stop, what="log")
        if ready_from is not None:
            app = serving_app(dsn, log, ready_from=ready_from, volatile=volatile, secrets=secrets)
            _serve(app, listener, parts, stop)


def run_query_api(settings: Settings, stop: StopRequest) -> None:
    """Serves reads until the stop is asked for; while Postgres is away they answer 503.

    Raises:
        ConfigurationError: KVFOLD_POSTGRES is missing, or the port is taken.
    """
    dsn = postgres_dsn(settings)
    with ExitStack() as parts:
        listener = _listener(settings, QUERY_API_PORT, parts)
        _serve(serving_app(dsn, None), listener, parts, stop)


def _listener(settings: Settings, port: int, parts: ExitStack) -> socket.socket:
    listener = bound_socket(settings.host, port if settings.port is None else settings.port)
    parts.callback(listener.close)
    return listener


def _serve(app: App, listener: socket.socket, parts: ExitStack, stop: StopRequest) -> None:
    server = HttpServer(app, listener)
    parts.callback(server.stop)
    server.start()
    while not stop.wait(1.0):
        if not server.is_serving():
            raise RuntimeError("the HTTP server ended by itself")
