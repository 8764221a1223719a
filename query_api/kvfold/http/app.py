"""The ASGI app made of a list of routes, and the one place that establishes who is asking.

There is no middleware: a request is matched, its endpoint answers or raises, and an error becomes a problem document.
Whatever else is raised is a fault of ours; it is logged and answered with 500, without a word of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from time import perf_counter
from traceback import extract_tb
from typing import Final

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from kvfold.http.call import Call
from kvfold.http.metrics import HttpMetrics
from kvfold.http.problems import INTERNAL, problem_of_error
from kvfold.http.raw_path import Router
from kvfold.http.routes import Route
from kvfold.schemas.errors import KvfoldError

__all__ = ["REQUEST_FAILED", "App", "Identify", "Lifespan", "anyone"]

REQUEST_FAILED: Final = "request_failed"

_UNMATCHED: Final = "none"
_FRAMES_LOGGED: Final = 12

_logger = structlog.get_logger(__name__)

Identify = Callable[[Call], str | None]
"""Tells who is asking, None where nobody is authenticated; raises a KvfoldError to refuse."""

Lifespan = Callable[[], AbstractAsyncContextManager[object]]
"""What is opened before the first request and closed after the last."""


def anyone(call: Call) -> str | None:
    """Accepts everybody. A bearer token is accepted and ignored until authentication is built."""
    del call
    return None


class App:
    """An ASGI application. Needs no mount and no `root_path`."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        metrics: HttpMetrics | None = None,
        identify: Identify = anyone,
        lifespans: Iterable[Lifespan] = (),
        stops: Iterable[Callable[[], None]] = (),
    ) -> None:
        """`stops` are called, in the event loop, when the server begins to stop: they end what would go on for ever."""
        self.routes = tuple(routes)
        self._router = Router(self.routes)
        self._metrics = metrics or HttpMetrics()
        self._identify = identify
        self._lifespans = tuple(lifespans)
        self._stops = tuple(stops)

    def begin_stop(self) -> None:
        """Ends streams; requests of the other kind are finished."""
        for stop in self._stops:
            stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1000})
            case _:
                pass

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        template = _UNMATCHED
        try:
            route, path, query = self._router.match(scope)
            template = route.template
            call = Call(scope, receive, path=path, query=query)
            call.actor = self._identify(call)
            response = await route.endpoint(call)
        except KvfoldError as error:
            problem = problem_of_error(error)
            if problem is INTERNAL:
                _log_failure(error, template)
            response = problem.response()
        except ClientDisconnect:
            return
        except Exception as error:
            _log_failure(error, template)
            response = INTERNAL.response()
        await response(scope, receive, _without_body(send) if scope["method"] == "HEAD" else send)
        self._metrics.answered(
            method=_known_method(scope["method"]),
            route=template,
            status=response.status_code,
            seconds=perf_counter() - started,
        )

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        phase = "startup"
        try:
            async with AsyncExitStack() as stack:
                for lifespan in self._lifespans:
                    await stack.enter_async_context(lifespan())
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:
            await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})


def _log_failure(error: Exception, route: str) -> None:
    """Logs where it happened, and not the exception's text: a driver may quote a value in it."""
    frames = extract_tb(error.__traceback__)[-_FRAMES_LOGGED:]
    where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    _logger.error(REQUEST_FAILED, route=route, error=type(error).__name__, at=where)


def _without_body(send: Send) -> Send:
    """An answer to HEAD: the headers of GET, content-length included, and no body."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})


def _known_method(method: str) -> str:
    """The method as a label; a client may invent methods without end."""
    return method if method in _METHODS else "other"
