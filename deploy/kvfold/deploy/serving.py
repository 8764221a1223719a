"""The ASGI apps of the processes: reads alone, or reads and writes in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import psycopg

from kvfold.http.app import App
from kvfold.http.openapi import documentation_routes
from kvfold.log.port import Log, LogDescription
from kvfold.producers.deployment.volatile import VolatileTier
from kvfold.producers.gateway.context import build_gateway_context
from kvfold.producers.gateway.keyring import Keyring
from kvfold.producers.gateway.routes import write_routes
from kvfold.projector.postgres_store import translated
from kvfold.query_api.context import ReadContext
from kvfold.query_api.routes import read_routes
from kvfold.query_api.serve import POOL_SIZE, opened, query_api_app, read_context
from kvfold.reads.executor import AsyncReader, async_read_pool
from kvfold.reads.waiting import Waiter
from kvfold.schemas.errors import LogDivergedError

__all__ = ["check_binding", "log_end", "serving_app"]

_TITLE: Final = "kvfold"
_VERSION: Final = "1"


def serving_app(
    dsn: str,
    log: Log | None,
    *,
    ready_from: Mapping[int, int] | None = None,
    volatile: VolatileTier | None = None,
    secrets: Keyring | None = None,
) -> App:
    """Reads from the database and, where there is a log, writes to it. Connects with its lifespan, not before.

    A read sees every write that the same app acknowledged. `/readyz` is 200 once the positions `ready_from` (offset by
    partition) are folded. Without `volatile`, volatile namespaces answer 503, and without `secrets` secret ones. Log and
    tier stay the caller's, to close after the app has ended.
    """
    if log is None:
        return query_api_app(read_context(dsn))
    waiter = Waiter(dsn)
    reader = AsyncReader(async_read_pool(dsn, size_max=POOL_SIZE))
    gateway = build_gateway_context(log, waiter, volatile=volatile, secrets=secrets, reader=reader)
    demand = dict(ready_from or {})
    context = ReadContext(
        reader,
        waiter,
        floor=gateway.producer.acknowledged,
        ready_from=lambda: demand,
        gives_ciphertext=True,
        secrets=secrets,
        volatile=gateway.volatile,
        log_end=lambda: log_end(log),
    )
    routes = [*read_routes(context), *write_routes(gateway)]
    documented = documentation_routes(routes, title=_TITLE, version=_VERSION)
    return App(
        [*routes, *documented],
        metrics=context.metrics,
        lifespans=[lambda: opened(context), lambda: gateway.volatile],
        stops=[context.watches.stop],
    )


def log_end(log: Log) -> dict[int, int]:
    """The last offset of each partition that a reader can see now; -1 where there is none.

    Raises:
        LogUnavailableError: the log does not answer.
    """
    count = log.describe().partition_count
    return {partition: bounds.stable_end - 1 for partition, bounds in log.bounds(range(count)).items()}


def check_binding(dsn: str, log: Log) -> bool:
    """Refuses a log that this database is not folded from: what is written there would never be seen. Else True.

    A database that nothing was folded into yet belongs to no log.

    Raises:
        LogDivergedError: it is another one.
        UnavailableError: Postgres or the log does not answer.
    """
    description = log.describe()
    with translated(), psycopg.connect(dsn, autocommit=True, connect_timeout=5) as connection:
        try:
            row = connection.execute("SELECT kind, name, log_id, partition_count FROM kvfold.log").fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return True
    if row is not None and LogDescription(*row) != description:
        raise LogDivergedError(
            f"this database is folded from the {row[0]} log {row[1]!r} with id {row[2]}, and the settings name the "
            f"{description.kind} log {description.name!r} with id {description.log_id}: check KVFOLD_KAFKA and KVFOLD_TOPIC"
        )
    return True
