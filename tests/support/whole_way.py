"""A gateway that serves reads and writes over a log in Postgres, with a projector beside it; its requests are in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from kvfold.http.app import App
from kvfold.http.openapi import documentation_routes
from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog
from kvfold.producers.gateway.context import build_gateway_context
from kvfold.producers.gateway.routes import write_routes
from kvfold.query_api.context import ReadContext
from kvfold.query_api.routes import read_routes
from kvfold.query_api.serve import opened
from kvfold.reads.executor import AsyncReader, async_read_pool
from kvfold.reads.waiting import Waiter
from support.asgi import AsgiAnswer, request
from support.projectors import postgres_log, running_projector

__all__ = ["Client", "Headers", "gateway", "whole_way"]

Headers = Sequence[tuple[str, str | bytes]]


class Client:
    """Requests to one gateway that serves reads and writes."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(
        self, method: str, target: str, body: bytes = b"", *, headers: Headers = ()
    ) -> AsgiAnswer:
        return await request(self.app, method, target, headers=headers, body=body)


@asynccontextmanager
async def gateway(log: Log, dsn: str, *, write_timeout_s: float = 7.5) -> AsyncIterator[Client]:
    """A gateway as it is put together: one waiter, the reads' floor is what the writes had acknowledged."""
    waiter = Waiter(dsn)
    reader = AsyncReader(async_read_pool(dsn, size_max=8))
    writes = build_gateway_context(log, waiter, write_timeout_s=write_timeout_s, reader=reader)
    reads = ReadContext(reader, waiter, writes.producer.acknowledged)
    routes = [*read_routes(reads), *write_routes(writes)]
    app = App([*routes, *documentation_routes(routes, title="test", version="1")])
    async with opened(reads):
        yield Client(app)


def whole_way(dsn: str, scenario: Callable[[Client], Awaitable[None]]) -> None:
    """Runs a scenario against a gateway with a projector beside it."""

    async def run(log: PostgresLog) -> None:
        async with gateway(log, dsn) as client:
            await scenario(client)

    with postgres_log(dsn) as log, running_projector(log, dsn):
        asyncio.run(run(log))
