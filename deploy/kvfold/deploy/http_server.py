"""An HTTP server in a thread of its own: uvicorn with httptools, started and stopped in order.

The address is taken when the process begins, so that a taken port is said at once; nobody is connected before `start`.
"""

from __future__ import annotations

import socket
import time
from threading import Thread
from typing import Final

import structlog

from kvfold.deploy.environment import PortTakenError
from kvfold.http.app import App
from kvfold.http.server import Server

__all__ = ["HttpServer", "bound_socket"]

_log = structlog.get_logger(__name__)
_BACKLOG: Final = 2048
_START_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.01
_UNACKNOWLEDGED_MS: Final = 60_000


def bound_socket(host: str, port: int) -> socket.socket:
    """Takes an address; port 0 takes any free one. Nobody can connect until the server starts.

    Raises:
        PortTakenError: another process listens there, or the address is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, since asyncio switches Nagle's algorithm off only then: else each answer may wait 40 ms.
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Without it a restart would wait for the connections of the process before.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A client that takes nothing, and whose stream was ended, would keep its connection for ever.
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise _taken(host, port, error) from error
    return taken


class HttpServer:
    """Serves one ASGI app on a socket from `bound_socket`, which it closes at the end."""

    def __init__(self, app: App, listener: socket.socket) -> None:
        self._listener = listener
        self.host, self.port = listener.getsockname()[:2]
        self._server = Server(app)
        self._thread = Thread(target=self._run, name="http", daemon=True)
        self._failed: BaseException | None = None

    @property
    def url(self) -> str:
        """The base URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Listens, and returns when the app has started.

        Raises:
            PortTakenError: another process began to listen there in between.
            RuntimeError: the app did not start.
        """
        try:
            self._listener.listen(_BACKLOG)
        except OSError as error:
            raise _taken(self.host, self.port, error) from error
        self._thread.start()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the HTTP server did not start") from self._failed
            time.sleep(_POLL_S)
        _log.info("server started", host=self.host, port=self.port)

    def stop(self) -> None:
        """Takes no more requests, finishes those under way (some seconds at most), and returns when all is closed.

        Streams end at once.
        """
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
            _log.info("server stopped", host=self.host, port=self.port)
        self._listener.close()

    def is_serving(self) -> bool:
        """False once the server has ended, for whatever reason."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except BaseException as error:
            self._failed = error


def _taken(host: str, port: int, error: OSError) -> PortTakenError:
    reason = error.strerror or str(error)
    return PortTakenError(
        f"cannot listen on {host}:{port} ({reason}): choose another port with KVFOLD_PORT, or stop what listens there"
    )
