"""SQL of the projector: files, with `{g}` for the generation's schema, and the write statements of each table.

The write statements are made from the table specifications, one shape for all tables, so that a column stands in one
place only. Parameters are arrays in binary format, one a column; a single row may be given as it is, since arrays cost
more than all the rest of a commit of one record.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from kvfold.projector.tables import TABLES, TableSpec
from kvfold.schemas.projection import schema_name

__all__ = [
    "copy_sql",
    "delete_sql",
    "insert_sql",
    "move_sql",
    "sql_file",
    "sql_files",
    "sweep_sql",
    "upsert_sql",
]


@lru_cache(maxsize=512)
def sql_file(name: str, generation: int) -> str:
    """The statement in `sql/<name>.sql`, for a generation."""
    text = resources.files("kvfold.projector").joinpath("sql", f"{name}.sql").read_text("utf-8")
    return text.replace("{g}", schema_name(generation)).strip()


def sql_files(folder: str, generation: int) -> list[str]:
    """All statements of a folder, in the order of their names."""
    names = sorted(
        path.name for path in resources.files("kvfold.projector").joinpath("sql", folder).iterdir()
    )
    return [
        sql_file(f"{folder}/{name.removesuffix('.sql')}", generation)
        for name in names
        if name.endswith(".sql")
    ]


def _columns_and_types(table: str) -> tuple[TableSpec, list[str], list[str]]:
    """Of a table or its history, whose last column is `valid_to`."""
    spec = TABLES[table.removesuffix("_history")]
    extra = table.endswith("_history")
    return spec, [*spec.columns, *["valid_to"] * extra], [*spec.types, *["int8"] * extra]


def _array(type_: str) -> str:
    # A list of Python strings goes over as text and is cast here; integers may come as a narrower type.
    return "%b::text[]::uuid[]" if type_ == "uuid" else f"%b::{type_}[]"


def _scalar(type_: str) -> str:
    return "%b::text::uuid" if type_ == "uuid" else f"%b::{type_}"


@lru_cache(maxsize=512)
def insert_sql(table: str, generation: int, *, single: bool = False) -> str:
    """Inserts rows given as one array a column, or a `single` row given by its values."""
    _, columns, types = _columns_and_types(table)
    if single:
        source = f"VALUES ({', '.join(map(_scalar, types))})"
    else:
        source = f"SELECT * FROM unnest({', '.join(map(_array, types))})"
    return f"INSERT INTO {schema_name(generation)}.{table} ({', '.join(columns)}) {source}"


@lru_cache(maxsize=512)
def upsert_sql(table: str, generation: int, *, single: bool = False) -> str:
    """As `insert_sql`; replaces rows with the same key."""
    spec, columns, _ = _columns_and_types(table)
    sets = ", ".join(f"{column} = excluded.{column}" for column in columns[spec.key_size :])
    insert = insert_sql(table, generation, single=single)
    return f"{insert} ON CONFLICT ({', '.join(columns[: spec.key_size])}) DO UPDATE SET {sets}"


def _found(table: str, generation: int, *, extra: str = "") -> str:
    """Where the rows stand whose keys are given as one array a column: a subquery of `place` (and `extra`).

    One lookup a key, by the primary key: OFFSET 0 keeps the planner from turning the join around, which it would do with
    a plan made while the table was empty.
    """
    spec = TABLES[table]
    columns, types = spec.columns[: spec.key_size], spec.types[: spec.key_size]
    arrays = ", ".join(_array(type_) for type_ in types) + (", %b::int8[]" if extra else "")
    names = ", ".join(columns) + (f", {extra}" if extra else "")
    match = " AND ".join(f"x.{column} = k.{column}" for column in columns)
    lookup = f"SELECT x.ctid AS place FROM {schema_name(generation)}.{table} x WHERE {match} OFFSET 0"
    result = f"f.place, k.{extra}" if extra else "f.place"
    return f"SELECT {result} FROM unnest({arrays}) AS k ({names}) CROSS JOIN LATERAL ({lookup}) f"


@lru_cache(maxsize=512)
def delete_sql(table: str, generation: int) -> str:
    """Deletes the rows whose keys are given as one array a column."""
    found = _found(table, generation)
    return f"DELETE FROM {schema_name(generation)}.{table} t USING ({found}) AS y WHERE t.ctid = y.place"


@lru_cache(maxsize=512)
def sweep_sql(table: str, generation: int) -> str:
    """Deletes every row of the scopes that are given as one array; for tables without history."""
    assert not TABLES[table].has_history, table
    return f"DELETE FROM {schema_name(generation)}.{table} WHERE scope = ANY (%b::text[])"


@lru_cache(maxsize=512)
def move_sql(table: str, generation: int) -> str:
    """Moves rows to the table's history; keys as arrays, then an array of `valid_to`."""
    schema, found = schema_name(generation), _found(table, generation, extra="valid_to")
    columns = TABLES[table].columns
    old, new = (", ".join(f"{of}{column}" for column in columns) for of in ("t.", ""))
    return (
        f"WITH gone AS (DELETE FROM {schema}.{table} t USING ({found}) AS y WHERE t.ctid = y.place "
        f"RETURNING {old}, y.valid_to) INSERT INTO {schema}.{table}_history ({new}, valid_to) SELECT * FROM gone"
    )


@lru_cache(maxsize=512)
def copy_sql(table: str, generation: int) -> tuple[str, list[str]]:
    """A binary COPY into the table, and the types to declare for it."""
    _, columns, types = _columns_and_types(table)
    names = ", ".join(columns)
    return f"COPY {schema_name(generation)}.{table} ({names}) FROM STDIN (FORMAT BINARY)", types
