"""The fold's table specifications, the tables that the SQL files make, and what the reads ask of them fit each other."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from importlib import resources
from typing import NamedTuple, cast

import psycopg
import pytest

from kvfold.log.memory import MemoryLog
from kvfold.projector.generations import SCHEMA_VERSION
from kvfold.projector.tables import TABLES, PartitionState, TableSpec
from kvfold.reads.statements import in_generation
from kvfold.schemas.projection import schema_name
from support.projection import set_up

pytestmark = pytest.mark.postgres

STORES_OWN = {"partition_offset", "claim", "worker", "pause"}
TABLES_AND_HISTORIES = {
    **TABLES,
    **{f"{spec.name}_history": spec for spec in TABLES.values() if spec.has_history},
}
SCHEMA = schema_name(1)
# Columns that Postgres works out from others, by table; they are the same in its history.
GENERATED = {"deployment_entry": [("sha256", "bytea")]}


class Column(NamedTuple):
    """A column as Postgres describes it. `collation` is None for the database's own."""

    name: str
    type: str
    optional: bool
    collation: str | None


@pytest.fixture
def connection(postgres_dsn: str) -> Iterator[psycopg.Connection]:
    set_up(postgres_dsn, MemoryLog(partition_count=1))
    with psycopg.connect(postgres_dsn, autocommit=True) as opened:
        yield opened


def test_a_generation_has_the_tables_of_the_fold_and_the_stores_own(connection: psycopg.Connection) -> None:
    found = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (SCHEMA,)
    )
    assert {name for (name,) in found} == {*TABLES_AND_HISTORIES, *STORES_OWN}


@pytest.mark.parametrize("table", TABLES_AND_HISTORIES)
def test_columns_and_key(connection: psycopg.Connection, table: str) -> None:
    spec = TABLES_AND_HISTORIES[table]
    # An old row is told from the others of its key by the offset that wrote it; `valid_to` is when it ended.
    is_history = table != spec.name
    expected = [
        (name, type_, optional)
        for name, type_, optional in zip(spec.columns, spec.types, _optional(spec), strict=True)
    ] + [("valid_to", "int8", False)] * is_history
    expected += [(name, type_, True) for name, type_ in GENERATED.get(spec.name, ())]
    columns = _columns(connection, table)
    assert [(column.name, column.type, column.optional) for column in columns] == expected
    key = [*spec.columns[: spec.key_size], *([spec.valid_from] if is_history else [])]
    assert _key(connection, table) == key
    # Keys compare as bytes, in every place where they are in order.
    assert {column.collation for column in columns if column.name in key and column.type == "text"} <= {"C"}


def test_the_offset_row_holds_the_partitions_state(connection: psycopg.Connection) -> None:
    columns = {column.name: column for column in _columns(connection, "partition_offset")}
    hints = typing.get_type_hints(PartitionState)
    assert {name: columns[name].optional for name in PartitionState._fields} == {
        name: _allows_none(hints[name]) for name in PartitionState._fields
    }
    assert _key(connection, "partition_offset") == ["partition"]


def test_reads_find_what_the_projector_writes(connection: psycopg.Connection) -> None:
    """The reads never import the projector: the tables are the contract."""
    files = [
        file
        for file in resources.files("kvfold.reads").joinpath("sql").iterdir()
        if file.name.endswith(".sql")
    ]
    assert files
    for file in files:
        for version in (1, SCHEMA_VERSION):
            # A generation of the version before lacks columns: what reads work out there, they work out here, too.
            text = in_generation(file.read_text("utf-8"), 1, version)
            name = f"{file.name.removesuffix('.sql')}_{version}"
            connection.execute(f"PREPARE {name} AS {text}".encode())


def _columns(connection: psycopg.Connection, table: str) -> list[Column]:
    found = connection.execute(
        "SELECT column_name, udt_name, is_nullable = 'YES', collation_name FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (SCHEMA, table),
    )
    return [Column(*row) for row in found]


def _key(connection: psycopg.Connection, table: str) -> list[str]:
    """The columns of the primary key, in its order."""
    found = connection.execute(
        "SELECT k.column_name FROM information_schema.table_constraints c "
        "JOIN information_schema.key_column_usage k USING (constraint_schema, constraint_name) "
        "WHERE c.table_schema = %s AND c.table_name = %s AND c.constraint_type = 'PRIMARY KEY' "
        "ORDER BY k.ordinal_position",
        (SCHEMA, table),
    )
    return [cast(str, name) for (name,) in found]


def _optional(spec: TableSpec) -> list[bool]:
    hints = typing.get_type_hints(spec.row)
    return [_allows_none(hints[column]) for column in spec.columns]


def _allows_none(hint: object) -> bool:
    return isinstance(hint, types.UnionType) and types.NoneType in typing.get_args(hint)
