"""What operators and their tools ask: generations, partitions, liveness, readiness."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import JSONResponse, Response

from kvfold.http.call import Call
from kvfold.http.metrics import metrics_route
from kvfold.http.routes import Route, json_answer, problem_answers
from kvfold.query_api.answers import json_response
from kvfold.query_api.arguments import MIN_POSITION
from kvfold.query_api.context import ReadContext
from kvfold.query_api.documented import POSITIONED, read_problems
from kvfold.query_api.shapes import Generations, Health, Projector, Readiness
from kvfold.query_api.times import rfc3339, rfc3339_ms
from kvfold.reads.operations import (
    GenerationView,
    PartitionView,
    PauseView,
    generations,
    progress,
    projector,
)
from kvfold.schemas.errors import NotUpToPositionError
from kvfold.schemas.position import format_positions

__all__ = ["generation_data", "operation_routes"]

_TAG: Final = "operations"


def operation_routes(context: ReadContext) -> list[Route]:
    """Generations, projector, liveness, readiness, metrics."""
    _measure(context)
    return [
        _generations(context),
        _projector(context),
        _liveness(),
        _readiness(context),
        metrics_route(context.metrics),
    ]


def _generations(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        read = await context.reads.read(call, generations())
        return json_response({"generations": [generation_data(item) for item in read.value]}, read)

    return Route(
        "GET",
        "/v1/generations",
        endpoint,
        "Generations of the projection, and how far each of them is",
        _TAG,
        headers=(MIN_POSITION,),
        answers=(json_answer("Generations", Generations, headers=POSITIONED), *read_problems({})),
    )


def generation_data(view: GenerationView) -> dict[str, Any]:
    """A generation as JSON."""
    rebuild, verification = view.rebuild, view.verification
    return {
        "id": view.id,
        "state": view.state,
        "serving": view.serving,
        "schema_version": view.schema_version,
        "created_at": rfc3339(view.created_at),
        "position": format_positions(view.offsets),
        "rebuild": rebuild
        and {
            "compared_with": rebuild.compared_with,
            "to_position": rebuild.to_position,
            "target": format_positions(rebuild.target),
            "compared": format_positions(rebuild.compared),
        },
        "verification": verification
        and {
            "position": verification.position,
            "finished_at": rfc3339(verification.finished_at),
            "row_count": verification.row_count,
            "difference_count": verification.difference_count,
            "unsettled_scopes": verification.unsettled_scopes,
        },
    }


def _projector(context: ReadContext) -> Route:
    async def endpoint(call: Call) -> Response:
        read = await context.reads.read(call, projector())
        data = {
            "generation": read.generation,
            "partitions": [_partition(partition) for partition in read.value.partitions],
            "notification_queue_usage": read.value.notification_queue_usage,
        }
        return json_response(data, read)

    return Route(
        "GET",
        "/v1/projector",
        endpoint,
        "Progress, claims and pauses of the serving generation's partitions",
        _TAG,
        headers=(MIN_POSITION,),
        answers=(json_answer("Partitions", Projector, headers=POSITIONED), *read_problems({})),
    )


def _liveness() -> Route:
    async def endpoint(_: Call) -> Response:
        return JSONResponse({"status": "ok"})

    return Route(
        "GET",
        "/healthz",
        endpoint,
        "Liveness: the process answers",
        _TAG,
        answers=(json_answer("It does", Health),),
    )


def _readiness(context: ReadContext) -> Route:
    async def endpoint(_: Call) -> Response:
        # Not through the floor: a health check answers at once, it does not wait.
        read = await context.reader.read(progress())
        demand = {} if context.ready_from is None else context.ready_from()
        behind = {p: offset for p, offset in demand.items() if read.positions.get(p, -1) < offset}
        if behind:
            raise NotUpToPositionError(f"not yet folded up to {format_positions(behind)}")
        return json_response({"status": "ready", "generation": read.generation}, read)

    return Route(
        "GET",
        "/readyz",
        endpoint,
        "Readiness: the store answers, a generation serves and is far enough",
        _TAG,
        answers=(
            json_answer("Ready", Readiness, headers=POSITIONED),
            *problem_answers({503: ("store-unavailable", "not-up-to-position")}),
        ),
    )


def _measure(context: ReadContext) -> None:
    """Gauges that are read when scraped."""
    pool = context.reader.pool

    def figure(name: str) -> float:
        return float(pool.get_stats().get(name, 0))

    metrics = context.metrics
    metrics.gauge(
        "kvfold_waiters", "Requests that wait for the projection", lambda: context.waiter.waiting_count
    )
    metrics.gauge("kvfold_watchers", "Streams of changes", lambda: context.watches.watcher_count)
    metrics.gauge("kvfold_read_pool_size", "Connections of the read pool", lambda: figure("pool_size"))
    metrics.gauge(
        "kvfold_read_pool_idle", "Connections that are not in use", lambda: figure("pool_available")
    )
    metrics.gauge(
        "kvfold_read_pool_waiting", "Reads that wait for a connection", lambda: figure("requests_waiting")
    )


def _partition(view: PartitionView) -> dict[str, Any]:
    return {
        "partition": view.partition,
        "position": f"{view.partition}:{view.offset}",
        "effective_time": rfc3339_ms(view.effective_time_ms),
        "committed_at": rfc3339(view.committed_at),
        "owner": view.owner,
        "claim_expires_at": None if view.expires_at is None else rfc3339(view.expires_at),
        "epoch": view.epoch,
        "paused": None if view.pause is None else _pause(view.pause),
    }


def _pause(view: PauseView) -> dict[str, Any]:
    return {"reason": view.reason, "detail": view.detail, "since": rfc3339(view.since)}
