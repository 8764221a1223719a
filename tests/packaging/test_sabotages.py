"""The sabotages still fit the code: what they replace is there once, their tests exist, and the README lists them.

Whether each is noticed is seen by running `tests/sabotage`, which takes too long for every run of the tests.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

__all__: list[str] = []


@pytest.fixture(scope="module")
def entries(project: Path) -> list[dict[str, Any]]:
    """Every sabotage."""
    files = (project / "tests" / "sabotages").glob("*.toml")
    return [entry for path in files for entry in tomllib.loads(path.read_text("utf-8"))["sabotage"]]


def test_what_is_replaced_stands_there_once(project: Path, entries: list[dict[str, Any]]) -> None:
    found = []
    for entry in entries:
        for part in (entry, *entry.get("also", [])):
            path = project / part["file"]
            count = path.read_text("utf-8").count(part["old"]) if path.is_file() else 0
            if count != 1 or part["old"] == part["new"]:
                found.append(f"{entry['promise']}: {part['file']} has it {count} times: {part['old']}")
    assert found == []


def test_every_sabotage_has_its_test(project: Path, entries: list[dict[str, Any]]) -> None:
    defined = {
        name: {
            node.name
            for node in ast.walk(ast.parse((project / name).read_text("utf-8")))
            if isinstance(node, ast.FunctionDef)
        }
        for name in {*(entry["test"].partition("::")[0] for entry in entries), *chain(*_CONTRACTS.values())}
    }
    missing = []
    for entry in entries:
        path, _, rest = entry["test"].partition("::")
        name = rest.partition("[")[0].rpartition("::")[2]
        suites = [name for begin, names in _CONTRACTS.items() if path.startswith(begin) for name in names]
        if name not in defined[path].union(*(defined[suite] for suite in suites)):
            missing.append(entry["test"])
    assert missing == []


def test_entries_are_complete(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        assert entry["source"] == "issue" or entry["source"].startswith("cases: "), entry
        assert date.fromisoformat(entry["seen"]) and entry["sabotage"], entry
    assert [
        promise for promise, count in Counter(entry["promise"] for entry in entries).items() if count > 1
    ] == []


def test_the_tables_in_the_readme_are_these(project: Path) -> None:
    command = [sys.executable, str(project / "tests" / "sabotage"), "--table"]
    table = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert table in (project / "tests" / "README.md").read_text("utf-8"), "python tests/sabotage --write"


_CONTRACTS: Final = {
    "tests/conformance/test_log_": (
        "tests/conformance/log_contract.py",
        "tests/conformance/record_contexts_contract.py",
    ),
    "tests/conformance/test_object_store_": ("tests/conformance/object_store_contract.py",),
    "tests/conformance/test_kv_store_": (
        "tests/conformance/kv_store_contract.py",
        "tests/conformance/kv_host_contract.py",
    ),
}
"""Suites whose tests are inherited, by how the files begin that inherit them."""
