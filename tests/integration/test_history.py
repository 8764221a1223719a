"""The history of a scope over HTTP (row X9): every attempt, also refused ones, by pages, and of one key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from kvfold.projector.tables import DecisionRow
from kvfold.schemas.partitioning import partition_of
from support.past import PARTITIONS, Past, folded_past

pytestmark = pytest.mark.postgres

SCOPES = {"c:bob:capsule:notes": "capsule", "d:one": "deployment", "o:i1": "orchestration"}


@pytest.fixture(scope="module")
def past(postgres_admin_dsn: str) -> Iterator[Past]:
    with folded_past(postgres_admin_dsn, seed=5, count=600) as folded:
        yield folded


def partition(scope: str) -> int:
    return partition_of(scope.encode(), PARTITIONS)


def decisions(past: Past, scope: str) -> list[DecisionRow]:
    """What was decided about a scope in its partition, newest first."""
    number = partition(scope)
    store = past.prefix(number, past.records[number][-1].offset)
    rows = [DecisionRow(*row) for row in store.rows("decision")]  # type: ignore[arg-type]
    return [row for row in reversed(rows) if row.scope == scope]


def pages(past: Past, scope: str, more: str = "", *, limit: int = 7) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        target = f"/v1/history/{SCOPES[scope]}/{quote(scope, safe='')}?limit={limit}{more}"
        answered = past.api.get(target + ("" if cursor is None else f"&cursor={cursor}"))
        assert answered.status == 200, answered.body
        assert len(answered.json["history"]) <= limit
        found += answered.json["history"]
        cursor = answered.json["next_cursor"]
        if cursor is None:
            return found


@pytest.mark.row("X9")
@pytest.mark.parametrize("scope", SCOPES)
def test_every_attempt_newest_first(past: Past, scope: str) -> None:
    number = partition(scope)
    expected = decisions(past, scope)
    found = pages(past, scope)
    assert [entry["position"] for entry in found] == [f"{number}:{row.record_offset}" for row in expected]
    for entry, row in zip(found, expected, strict=True):
        assert (entry["status"], entry["code"], entry["version"]) == (row.status, row.code, row.version)
        assert (entry["removed"], entry["detail"], entry["actor"]) == (row.removed, row.detail, row.actor)
        assert (entry["id"], entry["type"], entry["namespace"]) == (row.mutation_id, row.type, row.namespace)
        assert entry["keys"] == json.loads(row.keys or "[]")
        repeated = None if row.repeat_of is None else f"{number}:{row.repeat_of}"
        assert entry["repeat_of"] == repeated
        if row.type == "kvfold.capsule.prefix-cleared.v1":
            assert (entry["key"], entry["prefix"]) == (None, row.subject or "")
        else:
            assert (entry["key"], entry["prefix"]) == (row.subject, None)
    statuses = {entry["status"] for entry in found}
    assert statuses >= {"applied", "conflict"}, "the workload has something of everything"
    assert any(entry["repeat_of"] for entry in found)


def concerns(row: DecisionRow, key: str) -> bool:
    swept = ("capsule.namespace-cleared.v1", "deployment.undeployed.v1", "orchestration.instance-deleted.v1")
    if row.type == "kvfold.capsule.prefix-cleared.v1":
        return key.startswith(row.subject or "")
    return (
        row.subject == key
        or key in json.loads(row.keys or "[]")
        or (row.type or "").removeprefix("kvfold.") in swept
    )


@pytest.mark.row("X9")
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("key", ["a", "ab", "é", "never"])
def test_of_one_key_what_named_it_or_swept_it(past: Past, scope: str, key: str) -> None:
    expected = [row.record_offset for row in decisions(past, scope) if concerns(row, key)]
    found = pages(past, scope, f"&key={quote(key)}", limit=3)
    assert [int(entry["position"].split(":")[1]) for entry in found] == expected
    assert expected


@pytest.mark.row("X9")
def test_of_one_namespace(past: Past) -> None:
    rows = decisions(past, "d:one")
    undeployed = "kvfold.deployment.undeployed.v1"
    expected = [row.record_offset for row in rows if row.namespace == "x_secrets" or row.type == undeployed]
    found = pages(past, "d:one", "&namespace=x_secrets")
    assert [int(entry["position"].split(":")[1]) for entry in found] == expected
    assert len(expected) < len(rows)


def test_no_value_is_in_the_history_of_a_secret(past: Past) -> None:
    for entry in pages(past, "d:one", "&namespace=x_secrets"):
        assert not {"value", "value_base64", "body"} & entry.keys()
        assert "S1ZT" not in json.dumps(entry) and "KVS1" not in json.dumps(entry)


@pytest.mark.row("X9")
def test_what_was_trimmed_is_told_and_an_older_cursor_is_gone(past: Past) -> None:
    number = partition("d:one")
    middle = past.records[number][len(past.records[number]) // 2].offset
    with psycopg.connect(past.dsn, autocommit=True) as connection:
        move = "UPDATE kvfold_g1.partition_offset SET deployment_from = %s WHERE partition = %s"
        connection.execute(move.encode(), (middle, number))
        try:
            found = pages(past, "d:one")
            kept = [row.record_offset for row in decisions(past, "d:one") if row.record_offset >= middle]
            assert [int(entry["position"].split(":")[1]) for entry in found] == kept
            answered = past.api.get("/v1/history/deployment/d:one")
            assert answered.json["kept_from"] == f"{number}:{middle}"
            older = past.api.get(f"/v1/history/deployment/d:one?cursor={number}:{middle - 1}")
            assert (older.status, older.code) == (410, "gone")
            # Another family has its own horizon.
            assert past.api.get("/v1/history/capsule/c:bob:capsule:notes").json["kept_from"].endswith(":0")
        finally:
            connection.execute(move.encode(), (0, number))


@pytest.mark.row("X9")
def test_a_page_of_one_key_ends_after_so_many_decisions_and_goes_on(past: Past) -> None:
    number = partition("d:busy")
    with psycopg.connect(past.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO kvfold_g1.decision (partition, record_offset, scope, type, namespace, subject, status, time_ms) "
            "SELECT %s, 100000 + n, 'd:busy', 'kvfold.deployment.put.v1', 'user', "
            "CASE WHEN n = 1 THEN 'rare' ELSE 'often' END, 'applied', 0 FROM generate_series(1, 5200) AS n",
            (number,),
        )
    target = "/v1/history/deployment/d:busy?key=rare"
    first = past.api.get(target).json
    assert (first["history"], first["next_cursor"]) == ([], f"{number}:100201")
    second = past.api.get(f"{target}&cursor={first['next_cursor']}").json
    assert [entry["position"] for entry in second["history"]] == [f"{number}:100001"]
    assert second["next_cursor"] is None


def test_what_is_refused_says_why(past: Past) -> None:
    for target, code in (
        ("capsule/d:one", "malformed-scope"),
        ("deployment/one", "malformed-scope"),
        ("system/s:1", "malformed-family"),
        ("deployment/d:one?cursor=x", "malformed-cursor"),
        (f"deployment/d:one?cursor={1 - partition('d:one')}:4", "malformed-cursor"),
        ("deployment/d:one?limit=0", "malformed-limit"),
        ("capsule/c:bob:capsule:notes?namespace=user", "invalid-namespace"),
    ):
        answered = past.api.get(f"/v1/history/{target}")
        assert (answered.status, answered.code) == (400, code), target
    nothing = past.api.get("/v1/history/orchestration/o:never")
    assert (nothing.status, nothing.json["history"]) == (200, [])
