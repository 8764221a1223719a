"""The process `kvfold standalone`: a storage directory behind the deployment routes, and an orderly end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kvfold.deploy.http_server import HttpServer, bound_socket
from kvfold.deploy.standalone_routes import standalone_routes
from kvfold.deploy.stopping import StopRequest
from kvfold.http.app import App
from kvfold.http.openapi import documentation_routes
from kvfold.log.settings import Settings
from kvfold.producers.deployment.standalone import StandaloneStorage
from kvfold.producers.deployment.standalone.storage import FLUSH_DELAY_S

__all__ = ["STANDALONE_PORT", "run_standalone"]

STANDALONE_PORT: Final = 8080
_TITLE: Final = "kvfold standalone"
_VERSION: Final = "1"


def run_standalone(
    settings: Settings, directory: Path | None, stop: StopRequest, *, say: Callable[[str], None]
) -> None:
    """Serves until the stop is asked for; everything is on disk when it returns. `directory`: None = memory alone.

    Raises:
        ConfigurationError: the port is taken, or the directory is used by another process, or cannot be used.
        OSError: the last writes could not be written.
    """
    with ExitStack() as parts:
        listener = bound_socket(settings.host, STANDALONE_PORT if settings.port is None else settings.port)
        parts.callback(listener.close)
        storage = StandaloneStorage(directory)
        parts.callback(storage.close)
        routes = standalone_routes(storage)
        server = HttpServer(
            App([*routes, *documentation_routes(routes, title=_TITLE, version=_VERSION)]), listener
        )
        parts.callback(server.stop)
        server.start()
        for line in _welcome(server.url, directory):
            say(line)
        while not stop.wait(1.0):
            if not server.is_serving():
                raise RuntimeError("the HTTP server ended by itself")
    say(
        "kvfold has stopped; what was written is kept."
        if directory
        else "kvfold has stopped; nothing is kept."
    )


def _welcome(url: str, directory: Path | None) -> list[str]:
    kept = (
        "nowhere: all is in memory, and gone at the end"
        if directory is None
        else f"{directory}, {FLUSH_DELAY_S:g} s after a write; secret and volatile namespaces in memory only"
    )
    return [
        "kvfold standalone is running.",
        f"  HTTP     {url}  (/deployments/…, /docs)",
        f"  kept in  {kept}",
        "Ctrl-C stops it.",
    ]
