"""An HTTP server that answers by a script: to see what a client does with each answer, and with none."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Self

__all__ = ["LOST", "Asked", "Reply", "ScriptedServer", "unused_address"]


@dataclass(frozen=True)
class Asked:
    """A request as it came in; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer; `cut` sends the head, half of the body, and closes."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False


LOST = Reply(0)
"""No answer: the connection is closed when the request has come in whole."""


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing it waits for them


class ScriptedServer:
    """Answers each request as `reply` says, and keeps what it was asked."""

    def __init__(self, reply: Callable[[Asked], Reply]) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                outer.connections += 1

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): text for name, text in self.headers.items()}
                asked = Asked(self.command, self.path, headers, body)
                outer.asked.append(asked)
                said = reply(asked)
                if said is LOST:
                    self.close_connection = True
                    return
                self.send_response(said.status)
                for name, text in said.headers.items():
                    self.send_header(name, text)
                if said.status != 204:
                    self.send_header("Content-Length", str(len(said.body)))
                self.end_headers()
                self.wfile.write(said.body[: len(said.body) // 2] if said.cut else said.body)
                if said.cut:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        # Waits for the connections to be closed, which the clients have to do.
        self._server.server_close()


def unused_address() -> str:
    """The URL of a port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
