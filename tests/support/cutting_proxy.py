"""A TCP proxy in front of a server's Unix socket that cuts a connection at the moment of a COMMIT's answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

__all__ = ["CuttingProxy"]

_CHUNK: Final = 65_536


class CuttingProxy:
    """Passes everything on, both ways. Once armed, the next connection whose COMMIT is answered is cut instead."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._armed = threading.Event()
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self) -> None:
        """The next COMMIT's answer is lost."""
        self._armed.set()

    @property
    def is_armed(self) -> bool:
        """True until a COMMIT came."""
        return self._armed.is_set()

    def close(self) -> None:
        """Takes no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            for run, source, sink in ((self._up, client, server), (self._down, server, client)):
                threading.Thread(target=run, args=(source, sink), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        while data := _receive(client):
            try:
                server.sendall(data)
            except OSError:
                break
        _shut(server)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        while data := _receive(server):
            # The tag of a completed COMMIT: it is carried out, and the client never hears of it.
            if b"COMMIT\x00" in data and self._armed.is_set():
                self._armed.clear()
                self.cuts += 1
                break
            try:
                client.sendall(data)
            except OSError:
                break
        _shut(client)
        _shut(server)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(_CHUNK)
    except OSError:
        return b""


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
