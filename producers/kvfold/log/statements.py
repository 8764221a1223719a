"""The SQL of the embedded log, one statement a file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import LiteralString

__all__ = ["statement"]


@cache
def statement(name: LiteralString) -> LiteralString:
    """The text of `sql/{name}.sql`."""
    return files("kvfold.log").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
