"""Requests to an ASGI app byte for byte: no client library rewrites the path, joins headers, or hides a status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

__all__ = ["AsgiAnswer", "request"]


@dataclass(frozen=True, slots=True)
class AsgiAnswer:
    """What an app answered; header names are in lower case."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """A header's value; None where it is absent. A repeated one is a failure."""
        values = [value for key, value in self.headers if key == name.lower()]
        assert len(values) <= 1, f"{name} stands twice"
        return values[0] if values else None

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


async def request(
    app: ASGIApp,
    method: str,
    target: str | bytes,
    *,
    headers: Sequence[tuple[str, str | bytes]] = (),
    body: bytes = b"",
    chunk_bytes: int = 1 << 16,
) -> AsgiAnswer:
    """Sends one request; `target` is the path and query exactly as on the wire."""
    raw = target.encode() if isinstance(target, str) else target
    path, _, query = raw.partition(b"?")
    chunks = [body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes)] or [b""]
    incoming: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": n < len(chunks)}
        for n, chunk in enumerate(chunks, 1)
    ]
    outgoing: list[Message] = []

    async def receive() -> Message:
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        outgoing.append(message)

    encoded = [(n.lower().encode(), v.encode() if isinstance(v, str) else v) for n, v in headers]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": encoded,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "root_path": "",
    }
    await app(scope, receive, send)
    start, *rest = outgoing
    answered = tuple((name.decode().lower(), value.decode("latin-1")) for name, value in start["headers"])
    return AsgiAnswer(start["status"], answered, b"".join(message.get("body", b"") for message in rest))
