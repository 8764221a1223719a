"""How long the past of each family is kept. Projectors trim by it, a little at every turn; no decision depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import Connection

from kvfold.projector.postgres_store import translated
from kvfold.schemas.types import Family

__all__ = ["retention", "set_retention"]


def retention(connection: Connection[Any]) -> Mapping[Family, int | None]:
    """Milliseconds of effective time that each family's past is kept; None = for ever."""
    with translated():
        kept = dict(connection.execute("SELECT family, keep_ms FROM kvfold.retention").fetchall())
    return {family: kept.get(str(family)) for family in Family if family is not Family.SYSTEM}


def set_retention(connection: Connection[Any], family: Family, keep_ms: int | None) -> None:
    """Keeps a family's past for so long from now on; what was trimmed before comes back with a rebuild only."""
    with translated():
        if keep_ms is None:
            connection.execute("DELETE FROM kvfold.retention WHERE family = %s", (str(family),))
            return
        connection.execute(
            "INSERT INTO kvfold.retention (family, keep_ms) VALUES (%s, %s) "
            "ON CONFLICT (family) DO UPDATE SET keep_ms = excluded.keep_ms",
            (str(family), keep_ms),
        )
