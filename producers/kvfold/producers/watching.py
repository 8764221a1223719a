"""Following changes over HTTP: `watch` gives each one once, in order, for as long as it is asked.

```
for event in watch("http://127.0.0.1:8080", scope="d:shop", snapshot=True):
    match event:
        case Put():
            ...
```

A connection that is lost is made again, from the last position that was handed over whole: nothing is left out and nothing
repeats, whatever happened in between. Events of one mutation are handed over only once all of them are there.
Needs nothing but the standard library.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Event as Flag
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

from kvfold.schemas.errors import GoneError, InvalidError, UnavailableError

__all__ = ["Cleared", "Delete", "Put", "SnapshotEnd", "Watch", "WatchEvent", "watch"]

_CONNECT_TIMEOUT_S: Final = 5.0
_SILENCE_TIMEOUT_S: Final = 45.0  # the server shows every 15 seconds that it is there
_RETRY_S: Final = 0.2
_RETRY_S_MAX: Final = 5.0
_LINE_BYTES_MAX: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """What is common to all changes. `time` is RFC 3339, the record's effective time; `data` the event as it was sent."""

    position: str
    scope: str
    actor: str | None
    time: str
    data: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Put(WatchEvent):
    """A key was written.

    `value` is None in secret namespaces, `version` None for orchestrations, `namespace` for all but deployments.
    `in_snapshot`: it is part of what the scope held when the watch began.
    """

    key: str
    namespace: str | None
    version: int | None
    value: bytes | None = field(repr=False)
    in_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Delete(WatchEvent):
    """A key was deleted; `version` is the one that it had, where that is known."""

    key: str
    namespace: str | None
    version: int | None


@dataclass(frozen=True, slots=True)
class Cleared(WatchEvent):
    """Every key that begins with the prefix was removed: all of them for the empty one, a deployment's in all namespaces."""

    prefix: str
    removed: int | None


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """All that the scope held at the position was handed over; changes follow."""

    position: str


class Watch:
    """An iterator over changes, from `watch`. For one thread; `close` may come from any."""

    def __init__(self, url: str, parameters: dict[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidError(f"{url!a} is no http:// or https:// URL", code="malformed-url")
        self._url = url
        self._parts = parts
        self._parameters = parameters
        self._closed = Flag()
        self._connection: HTTPConnection | None = None
        self._position: str | None = None
        self._was_answered = False
        self._retry_s = _RETRY_S
        self._events = self._run()

    @property
    def position(self) -> str | None:
        """The position to resume from, as `after`: everything up to there was handed over. None before the first answer."""
        return self._position

    def close(self) -> None:
        """Ends the iteration, also while it waits."""
        self._closed.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def __iter__(self) -> Iterator[WatchEvent | SnapshotEnd]:
        return self

    def __next__(self) -> WatchEvent | SnapshotEnd:
        """The next change; waits for it.

        Raises:
            GoneError: changes after the position were forgotten by the server's retention.
            UnavailableError: the server did not answer the first time; later on it is asked until it does.
            InvalidError: the server refuses what was asked.
        """
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> Iterator[WatchEvent | SnapshotEnd]:
        while not self._closed.is_set():
            try:
                yield from self._connected()
            except (OSError, HTTPException, UnavailableError) as error:
                if not self._was_answered:
                    raise UnavailableError(f"{self._url}: {error}", code="server-away") from error
            finally:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
            self._closed.wait(self._retry_s)
            self._retry_s = min(self._retry_s * 2, _RETRY_S_MAX)

    def _connected(self) -> Iterator[WatchEvent | SnapshotEnd]:
        """One connection, until it ends."""
        answer = self._ask()
        waiting: list[WatchEvent | SnapshotEnd] = []
        for name, id_, data in _frames(answer):
            if self._closed.is_set():
                return
            self._retry_s = _RETRY_S
            if name == "gone":
                raise GoneError(data["detail"])
            event = _event(name, data, in_snapshot=self._position is None and "snapshot" in self._parameters)
            if event is not None:
                waiting.append(event)
            if id_ is not None or (isinstance(event, Put) and event.in_snapshot):
                # The position moves with the last of them: whoever keeps it in between resumes before all of them.
                yield from waiting[:-1]
                self._position = id_ or self._position
                yield from waiting[-1:]
                waiting.clear()

    def _ask(self) -> HTTPResponse:
        parts = self._parts
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        assert parts.hostname is not None
        connection = kind(parts.hostname, parts.port, timeout=_CONNECT_TIMEOUT_S)
        self._connection = connection
        connection.connect()
        connection.sock.settimeout(_SILENCE_TIMEOUT_S)
        headers = {"Accept": "text/event-stream"}
        if self._position is not None:
            headers["Last-Event-ID"] = self._position
        target = f"{parts.path.rstrip('/')}/v1/watch?{urlencode(self._parameters)}"
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise _refusal(answer, self._url)
        self._was_answered = True
        return answer


def watch(
    url: str,
    *,
    scope: str | None = None,
    family: str | None = None,
    namespace: str | None = None,
    prefix: str = "",
    after: str | None = None,
    snapshot: bool = False,
) -> Watch:
    """Follows the changes of a scope (`d:shop`), of a family, or of everything, at the server under `url`.

    Begins with what comes from now on; with `after`, behind that position (`Watch.position` of an earlier one, or a
    write's) or at the `beginning`; with `snapshot`, for a scope, with what it holds, each entry as a `Put`, and then
    `SnapshotEnd`. A snapshot that is cut off begins anew.

    Example:
        ```
        with watch("http://127.0.0.1:8080", scope="c:alice:capsule:notes", prefix="todo/") as changes:
            for change in changes:
                print(change.position, change)
        ```
    """
    given = {
        "scope": scope,
        "family": family,
        "namespace": namespace,
        "prefix": prefix or None,
        "after": after,
        "snapshot": "true" if snapshot else None,
    }
    return Watch(url, {name: text for name, text in given.items() if text is not None})


def _frames(answer: HTTPResponse) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """The events of a stream: name, id where there is one, data (HTML standard, 9.2.6)."""
    name, id_, data = "message", None, b""
    while line := answer.readline(_LINE_BYTES_MAX):
        field_, _, text = line.rstrip(b"\r\n").partition(b":")
        text = text.removeprefix(b" ")
        if not line.endswith(b"\n"):
            return  # cut off within a line
        if line.strip() == b"":
            if data:
                yield name, id_, json.loads(data)
            name, id_, data = "message", None, b""
        elif field_ == b"event":
            name = text.decode()
        elif field_ == b"data":
            data = text
        elif field_ == b"id":
            id_ = text.decode()


def _event(name: str, data: dict[str, Any], *, in_snapshot: bool) -> WatchEvent | SnapshotEnd | None:
    if name == "snapshot-end":
        return SnapshotEnd(data["position"])
    if name not in ("put", "delete", "cleared"):
        return None  # progress, and what later servers may say
    common = {part: data[part] for part in ("position", "scope", "actor", "time")} | {"data": data}
    if name == "cleared":
        return Cleared(**common, prefix=data["prefix"], removed=data["removed"])
    about = {"key": data["key"], "namespace": data.get("namespace"), "version": data["version"]}
    if name == "delete":
        return Delete(**common, **about)
    value = None if data["value_base64"] is None else base64.b64decode(data["value_base64"])
    return Put(**common, **about, value=value, in_snapshot=in_snapshot)


def _refusal(answer: HTTPResponse, url: str) -> Exception:
    """The error that an answer other than 200 is."""
    try:
        problem = json.loads(answer.read())
    except ValueError:
        problem = {}
    code = str(problem.get("code") or f"http-{answer.status}")
    detail = str(problem.get("detail") or f"{url} answers {answer.status}")
    if answer.status == 410:
        return GoneError(detail)
    if answer.status >= 500:
        return UnavailableError(detail, code=code)
    return InvalidError(detail, code=code)
