"""The SQL of the reads, one statement a file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import LiteralString

__all__ = ["statement"]


@cache
def statement(name: LiteralString) -> str:
    """The text of `sql/{name}.sql`; `{g}` in it stands for a generation's schema."""
    return files("kvfold.reads").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8").strip()
