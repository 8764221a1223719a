"""Asks an ASGI app directly, with the raw path as it stands: no client in between that would rewrite it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from starlette.types import Message

from kvfold.http.app import App

__all__ = ["Answered", "AsgiClient"]

T = TypeVar("T")
_WAIT_S = 60.0


@dataclass(frozen=True)
class Answered:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem document."""
        assert self.headers["content-type"] == "application/problem+json"
        document = self.json
        assert document["status"] == self.status
        return str(document["code"])


class AsgiClient:
    """An app that runs in an event loop of its own, lifespan included; requests come from the test's thread."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()

    def __enter__(self) -> Self:
        self._thread.start()
        self._lifespan = asyncio.run_coroutine_threadsafe(
            self._app({"type": "lifespan"}, self._to_app.get, self._from_app.put), self._loop
        )
        self._step("lifespan.startup")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._step("lifespan.shutdown")
        self._lifespan.result(_WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the app's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    def get(self, target: str | bytes, *headers: tuple[str, str]) -> Answered:
        """GET of a target, `path?query`, as it would stand in the request line."""
        return self.request("GET", target, headers)

    def request(
        self,
        method: str,
        target: str | bytes,
        headers: Sequence[tuple[str, str]] = (),
        chunks: Sequence[bytes] = (b"",),
    ) -> Answered:
        """Any request; the body comes in the chunks given."""
        return self.run(self.ask(method, target, headers, chunks))

    async def ask(
        self,
        method: str,
        target: str | bytes,
        headers: Sequence[tuple[str, str]] = (),
        chunks: Sequence[bytes] = (b"",),
    ) -> Answered:
        """As `request`, for code that runs in the app's loop already."""
        raw = target.encode() if isinstance(target, str) else target
        path, _, query = raw.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        messages: list[Message] = [
            {"type": "http.request", "body": chunk, "more_body": index + 1 < len(chunks)}
            for index, chunk in enumerate(chunks)
        ]
        sent: list[Message] = []

        async def receive() -> Message:
            if messages:
                return messages.pop(0)
            if chunks:  # all of the body came: the client stays until the answer is over
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        start = sent[0]
        pairs = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return Answered(start["status"], pairs, body)

    def _step(self, kind: str) -> None:
        async def step() -> Message:
            await self._to_app.put({"type": kind})
            return await self._from_app.get()

        assert self.run(step())["type"] == f"{kind}.complete"
