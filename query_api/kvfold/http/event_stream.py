"""A response that goes on for as long as the client listens: server-sent events (HTML standard, 9.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

__all__ = ["EVENT_STREAM", "EventStream"]

EVENT_STREAM: Final = "text/event-stream"

_STALLED_S: Final = 30.0
"""How long a client may take nothing before it is let go; it resumes from the last id that it has."""

_HEADERS: Final[Mapping[str, str]] = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(Response):
    """Sends pieces as they come, until they end, the client goes, or it takes nothing for 30 seconds."""

    media_type = EVENT_STREAM

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        *,
        headers: Mapping[str, str],
        ended: Callable[[], None],
        stalled_s: float = _STALLED_S,
    ) -> None:
        """`ended` is called at the end, whether or not a piece was ever asked for."""
        super().__init__(headers={**_HEADERS, **headers})
        del self.headers["content-length"]
        self._pieces = pieces
        self._ended = ended
        self._stalled_s = stalled_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the whole stream, unless only the head is asked for."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            sending = asyncio.ensure_future(self._send(send))
            listening = asyncio.ensure_future(_until_gone(receive))
            try:
                await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sending.cancel()
                listening.cancel()
                await asyncio.wait((sending, listening))
            if not sending.cancelled():
                sending.result()
        finally:
            await self._pieces.aclose()
            self._ended()

    async def _send(self, send: Send) -> None:
        async for piece in self._pieces:
            try:
                async with asyncio.timeout(self._stalled_s):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except TimeoutError:
                return  # without an end: the server closes the connection
            await asyncio.sleep(
                0
            )  # a server that only writes does not wait: others get their turn, and an end is noticed
        await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
