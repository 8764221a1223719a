"""What a generation's tables hold, as digests of rows in key order: what verification compares.

A row's digest is made by Postgres, of the columns that the row's specification names, so no value leaves the server and
generations of different schema versions can be compared. Rows come in pages, each one short statement.

A table with a history is read together with it, in one statement a page: a row that is superseded while pages are read
is seen once, in one place or in the other. So what was true at a position can be told at any later moment:

```
valid_from > P                        not yet there
valid_from ≤ P < valid_to or current  current at P
valid_to ≤ P                          history at P
```
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from psycopg import Connection

from kvfold.projector.tables import TABLES
from kvfold.schemas.projection import schema_name

__all__ = ["IN_PLACE_TABLES", "PAGE_ROWS", "ContentRow", "content_rows", "rows_of_scopes"]

IN_PLACE_TABLES: Final = (
    "capsule_scope",
    "deployment_scope",
    "orchestration_execution",
    "orchestration_event",
    "orchestration_queue",
    "orchestration_inbox",
    "orchestration_task",
    "orchestration_child",
    "orchestration_outbox",
)
"""Tables whose rows change or go without leaving a history: they are known as they are now only."""

PAGE_ROWS: Final = 1_000
# The column that says which record wrote a row, of tables that only grow.
_WRITTEN_BY: Final = {"decision": "record_offset", "mutation_id": "record_offset"}


class ContentRow(NamedTuple):
    """A row without its values: its key (of a history's row also from when on it was true), and its digest.

    `began` is the offset that wrote it and `ended` the one that ended it; None where the table knows none.
    """

    key: tuple[Any, ...]
    began: int | None
    ended: int | None
    digest: bytes


def content_rows(connection: Connection[Any], generation: int, table: str) -> Iterator[ContentRow]:
    """Every row of a table and its history, in the order of keys; a statement a page, on a connection in autocommit."""
    after: tuple[Any, ...] | None = None
    size = TABLES[table].key_size + TABLES[table].has_history
    while True:
        statement = _page_sql(table, generation, first=after is None)
        page = connection.execute(statement, (after or ()) * _repeats(table)).fetchall()
        for row in page:
            yield ContentRow(tuple(row[:size]), *row[size:])
        if len(page) < PAGE_ROWS:
            return
        after = tuple(page[-1][:size])


def rows_of_scopes(
    connection: Connection[Any], generation: int, table: str, scopes: Sequence[str]
) -> list[ContentRow]:
    """The rows of some scopes in a table without a history, in the order of keys."""
    spec = TABLES[table]
    keys = ", ".join(spec.columns[: spec.key_size])
    rows = connection.execute(
        f"SELECT {keys}, {_digest(table)} FROM {schema_name(generation)}.{table} x "
        f"WHERE x.scope = ANY (%s) ORDER BY {keys}",
        (list(scopes),),
    )
    return [ContentRow(tuple(row[: spec.key_size]), None, None, row[spec.key_size]) for row in rows]


def _repeats(table: str) -> int:
    return 2 if TABLES[table].has_history else 1


@lru_cache(maxsize=512)
def _page_sql(table: str, generation: int, *, first: bool) -> str:
    spec, place = TABLES[table], f"{schema_name(generation)}.{table}"
    key = [*spec.columns[: spec.key_size], *([spec.valid_from] if spec.has_history else [])]
    types = [*spec.types[: spec.key_size], *(["int8"] if spec.has_history else [])]
    order = ", ".join(key)
    # An id is compared as Postgres orders it, and told as text: both are the order of its bytes.
    told = ", ".join(
        f"{name}::text" if type_ == "uuid" else name for name, type_ in zip(key, types, strict=True)
    )
    names = ", ".join(spec.columns)
    after = "" if first else f"WHERE ({order}) > ({', '.join(f'%s::{type_}' for type_ in types)})"
    end = f"ORDER BY {order} LIMIT {PAGE_ROWS}"
    if spec.has_history:
        began, ended = spec.valid_from, "x.valid_to"
        source = (
            f"((SELECT {names}, NULL::int8 AS valid_to FROM {place} {after} {end}) UNION ALL "
            f"(SELECT {names}, valid_to FROM {place}_history {after} {end}))"
        )
        return f"SELECT {told}, x.{began}, {ended}, {_digest(table)} FROM {source} x {end}"
    began = _WRITTEN_BY.get(table, "NULL::int8")
    return f"SELECT {told}, {began}, NULL::int8, {_digest(table)} FROM {place} x {after} {end}"


def _digest(table: str) -> str:
    columns = ", ".join(f"x.{column}" for column in TABLES[table].columns)
    return f"sha256(convert_to(ROW({columns})::text, 'UTF8'))"
