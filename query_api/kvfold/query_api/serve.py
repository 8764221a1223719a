"""The query API as a process: its app, and the server that runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import uvicorn

from kvfold.http.app import App
from kvfold.http.openapi import documentation_routes
from kvfold.query_api.context import ReadContext
from kvfold.query_api.routes import read_routes
from kvfold.reads.executor import AsyncReader, async_read_pool
from kvfold.reads.waiting import Waiter

__all__ = [
    "POOL_SIZE",
    "QueryApiSettings",
    "opened",
    "query_api_app",
    "read_context",
    "serve",
    "server_config",
]

POOL_SIZE: Final = 32
"""Connections of the read pool of one process."""

_TITLE: Final = "kvfold query API"
_VERSION: Final = "1"
_STOP_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True)
class QueryApiSettings:
    """Where the projection is, and where to listen. `postgres` is a libpq connection string."""

    postgres: str
    host: str = "127.0.0.1"
    port: int = 8080
    pool_size: int = POOL_SIZE


def read_context(dsn: str, *, pool_size: int = POOL_SIZE) -> ReadContext:
    """A context of its own pool and waiter. Connects to nothing yet; `opened` does."""
    return ReadContext(AsyncReader(async_read_pool(dsn, size_max=pool_size)), Waiter(dsn))


@asynccontextmanager
async def opened(context: ReadContext) -> AsyncIterator[None]:
    """Opens a context's pool and begins to listen; closes both at the end. Does not wait for Postgres.

    For an app's `lifespans`: the pool belongs to the event loop that it is opened in.
    """
    await context.reader.pool.open()
    context.waiter.start()
    try:
        yield
    finally:
        context.waiter.close()
        await context.reader.pool.close()


def query_api_app(context: ReadContext) -> App:
    """The query API alone, as an ASGI app that opens and closes the context with its lifespan."""
    routes = read_routes(context)
    documented = documentation_routes(routes, title=_TITLE, version=_VERSION)
    return App([*routes, *documented], metrics=context.metrics, lifespans=[lambda: opened(context)])


def server_config(app: App, settings: QueryApiSettings) -> uvicorn.Config:
    """How kvfold runs uvicorn: httptools, no access log, nothing believed that a client says of other hosts."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
    )


def serve(settings: QueryApiSettings) -> None:
    """Serves until SIGINT or SIGTERM; requests under way are finished, for ten seconds at most."""
    context = read_context(settings.postgres, pool_size=settings.pool_size)
    uvicorn.Server(server_config(query_api_app(context), settings)).run()
