"""The query API put together: its context, and its app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kvfold.http.app import App
from kvfold.http.openapi import documentation_routes
from kvfold.query_api.context import ReadContext
from kvfold.query_api.routes import read_routes
from kvfold.reads.executor import AsyncReader, async_read_pool
from kvfold.reads.waiting import Waiter

__all__ = [
    "POOL_SIZE",
    "opened",
    "query_api_app",
    "read_context",
]

POOL_SIZE: Final = 32
"""Connections of the read pool of one process."""

_TITLE: Final = "kvfold query API"
_VERSION: Final = "1"


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
        await context.watches.close()
        context.waiter.close()
        await context.reader.pool.close()


def query_api_app(context: ReadContext) -> App:
    """The query API alone, as an ASGI app that opens and closes the context with its lifespan."""
    routes = read_routes(context)
    documented = documentation_routes(routes, title=_TITLE, version=_VERSION)
    return App(
        [*routes, *documented],
        metrics=context.metrics,
        lifespans=[lambda: opened(context)],
        stops=[context.watches.stop],
    )
