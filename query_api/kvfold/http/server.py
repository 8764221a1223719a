"""How kvfold runs uvicorn, wherever it serves HTTP."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn

from kvfold.http.app import App

__all__ = ["Server"]

_STOP_TIMEOUT_S: Final = 10
"""How long requests under way may take at a stop; longer than a write waits for its outcome."""


class Server(uvicorn.Server):
    """Serves an app on a socket of the caller's. At a stop streams end at once, other requests are finished."""

    def __init__(self, app: App) -> None:
        super().__init__(_config(app))
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tells the app first: the server waits for responses under way, and a stream has no end of its own."""
        self._app.begin_stop()
        await super().shutdown(sockets)


def _config(app: App) -> uvicorn.Config:
    """httptools, no access log, and nothing believed that a client says of other hosts or schemes."""
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
    )
