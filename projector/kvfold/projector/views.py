"""Views in schema `kvfold`, named like the tables, that show the serving generation to people who query with SQL.

They are a courtesy: kvfold's own reads never use them, and nothing waits for them. They are switched after a swap, with a
lock time-out: where a long query holds one, they stay on the old generation until the next try.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
import structlog
from psycopg import Connection

from kvfold.projector.tables import TABLES
from kvfold.schemas.projection import schema_name

__all__ = ["VIEWS", "show_generation", "shown_generation"]

_log = structlog.get_logger(__name__)
_LOCK_TIMEOUT_MS: Final = 500

VIEWS: Final = (
    *TABLES,
    *(f"{spec.name}_history" for spec in TABLES.values() if spec.has_history),
    "partition_offset",
)
"""The tables that are shown."""


def show_generation(connection: Connection[Any], generation: int) -> bool:
    """Points the views to a generation, all or none; false where a view is in use, or one of somebody else stands on it.

    Columns that the generation has not are gone from the view, so one that lost a column is made anew, without the
    privileges that were granted on it.
    """
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}")
            for view in VIEWS:
                _show(connection, view, generation)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DependentObjectsStillExist) as error:
        reason = str(error).partition("\n")[0]
        _log.warning("views not switched", generation=generation, reason=reason)
        return False
    return True


def shown_generation(connection: Connection[Any]) -> int | None:
    """The generation that the views show; None where there are none."""
    row = connection.execute(
        """
        SELECT substring(t.relnamespace::regnamespace::text FROM '^kvfold_g([0-9]+)$')::int
        FROM pg_rewrite r
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> r.ev_class
        JOIN pg_class t ON t.oid = d.refobjid
        WHERE r.ev_class = to_regclass('kvfold.decision') LIMIT 1
        """
    ).fetchone()
    return None if row is None else row[0]


def _show(connection: Connection[Any], view: str, generation: int) -> None:
    create = f"CREATE OR REPLACE VIEW kvfold.{view} AS SELECT * FROM {schema_name(generation)}.{view}"
    try:
        with connection.transaction():
            connection.execute(create)
    except psycopg.errors.InvalidTableDefinition:
        connection.execute(f"DROP VIEW kvfold.{view}")
        connection.execute(create)
