"""How the tiers are: what a reachability check cannot tell (003, "Watching the tiers"; row D14).

Each tier is asked for itself, at the same time: one that is away says so in its part, and the other reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.positions import POSITION_HEADER, position_headers
from kvfold.http.routes import Parameter, Route, json_answer, problem_answers
from kvfold.query_api import arguments
from kvfold.query_api.context import ReadContext
from kvfold.query_api.shapes import (
    PersistentHealth,
    PoolHealth,
    ProjectorHealth,
    StorageHealth,
    StoreHealth,
    VolatileTierHealth,
)
from kvfold.reads.deployment import StoreSize, store_size
from kvfold.reads.operations import projector
from kvfold.reads.query import Read
from kvfold.schemas.errors import KvfoldError, UnavailableError

__all__ = ["storage_health_route"]

_LOG_TIMEOUT_S: Final = 2.0


def storage_health_route(context: ReadContext) -> Route:
    """`GET /deployments/{id}/storage-health`: always 200, whatever it has to tell."""

    async def endpoint(call: Call) -> Response:
        arguments.scope_of_deployment(call)
        (persistent, headers), volatile = await asyncio.gather(_persistent(context), _volatile(context))
        health = StorageHealth(persistent=persistent, volatile=volatile)
        return Response(health.model_dump_json(), headers=headers, media_type="application/json")

    return Route(
        "GET",
        "/deployments/{id}/storage-health",
        endpoint,
        "Health of both tiers",
        "deployments",
        description="The tiers are the process's, shared by all its deployments. A tier that is away says so in its part.",
        path=(Parameter("id", "The deployment: no control characters, 1 to 128 bytes"),),
        answers=(
            json_answer("Both tiers, each for itself", StorageHealth, headers=(POSITION_HEADER,)),
            *problem_answers({400: ("malformed-name",)}),
        ),
    )


async def _persistent(context: ReadContext) -> tuple[PersistentHealth, dict[str, str]]:
    stats = context.reader.pool.get_stats()
    made, idle = stats.get("pool_size", 0), stats.get("pool_available", 0)
    pool = PoolHealth(size=made, in_use=made - idle, waiting=stats.get("requests_waiting", 0))
    try:
        size, partitions = await asyncio.gather(
            context.reader.read(store_size()), context.reader.read(projector())
        )
    except UnavailableError as error:
        away = PersistentHealth(status="unavailable", code=error.code, pool=pool, store=None, projector=None)
        return away, {}
    paused = [view.partition for view in partitions.value.partitions if view.pause is not None]
    health = PersistentHealth(
        status="ok",
        code=None,
        pool=pool,
        store=StoreHealth(
            bytes=size.value.entry_bytes, history_bytes=size.value.history_bytes, rows=size.value.rows
        ),
        projector=ProjectorHealth(lag_records=await _lag(context, size), paused_partitions=paused),
    )
    return health, position_headers(size)


async def _lag(context: ReadContext, read: Read[StoreSize]) -> int | None:
    """Records between the projection and the log's end; None where the log is not asked, or does not answer."""
    if context.log_end is None:
        return None
    try:
        ends: Mapping[int, int] = await asyncio.wait_for(asyncio.to_thread(context.log_end), _LOG_TIMEOUT_S)
    except (TimeoutError, KvfoldError):
        return None
    # Offsets have gaps, so this is the most that it can be.
    return sum(max(0, end - read.positions.get(partition, -1)) for partition, end in ends.items())


async def _volatile(context: ReadContext) -> VolatileTierHealth:
    if context.volatile is None or not context.volatile.is_configured:
        return _silent("none", None)
    try:
        health = await context.volatile.health()
    except UnavailableError as error:
        return _silent("unavailable", error.code)
    return VolatileTierHealth(
        status="ok",
        code=None,
        memory_used_bytes=health.memory_used_bytes,
        memory_max_bytes=health.memory_max_bytes,
        hit_rate=health.hit_rate,
        evicted_keys=health.evicted_keys,
        keys=health.keys,
    )


def _silent(status: str, code: str | None) -> VolatileTierHealth:
    figures = dict.fromkeys(("memory_used_bytes", "memory_max_bytes", "hit_rate", "evicted_keys", "keys"))
    return VolatileTierHealth.model_validate({"status": status, "code": code, **figures})
