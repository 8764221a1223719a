"""Dropping a generation: its folds end first, then its tables go.

The state `dropping` tells projectors and rebuilds to let the generation go. Its tables are dropped once none of them
works on it, with a lock time-out: a long query on the tables makes the drop wait and try again, never the reverse. A drop
that was interrupted is finished by the same call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg import Connection

from kvfold.projector.generations import GenerationStateError, find_generation, serving_generation
from kvfold.projector.views import show_generation, shown_generation
from kvfold.schemas.errors import UnavailableError
from kvfold.schemas.projection import schema_name

__all__ = ["DropDelayedError", "drop_generation"]

_WAIT_S: Final = 30.0
_LOOK_S: Final = 0.1
_LOCK_TIMEOUT_MS: Final = 500


class DropDelayedError(UnavailableError):
    """Somebody uses the generation still; it is marked, and the same command later drops it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="drop-delayed")


def drop_generation(
    connection: Connection[Any],
    generation: int,
    *,
    wait_s: float = _WAIT_S,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Drops a generation that does not serve, with all its rows. The connection is in autocommit mode.

    Raises:
        GenerationStateError: there is none of this number, it serves, or a rebuild compares itself with it.
        DropDelayedError: projectors, or queries of somebody else, hold it after `wait_s` seconds.
    """
    _mark(connection, generation)
    deadline = time.monotonic() + wait_s

    def give_up(who: str) -> None:
        if time.monotonic() > deadline or should_stop():
            raise DropDelayedError(
                f"generation {generation} is in use by {who}: it is marked as dropping; end that, and drop it again"
            )
        time.sleep(_LOOK_S)

    while workers := _workers(connection, generation):
        give_up(", ".join(workers))
    while not _drop(connection, generation):
        give_up(_holders(connection, generation))


def _mark(connection: Connection[Any], generation: int) -> None:
    """Under the pointer's lock, which a swap holds: a generation that is dropped is never swapped in."""
    with connection.transaction():
        connection.execute("SELECT FROM kvfold.pointer FOR UPDATE")
        found = find_generation(connection, generation)
        if serving_generation(connection) == generation:
            raise GenerationStateError(
                f"generation {generation} serves: swap to another one before you drop it"
            )
        row = connection.execute(
            """
            SELECT r.generation FROM kvfold.rebuild r JOIN kvfold.generation g ON g.id = r.generation
            WHERE r.compared_with = %s AND g.state IN ('created', 'replaying', 'catching-up')
            """,
            (generation,),
        ).fetchone()
        if row is not None:
            raise GenerationStateError(
                f"generation {row[0]} is being rebuilt, and compared with generation {generation}: let it end, or "
                "cancel it"
            )
        if found.state != "dropping":
            connection.execute("UPDATE kvfold.generation SET state = 'dropping' WHERE id = %s", (generation,))


def _workers(connection: Connection[Any], generation: int) -> list[str]:
    """Who folds the generation, by name; a process that has ended is nobody."""
    rows = connection.execute(
        f"""
        SELECT owner FROM {schema_name(generation)}.worker
        WHERE expires_at > clock_timestamp() AND backend_pid IN (SELECT pid FROM pg_stat_activity) ORDER BY owner
        """
    )
    return [f"the projector {row[0]}" for row in rows]


def _drop(connection: Connection[Any], generation: int) -> bool:
    """Drops the tables; false where somebody holds a lock on one. Views that stand on them are moved first."""
    if shown_generation(connection) == generation and not show_generation(
        connection, serving_generation(connection)
    ):
        return False
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}")
            connection.execute(f"DROP SCHEMA {schema_name(generation)} CASCADE")
            connection.execute("DELETE FROM kvfold.generation WHERE id = %s", (generation,))
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        return False
    return True


def _holders(connection: Connection[Any], generation: int) -> str:
    """The sessions that hold a lock on a table of the generation, or on a view of it."""
    rows = connection.execute(
        """
        SELECT DISTINCT l.pid, a.application_name
        FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND c.relnamespace::regnamespace::text IN (%s, 'kvfold') AND l.pid <> pg_backend_pid()
        ORDER BY 1
        """,
        (schema_name(generation),),
    )
    names = [f"session {pid} ({name})" if name else f"session {pid}" for pid, name in rows]
    return ", ".join(names) or "a session that has ended just now"
