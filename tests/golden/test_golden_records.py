"""Golden records of each format level: what is in a log folds the same for ever, on every Python.

The files are written by hand and never edited. A new case is a new file; `SHA256SUMS` of its level grows by its line.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from kvfold.projector.memory_store import MemoryStore
from kvfold.schemas.outcome import CONFLICT_CODES, REJECTION_CODES
from kvfold.schemas.types import FORMAT_LEVEL, MUTATION_TYPES
from support.given import check_usage, snapshot
from support.golden import GOLDEN, GoldenFile, changes_between, golden_files, rows_by_key

__all__: list[str] = []

_files = pytest.mark.parametrize("path", golden_files(), ids=lambda path: f"{path.parent.name}-{path.stem}")


def _sorted(tables: dict[str, list[dict[str, object]]]) -> dict[str, list[dict[str, object]]]:
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}


def _said(entry: dict[str, Any]) -> str:
    return f"offset {entry['offset']}: {entry['comment']}"


@pytest.mark.row("X12")
@_files
def test_each_record_changes_exactly_what_the_file_says(path: Path) -> None:
    file = GoldenFile(path)
    store = MemoryStore()
    for entry, record in zip(file.entries, file.records, strict=True):
        before = rows_by_key(store)
        file.fold(store, [record])
        puts, gone = changes_between(before, rows_by_key(store), silent_on=file.silent_on)
        expected_puts, expected_gone = _sorted(file.expected_puts(entry)), _sorted(file.expected_gone(entry))
        assert _sorted(puts) == expected_puts, _said(entry)
        assert _sorted(gone) == expected_gone, _said(entry)
        check_usage(store)
    assert store.state(file.partition) == file.state


@pytest.mark.row("X2")
@_files
def test_folded_as_one_batch_the_rows_are_the_same(path: Path) -> None:
    file = GoldenFile(path)
    one, many = MemoryStore(), MemoryStore()
    file.fold(one, file.records)
    for record in file.records:
        file.fold(many, [record])
    assert snapshot(one) == snapshot(many)


@_files
def test_a_file_shows_its_type_accepted_and_refused(path: Path) -> None:
    file = GoldenFile(path)
    own = [entry["decision"] for entry in file.entries if entry["decision"]["type"] == file.type]
    statuses = {decision["status"] for decision in own}
    # At level 1 the only level that may follow was above the release that the file was written for.
    first_raises = file.type == "kvfold.system.format-raised.v1" and file.level == 1
    accepted = set() if first_raises else {"applied"}
    unconditional = {"kvfold.capsule.prefix-cleared.v1", "kvfold.capsule.namespace-cleared.v1"}
    unconditional |= {"kvfold.capsule.quota-set.v1", "kvfold.deployment.undeployed.v1"}
    unconditional |= {"kvfold.system.format-raised.v1"}
    conflicting = set() if file.type in unconditional else {"conflict"}
    assert statuses == {"rejected"} | accepted | conflicting


@pytest.mark.row("X12")
def test_every_type_has_a_golden_file_at_the_level_where_it_begins_and_no_other() -> None:
    types = {(name, row.level) for name, row in MUTATION_TYPES.items()}
    files = [GoldenFile(path) for path in golden_files()]
    assert {(file.type, file.level) for file in files} >= types
    assert {file.type for file in files} == {name for name, _ in types}
    assert [path.stem for path in golden_files()] == [
        file.type.removeprefix("kvfold.").rpartition(".")[0] for file in files
    ]


@pytest.mark.parametrize("level", range(1, FORMAT_LEVEL + 1))
def test_golden_files_are_never_edited(level: int) -> None:
    folder = GOLDEN / f"v{level}"
    lines = [line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
    listed = {name: digest for digest, name in lines}
    actual = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.json")}
    assert actual == listed, "a golden file is written once: add a file instead"


@pytest.mark.row("X12")
def test_both_versions_of_a_type_fold_side_by_side() -> None:
    """One log that holds records of both, the older one with the meaning that it always had."""
    file = GoldenFile(GOLDEN / "v2" / "orchestration.executions-pruned.json")
    applied = {e["decision"]["type"] for e in file.entries if e["decision"]["status"] == "applied"}
    name = "kvfold.orchestration.executions-pruned"
    assert {f"{name}.v1", f"{name}.v2"} <= applied
    store = MemoryStore()
    file.fold(store, file.records)
    assert store.state(file.partition).format_level == 2


def test_codes_that_golden_records_show() -> None:
    """Every code that a record can get is shown at least once."""
    shown = {entry["decision"]["code"] for path in golden_files() for entry in GoldenFile(path).entries}
    assert shown - {None} == CONFLICT_CODES | REJECTION_CODES
