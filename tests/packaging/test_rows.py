"""Requirement rows: `tests/rows.toml` says what has landed, tests marked `row` prove it, and the two agree."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STATES = {"landed", "partly", "open"}
ROWS = {"O": 28, "C": 22, "D": 20, "X": 14}


@pytest.fixture(scope="module")
def rows(project: Path) -> dict[str, dict[str, str]]:
    """The table of rows, by id."""
    content: dict[str, Any] = tomllib.loads((project / "tests" / "rows.toml").read_text("utf-8"))
    return content


@pytest.fixture(scope="module")
def claims(project: Path, tracked: tuple[Path, ...]) -> dict[str, list[str]]:
    """Where each row is claimed to be proven, by row id."""
    found: dict[str, list[str]] = {}
    for name in tracked:
        if name.parts[0] == "tests" and name.suffix == ".py":
            for line, row in _marked((project / name).read_text("utf-8")):
                found.setdefault(row, []).append(f"{name}:{line}")
    return found


def _marked(source: str) -> Iterator[tuple[int, str]]:
    """Line and id of every `pytest.mark.row(...)`: at a test, a class, a module or a parameter."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.row":
            ids = [argument.value if isinstance(argument, ast.Constant) else None for argument in node.args]
            for row in ids or [None]:
                yield node.lineno, str(row)


def test_every_row_is_listed_once_and_in_order(rows: dict[str, dict[str, str]]) -> None:
    assert list(rows) == [
        f"{family}{number}" for family, count in ROWS.items() for number in range(1, count + 1)
    ]


def test_a_row_says_how_far_it_is(rows: dict[str, dict[str, str]]) -> None:
    assert {row["state"] for row in rows.values()} <= STATES
    fields = {"what", "state"}
    for name, row in rows.items():
        assert set(row) == fields | ({"landed", "open"} if row["state"] == "partly" else set()), name
        assert all(row.values()), name


def test_what_has_landed_is_proven(rows: dict[str, dict[str, str]], claims: dict[str, list[str]]) -> None:
    assert [name for name, row in rows.items() if row["state"] != "open" and name not in claims] == []


def test_what_is_claimed_is_listed_as_landed(
    rows: dict[str, dict[str, str]], claims: dict[str, list[str]]
) -> None:
    unknown = {row: places for row, places in claims.items() if row not in rows}
    open_ = {row: places for row, places in claims.items() if row in rows and rows[row]["state"] == "open"}
    assert (unknown, open_) == ({}, {})


def test_how_markers_are_found() -> None:
    source = """
import pytest
pytestmark = [pytest.mark.slow, pytest.mark.row("X1")]
@pytest.mark.row("C1", "C2")
@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.row("D1"))])
def test_it(n): ...
@pytest.mark.row()
class TestThat: ...
"""
    assert sorted(row for _, row in _marked(source)) == ["C1", "C2", "D1", "None", "X1"]
