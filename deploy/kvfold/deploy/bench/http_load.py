"""A client that asks as fast as a server answers: raw asyncio, kept connections, one request at a time on each.

Runs in a process of its own, `python -m kvfold.deploy.bench.http_load`, with a job as JSON on standard input: `host`,
`port`, `paths`, `connections`, `requests`, `body_bytes`. Any other answer than 200 with a body of that length ends it with
an error, so that nothing is counted which was no read.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, Final

__all__ = ["measure"]

_WARM_UP: Final = 500
_TIMEOUT_S: Final = 120.0


class _Connection(asyncio.Protocol):
    """Sends a request as soon as the answer to the one before is complete, until there are no more."""

    def __init__(self, requests: Iterator[bytes], body_bytes: int, took: list[float]) -> None:
        self._requests = requests
        self._took = took
        self._sent_at = 0.0
        self._body_bytes = body_bytes
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0 or len(self._received) < head_end + 4 + self._body_bytes:
            return
        if not self._received.startswith(b"HTTP/1.1 200 ") or (
            b"content-length: %d\r\n" % self._body_bytes not in self._received[: head_end + 2].lower()
        ):
            self._end(RuntimeError(f"the server answered {self._received[:200]!r}"))
            return
        self._received = b""
        self._took.append(perf_counter() - self._sent_at)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionError("the server closed the connection"))

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._end(None)
        else:
            assert self._transport is not None
            self._sent_at = perf_counter()
            self._transport.write(request)

    def _end(self, error: Exception | None) -> None:
        if self.finished.done():
            return
        if error is None:
            self.finished.set_result(None)
        else:
            self.finished.set_exception(error)
        assert self._transport is not None
        self._transport.close()


async def _run(
    host: str, port: int, requests: Sequence[bytes], connections: int, body_bytes: int
) -> tuple[float, list[float]]:
    """Seconds until every request is answered, and the seconds that each of them took."""
    took: list[float] = []
    loop = asyncio.get_running_loop()
    waiting = iter(requests)
    begun = perf_counter()
    made = await asyncio.gather(
        *(
            loop.create_connection(lambda: _Connection(waiting, body_bytes, took), host, port)
            for _ in range(connections)
        )
    )
    async with asyncio.timeout(_TIMEOUT_S):
        await asyncio.gather(*(protocol.finished for _, protocol in made))
    return perf_counter() - begun, took


def measure(
    *, host: str, port: int, paths: Sequence[str], connections: int, requests: int, body_bytes: int
) -> dict[str, Any]:
    """Requests a second over so many connections, and the 99th percentile of what one takes, in milliseconds.

    Goes round through the paths; after a warm-up.
    """
    texts = [f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() for path in paths]
    asked = [texts[number % len(texts)] for number in range(requests)]
    asyncio.run(_run(host, port, asked[:_WARM_UP], connections, body_bytes))
    seconds, took = asyncio.run(_run(host, port, asked, connections, body_bytes))
    took.sort()
    return {"per_second": requests / seconds, "p99_ms": took[len(took) * 99 // 100] * 1_000}


if __name__ == "__main__":
    print(json.dumps(measure(**json.load(sys.stdin))))
