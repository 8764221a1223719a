"""`PostgresWorkStore`: the work of the serving generation, and the leases beside it. Safe for several threads."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from kvfold.producers.orchestration.execution import RecordedEvent, WaitingMessage
from kvfold.producers.orchestration.store import DueTask, OutgoingMessage, RunnableInstance
from kvfold.schemas.errors import StoreUnavailableError
from kvfold.schemas.names import orchestration_scope
from kvfold.schemas.projection import schema_name

__all__ = ["PostgresWorkStore", "work_pool"]

_T = TypeVar("_T")

_SCOPE_PREFIX: Final = orchestration_scope("")
_POOL_TIMEOUT_S: Final = 3.0
_NO_GENERATION: Final = "no generation serves yet: has a projector been started?"
# As for the reads: every statement is look-ups and index ranges, and plans made on small tables must stay right.
_SETTINGS: Final = (
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; "
    "SET statement_timeout = '5s'; SET synchronous_commit = off"
)


def work_pool(dsn: str, *, size_max: int) -> ConnectionPool[Any]:
    """Connections for work stores; open it, and close it when all is over."""

    def configure(connection: Connection[Any]) -> None:
        connection.execute(_SETTINGS)

    return ConnectionPool(
        dsn,
        min_size=1,
        max_size=size_max,
        open=False,
        timeout=_POOL_TIMEOUT_S,
        reconnect_timeout=1.0,
        kwargs={"autocommit": True, "application_name": "kvfold-worker", "connect_timeout": 3},
        configure=configure,
        check=ConnectionPool.check_connection,
    )


class PostgresWorkStore:
    """A `WorkStore`. `lease_s` is how long a lease holds unless it is renewed: longer than any turn may take."""

    def __init__(self, pool: ConnectionPool[Any], *, worker: str, lease_s: float) -> None:
        self._pool = pool
        self._worker = worker
        self._lease_s = lease_s

    def runnable(self, names: Collection[str], limit: int) -> Sequence[RunnableInstance]:
        """As the port says."""
        return [_runnable(row) for row in self._work("runnable", names=list(names), limit=limit)]

    def history(self, instance: RunnableInstance) -> Sequence[RecordedEvent] | None:
        """As the port says."""
        rows = self._work("history", scope=instance.scope, execution=instance.execution_id)
        events = [RecordedEvent(row[0], row[1], json.loads(row[2]), row[3], row[4]) for row in rows]
        return events if len(events) == instance.history_length else None

    def due_activities(self, names: Collection[str], limit: int) -> Sequence[DueTask]:
        """As the port says."""
        return [_task(row) for row in self._work("due_activities", names=list(names), limit=limit)]

    def due_timers(self, limit: int) -> Sequence[DueTask]:
        """As the port says."""
        return [_task(row) for row in self._work("due_timers", limit=limit)]

    def outgoing(self, limit: int) -> Sequence[OutgoingMessage]:
        """As the port says."""
        return [
            OutgoingMessage(
                scope, _instance_id(scope), incarnation, execution, event, kind, target, _object(data), offset
            )
            for scope, incarnation, execution, event, kind, target, data, offset in self._work(
                "outgoing", limit=limit
            )
        ]

    def renew(self, leases: Sequence[str]) -> None:
        """As the port says."""
        self._run(lambda connection: connection.execute(_sql("renew"), self._parameters(names=list(leases))))

    def release(self, leases: Sequence[str]) -> None:
        """As the port says."""
        if leases:
            self._run(
                lambda connection: connection.execute(_sql("release"), self._parameters(names=list(leases)))
            )

    def _parameters(self, **more: Any) -> dict[str, Any]:
        return {"worker": self._worker, "seconds": self._lease_s, **more}

    def _work(self, name: LiteralString, **parameters: Any) -> list[tuple[Any, ...]]:
        def ask(connection: Connection[Any]) -> list[tuple[Any, ...]]:
            serving = connection.execute("SELECT serving FROM kvfold.pointer").fetchone()
            if serving is None:
                raise StoreUnavailableError(_NO_GENERATION)
            text = _sql(name).replace("{g}", schema_name(serving[0]))
            return connection.execute(text, self._parameters(**parameters)).fetchall()

        return self._run(ask)

    def _run(self, ask: Callable[[Connection[Any]], _T]) -> _T:
        try:
            with self._pool.connection() as connection:
                return ask(connection)
        except (PoolTimeout, PoolClosed) as error:
            raise StoreUnavailableError(f"no connection to Postgres: {error}") from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            # One that was dropped meanwhile is another way of being away: the next call asks the pointer.
            raise StoreUnavailableError(_NO_GENERATION) from error
        except psycopg.Error as error:
            raise StoreUnavailableError(f"Postgres did not answer: {error}") from error


@cache
def _sql(name: LiteralString) -> LiteralString:
    text = files("kvfold.producers.orchestration").joinpath("sql", f"{name}.sql").read_text("utf-8")
    return text.strip()


def _instance_id(scope: str) -> str:
    return scope.removeprefix(_SCOPE_PREFIX)


def _runnable(row: tuple[Any, ...]) -> RunnableInstance:
    scope, incarnation, execution_id, length, name, input_, kv, started_ms, children, newest, waiting = row
    messages = tuple(
        WaitingMessage(offset, kind, _object(data), time_ms) for offset, kind, data, time_ms in waiting or ()
    )
    return RunnableInstance(
        scope=scope,
        instance_id=_instance_id(scope),
        incarnation=incarnation,
        execution_id=execution_id,
        history_length=length,
        name=name,
        input=json.loads(input_),
        kv=_object(kv),
        started_ms=started_ms,
        children=children,
        seen=newest,
        waiting=messages,
    )


def _object(text: str) -> Mapping[str, Any]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def _task(row: tuple[Any, ...]) -> DueTask:
    scope, incarnation, execution_id, event_id, kind, name, data, attempt, due_ms, record_offset = row
    return DueTask(
        scope=scope,
        instance_id=_instance_id(scope),
        incarnation=incarnation,
        execution_id=execution_id,
        event_id=event_id,
        kind=kind,
        name=name,
        data=_object(data),
        attempt=attempt,
        due_ms=due_ms,
        record_offset=record_offset,
    )
