"""HTTP requests over kept connections, by the standard library alone.

A path goes out as it stands, and no redirect is followed.

Time-outs bound every step. Whether a request may have reached the server is told apart, since only then a repeat needs care.
"""

from __future__ import annotations

import http.client
import select
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

from kvfold.schemas.errors import ConfigurationError

__all__ = ["Answer", "HttpConnections", "NoAnswerError"]

_CONNECT_TIMEOUT_S: Final = 3.0
_ANSWER_TIMEOUT_S: Final = 10.0
# Servers close an idle connection after five seconds or more; one that is younger is rarely closed in the very moment.
_IDLE_S_MAX: Final = 4.0
_IDLE_MAX: Final = 32
_BODY_BYTES_MAX: Final = 8 * 1024 * 1024


class NoAnswerError(Exception):
    """Nobody answered, or not completely. `may_have_arrived`: the server may have done what it was asked."""

    def __init__(self, reason: str, *, may_have_arrived: bool) -> None:
        super().__init__(reason)
        self.may_have_arrived = may_have_arrived


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpConnections:
    """Requests to one server. Safe for several threads: each request has a connection to itself."""

    def __init__(self, url: str, *, answer_timeout_s: float = _ANSWER_TIMEOUT_S) -> None:
        """Connects when it is asked. `url` may have a path, which begins every request's.

        Raises:
            ConfigurationError: it is no URL of a server. The text names no variable: the caller knows it.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if (
            host is None
            or parts.scheme not in ("http", "https")
            or parts.query
            or parts.fragment
            or parts.username
        ):
            raise ConfigurationError("accepted is a URL such as http://host:8081 or https://host/path")
        self._host, self._port = host, port
        self._base = parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._answer_timeout_s = answer_timeout_s
        self._idle = deque[tuple[http.client.HTTPConnection, float]]()
        self._lock = Lock()

    def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """Sends a request and gives the answer, whatever its status. `target` is the raw path with its query.

        Raises:
            NoAnswerError: there was none.
        """
        connection = self._connected()
        try:
            connection.request(method, self._base + target, body=body, headers=dict(headers))
            response = connection.getresponse()
            content = response.read(_BODY_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswerError(_reason(error), may_have_arrived=True) from error
        if response.isclosed() and not response.will_close:
            self._keep(connection)
        else:
            connection.close()
        if len(content) > _BODY_BYTES_MAX or response.length:
            raise NoAnswerError("the answer is too long, or cut off", may_have_arrived=True)
        return Answer(response.status, {name.lower(): text for name, text in response.getheaders()}, content)

    def close(self) -> None:
        """Closes what is idle."""
        with self._lock:
            while self._idle:
                self._idle.popleft()[0].close()

    def _connected(self) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self._connect()
            connection, idle_since = kept
            if monotonic() - idle_since < _IDLE_S_MAX and not _has_ended(connection):
                return connection
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        connection = (
            http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT_TIMEOUT_S)
            if self._tls is None
            else http.client.HTTPSConnection(
                self._host, self._port, timeout=_CONNECT_TIMEOUT_S, context=self._tls
            )
        )
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise NoAnswerError(_reason(error), may_have_arrived=False) from error
        connection.sock.settimeout(self._answer_timeout_s)
        return connection

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _IDLE_MAX:
                self._idle.append((connection, monotonic()))
                return
        connection.close()


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed an idle connection: only then there is something to read."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
