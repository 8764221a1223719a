"""Query plans: made while every table is empty, and still look-ups by index when they have grown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from typing import Any

import pytest

from kvfold.projector.generations import SCHEMA_VERSION
from kvfold.reads.changes import WATCHED_FAMILIES, changes
from kvfold.reads.executor import PLAN_SETTINGS
from kvfold.reads.statements import in_generation, statement
from support.projection_rows import ProjectionRows

pytestmark = pytest.mark.postgres

TABLES_THAT_GROW = (
    *(
        "decision",
        "mutation_id",
        "capsule_entry",
        "capsule_scope",
        "deployment_entry",
        "orchestration_instance",
        "capsule_entry_history",
        "deployment_entry_history",
        "orchestration_instance_history",
        "orchestration_kv_history",
        "orchestration_execution",
    ),
    "orchestration_kv",
)
# What has a row for each partition or generation is read whole.
NAMES = sorted(path.name.removesuffix(".sql") for path in files("kvfold.reads").joinpath("sql").iterdir())

READS_OF_THE_PAST = {name for name in NAMES if name.endswith(("_as_of", "_at"))}
OF_THE_PAST = ("as_of", "valid_from", "valid_to", "updated_at")
# What a record wrote is looked up by its key, and is there if it is that record's. Records that did not apply are passed.
FILTERED = {
    "change_value": {"valid_from"},
    "snapshot_capsule": {"valid_from", "key"},
    "snapshot_deployment": {"valid_from", "key", "namespace", "row"},
    "snapshot_orchestration": {"valid_from"},
    "prunable": {"ended_ms"},
    "changes": {"valid_from", "record_offset", "status", "applied", "text", "repeat_of"},
}
SIGNS = {"offset_at_time": ">=", "history": ">=", "changes": ">"}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def plan_of(
    rows: ProjectionRows, name: str, text: str | None = None, *, schema_version: int = SCHEMA_VERSION
) -> dict[str, Any]:
    text = in_generation(text or statement(name), 1, schema_version)
    count = max((n for n in range(10) if f"${n}" in text), default=0)
    rows.connection.execute(f"PREPARE plan_{name}_{schema_version} AS {text}".encode())
    nulls = f"({', '.join(['NULL'] * count)})" if count else ""
    row = rows.connection.execute(
        f"EXPLAIN (FORMAT JSON) EXECUTE plan_{name}_{schema_version}{nulls}".encode()
    ).fetchone()
    assert row is not None
    document = row[0] if isinstance(row[0], list) else json.loads(row[0])
    plan: dict[str, Any] = document[0]["Plan"]
    return plan


def test_every_read_of_a_table_that_grows_is_by_index(rows: ProjectionRows) -> None:
    rows.connection.execute(PLAN_SETTINGS.encode())
    seen = set[str]()
    for name, version in product(NAMES, (SCHEMA_VERSION - 1, SCHEMA_VERSION)):
        for node in nodes(plan_of(rows, name, schema_version=version)):
            table = node.get("Relation Name")
            if table not in TABLES_THAT_GROW:
                continue
            seen.add(table)
            assert node["Node Type"] in ("Index Scan", "Index Only Scan"), (name, node)
            # A look-up or a range: the index is entered at a place, with nothing left to filter but tombstones, and in
            # the past whether the one row that was found was true then.
            assert "Index Cond" in node, (name, node)
            filtered = set(re.findall(r"[a-z_]{3,}", node.get("Filter", "")))
            allowed = OF_THE_PAST if name in READS_OF_THE_PAST else FILTERED.get(name, ())
            assert filtered <= {"value", *allowed}, (name, node)
            assert "Join Filter" not in node, (name, node)
            if table == "decision":
                assert f"record_offset {SIGNS.get(name, '=')}" in node["Index Cond"], (name, node)
                if name == "history":
                    assert node["Index Name"] == "decision_scope" and "scope =" in node["Index Cond"], node
    assert seen == set(TABLES_THAT_GROW)


def test_status_pages_go_by_their_own_index(rows: ProjectionRows) -> None:
    rows.connection.execute(PLAN_SETTINGS.encode())
    found = [node.get("Index Name") for node in nodes(plan_of(rows, "instances_by_status"))]
    assert "orchestration_instance_status" in found


def test_changes_of_a_scope_go_by_their_own_index(rows: ProjectionRows) -> None:
    rows.connection.execute(PLAN_SETTINGS.encode())
    query = changes(0, after=-1, families=WATCHED_FAMILIES, scope="d:dep")
    (node,) = (
        node
        for node in nodes(plan_of(rows, "changes_of_scope", query.statement))
        if node.get("Relation Name") == "decision"
    )
    assert node["Index Name"] == "decision_scope"
    assert "scope =" in node["Index Cond"] and "record_offset >" in node["Index Cond"]
