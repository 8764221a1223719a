"""The SQL of the reads, one statement a file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final, LiteralString

from kvfold.schemas.projection import schema_name

__all__ = ["in_generation", "statement"]

# What a column of a later schema version is in a generation that has it, and in one of the version before: there it is
# worked out at reading, so that an answer never depends on which generation serves.
_SINCE_2: Final = {"{x.sha256}": ("x.sha256", "sha256(x.value)")}


@cache
def statement(name: LiteralString) -> str:
    """The text of `sql/{name}.sql`; see `in_generation` for what it leaves open."""
    return files("kvfold.reads").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8").strip()


def in_generation(text: str, generation: int, schema_version: int) -> str:
    """A statement for the tables of one generation: `{g}` is its schema, `{x.sha256}` a column since schema version 2."""
    for column, (kept, worked_out) in _SINCE_2.items():
        text = text.replace(column, kept if schema_version >= 2 else worked_out)
    return text.replace("{g}", schema_name(generation))
