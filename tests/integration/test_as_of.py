"""Reads of the past (row X8): as of every position they give what folding the log up to there gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.tables import CapsuleEntry, DeploymentEntry, Instance, KvEntry
from kvfold.schemas.partitioning import partition_of
from support.past import PARTITIONS, START_MS, Past, folded_past

pytestmark = pytest.mark.postgres

CAPSULES = ("c:alice:capsule:notes", "c:bob:capsule:notes", "c:bob:capsule:x")
DEPLOYMENTS = ("d:one", "d:two")
INSTANCES = ("o:i1", "o:i2", "o:i3")
RECORDS = 400
POSITIONS = re.compile(r"[ ,0-9]+:[-, :0-9]+", re.ASCII)


@pytest.fixture(scope="module")
def past(postgres_admin_dsn: str) -> Iterator[Past]:
    with folded_past(postgres_admin_dsn, seed=11, count=RECORDS) as folded:
        yield folded


def partition(scope: str) -> int:
    return partition_of(scope.encode(), PARTITIONS)


def capsule_path(scope: str) -> str:
    _, principal, _, capsule_id = scope.split(":")
    return f"/v1/capsules/{principal}/{capsule_id}"


def entries(store: MemoryStore, scope: str) -> dict[str, CapsuleEntry]:
    rows = [CapsuleEntry(*row) for row in store.rows("capsule_entry")]  # type: ignore[arg-type]
    return {row.key: row for row in rows if row.scope == scope}


def objects(store: MemoryStore, scope: str, namespace: str) -> dict[str, DeploymentEntry]:
    rows = [DeploymentEntry(*row[:8]) for row in store.rows("deployment_entry")]  # type: ignore[arg-type]
    return {
        row.key: row
        for row in rows
        if (row.scope, row.namespace) == (scope, namespace) and row.value is not None
    }


def keys_by_pages(past: Past, target: str, member: str, *, limit: int) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    while True:
        more = "" if cursor is None else f"&cursor={quote(cursor, safe='')}"
        answered = past.api.get(f"{target}&limit={limit}{more}")
        assert answered.status == 200, answered.body
        page = answered.json
        found += page[member]
        assert len(page[member]) <= limit
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@pytest.mark.row("X8")
@pytest.mark.parametrize("scope", CAPSULES)
def test_a_capsule_as_of_every_position(past: Past, scope: str) -> None:
    base, number = capsule_path(scope), partition(scope)
    alive = 0
    for offset in past.offsets(number):
        expected = entries(past.prefix(number, offset), scope)
        keys = keys_by_pages(past, f"{base}/keys?as_of={number}:{offset}", "keys", limit=2)
        assert keys == sorted(expected, key=str.encode), offset
        for key in ("a", "ab", "é"):
            answered = past.api.get(f"{base}/kv/{quote(key)}?as_of={number}:{offset}")
            assert answered.headers["x-kvfold-position"] == f"{number}:{offset}"
            row = expected.get(key)
            assert answered.status == (404 if row is None else 200), (offset, key)
            if row is not None:
                alive += 1
                assert answered.body == row.value
                assert answered.headers["etag"] == f'"{row.sha256.hex()}"'
    assert alive > 20, "the workload has something to say"


@pytest.mark.row("X8")
@pytest.mark.parametrize("scope", DEPLOYMENTS)
def test_a_deployment_as_of_every_position(past: Past, scope: str) -> None:
    base, number = f"/deployments/{scope[2:]}", partition(scope)
    undeployed = 0
    before: list[str] = []
    for offset in past.offsets(number):
        expected = objects(past.prefix(number, offset), scope, "user")
        as_of = f"as_of={number}:{offset}"
        listed = keys_by_pages(past, f"{base}/objects?namespace=user&{as_of}", "objects", limit=1)
        assert [(item["key"], item["version"], item["size"]) for item in listed] == [
            (key, row.version, len(row.value or b"")) for key, row in sorted(expected.items())
        ], offset
        names = past.api.get(f"{base}/namespaces?{as_of}").json["namespaces"]
        assert names == (["user"] if expected else []), offset
        for key in ("a", "b"):
            answered = past.api.get(f"{base}/kv/user/{key}?{as_of}")
            row = expected.get(key)
            assert answered.status == (404 if row is None else 200), (offset, key)
            if row is not None:
                assert (answered.body, answered.headers["x-object-version"]) == (row.value, str(row.version))
                assert (
                    past.api.get(f"{base}/objects/{key}?namespace=user&{as_of}").json["version"]
                    == row.version
                )
        undeployed += len(before) > 1 and not expected
        before = list(expected)
    assert undeployed > 0, "the workload undeploys something that was there"


@pytest.mark.row("X8")
@pytest.mark.parametrize("scope", INSTANCES)
def test_an_instance_as_of_every_position(past: Past, scope: str) -> None:
    base, number = f"/v1/instances/{scope[2:]}", partition(scope)
    seen = set[str]()
    for offset in past.offsets(number):
        store = past.prefix(number, offset)
        rows = [Instance(*row) for row in store.rows("orchestration_instance")]  # type: ignore[arg-type]
        found = {row.scope: row for row in rows}.get(scope)
        keys = [KvEntry(*row) for row in store.rows("orchestration_kv")]  # type: ignore[arg-type]
        kv = {
            row.key: {"value": row.value, "execution_id": row.execution_id}
            for row in keys
            if row.scope == scope
        }
        answered = past.api.get(f"{base}?as_of={number}:{offset}")
        assert answered.headers["x-kvfold-position"] == f"{number}:{offset}"
        assert answered.status == (404 if found is None else 200), offset
        assert past.api.get(f"{base}/kv?as_of={number}:{offset}").status == answered.status
        value = past.api.get(f"{base}/kv/a?as_of={number}:{offset}")
        assert value.status == (200 if "a" in kv else 404)
        if found is None:
            continue
        seen.add(found.status)
        shown = answered.json
        assert shown["kv"] == kv
        assert (shown["status"], shown["incarnation"], shown["execution_id"], shown["owner"]) == (
            *(found.status, found.incarnation, found.execution_id, found.worker),
        )
        assert (shown["custom_status"], shown["failure"]) == (found.custom_status, found.failure)
        assert shown["history_length"] == found.history_length
    assert seen, "the workload has such an instance"


@pytest.mark.row("X8")
def test_the_list_of_instances_as_of_positions_and_as_of_a_time(past: Past) -> None:
    for at in range(0, RECORDS, 23):
        time_ms = START_MS + at * 1_000
        positions = {number: at_time(past, number, time_ms) for number in range(PARTITIONS)}
        expected = sorted(
            (str(row[0])[2:], row[5])
            for number, offset in positions.items()
            for row in past.prefix(number, offset).rows("orchestration_instance")
        )
        as_of = ",".join(f"{number}:{offset}" for number, offset in positions.items())
        for text in (as_of, rfc3339(time_ms)):
            answered = past.api.get(f"/v1/instances?as_of={text}")
            assert answered.headers["x-kvfold-position"] == as_of
            assert [(item["instance_id"], item["status"]) for item in answered.json["instances"]] == expected
        pages = keys_by_pages(past, f"/v1/instances?as_of={as_of}", "instances", limit=1)
        assert [item["instance_id"] for item in pages] == [name for name, _ in expected]
        running = past.api.get(f"/v1/instances?status=Running&as_of={as_of}").json["instances"]
        assert [item["instance_id"] for item in running] == [
            n for n, status in expected if status == "Running"
        ]


def rfc3339(time_ms: int) -> str:
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)
    return quote(at.isoformat(timespec="milliseconds"))


def at_time(past: Past, number: int, time_ms: int) -> int:
    """The last record of the longest prefix with effective times up to this one, found by looking at all of them."""
    return max((offset for offset, at in past.effective_ms[number] if at <= time_ms), default=-1)


@pytest.mark.row("X8")
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_time_means_the_longest_prefix_that_is_not_after_it(past: Past, data: st.DataObject) -> None:
    time_ms = data.draw(st.integers(START_MS - 3_000, START_MS + (RECORDS + 5) * 1_000))
    scope = data.draw(st.sampled_from(DEPLOYMENTS))
    number = partition(scope)
    answered = past.api.get(f"/deployments/{scope[2:]}/objects?namespace=user&as_of={rfc3339(time_ms)}")
    assert answered.headers["x-kvfold-position"] == f"{number}:{at_time(past, number, time_ms)}"


@pytest.mark.row("X8")
def test_a_time_before_the_first_record_is_an_empty_projection(past: Past) -> None:
    answered = past.api.get("/deployments/one/objects?namespace=user&as_of=1999-12-31T23:59:59Z")
    number = partition("d:one")
    assert (answered.status, answered.json["objects"]) == (200, [])
    assert answered.headers["x-kvfold-position"] == f"{number}:-1"
    assert past.api.get("/deployments/one/kv/user/a?as_of=1999-12-31T23:59:59Z").status == 404


@pytest.mark.row("X8")
def test_what_is_refused_says_why(past: Past) -> None:
    number = partition("d:one")
    target = "/deployments/one/kv/user/a?as_of="
    tomorrow = quote((datetime.now(UTC) + timedelta(days=1)).isoformat())
    assert (past.api.get(target + tomorrow).status, past.api.get(target + tomorrow).code) == (
        *(400, "as-of-in-future"),
    )
    other = past.api.get(f"{target}{1 - number}:1")
    assert (other.status, other.code) == (400, "as-of-other-partition")
    assert str(number) in other.json["detail"]
    assert past.api.get(f"{target}0:1,1:1").code == "as-of-other-partition"
    for text in ("", "x", "1", "1:", "-1:3", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"):
        answered = past.api.get(target + text)
        assert (answered.status, answered.code) == (400, "malformed-as-of"), text
    for namespace in ("x_secrets", "x_volatile"):
        answered = past.api.get(f"/deployments/one/kv/{namespace}/a?as_of={number}:1")
        assert (answered.status, answered.code) == (400, "invalid-namespace")
    assert past.api.get("/v1/instances?as_of=0:1").code == "as-of-other-partition"
    assert past.api.get("/v1/instances?as_of=0:1,7:1").code == "as-of-other-partition"


@settings(max_examples=150, deadline=None)
@given(
    text=st.one_of(st.text(max_size=40), st.from_regex(r"\d{1,5}[:-]\d{0,20}[T:]?\S{0,20}", fullmatch=True))
)
def test_no_as_of_is_a_500(past: Past, text: str) -> None:
    assume(POSITIONS.fullmatch(text) is None)  # what is not folded yet is waited for
    encoded = quote(text.encode("utf-8", "surrogatepass"), safe="")
    for target in ("/v1/capsules/bob/x/keys?as_of=", "/v1/instances?as_of="):
        answered = past.api.get(target + encoded)
        assert answered.status in (200, 400), answered.body


@pytest.mark.row("X8")
def test_what_was_trimmed_is_gone(past: Past) -> None:
    number = partition("d:one")
    middle = past.records[number][100].offset
    families = {
        "deployment_from": ("/deployments/one/kv/user/a", "/deployments/one/objects?namespace=user"),
        "capsule_from": ("/v1/capsules/bob/x/keys", "/v1/capsules/bob/x/kv/a"),
        "orchestration_from": ("/v1/instances/i1", "/v1/instances/i1/kv", "/v1/instances/i1/kv/a"),
    }
    scopes = {"deployment_from": "d:one", "capsule_from": "c:bob:capsule:x", "orchestration_from": "o:i1"}
    with psycopg.connect(past.dsn, autocommit=True) as connection:
        for column, targets in families.items():
            own = partition(scopes[column])
            connection.execute(f"UPDATE kvfold_g1.partition_offset SET {column} = %s".encode(), (middle,))
            try:
                for target in targets:
                    ask = f"{target}{'&' if '?' in target else '?'}as_of={own}:"
                    gone = past.api.get(ask + str(middle - 2))
                    assert (gone.status, gone.code) == (410, "gone"), target
                    assert f"{own}:{middle - 1}" in gone.json["detail"]
                    assert past.api.get(ask + str(middle - 1)).status in (200, 404), target
                if column == "orchestration_from":
                    everywhere = ",".join(f"{p}:{middle - 2}" for p in range(PARTITIONS))
                    assert past.api.get(f"/v1/instances?as_of={everywhere}").code == "gone"
            finally:
                connection.execute(f"UPDATE kvfold_g1.partition_offset SET {column} = 0".encode())


@pytest.mark.row("X8")
def test_a_page_of_the_past_ends_after_so_many_keys_and_goes_on(past: Past) -> None:
    """Keys that came later cost a look each: a page that finds nothing is short, and its cursor goes on."""
    with psycopg.connect(past.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO kvfold_g1.capsule_entry (scope, key, version, value, sha256, valid_from, time_ms) "
            "SELECT 'c:zed:capsule:many', lpad(n::text, 6, '0'), 1, '', '', CASE WHEN n = 4100 THEN 3 ELSE 9 END, 0 "
            "FROM generate_series(1, 4500) AS n"
        )
    number = partition("c:zed:capsule:many")
    target = f"/v1/capsules/zed/many/keys?as_of={number}:5"
    first = past.api.get(target).json
    assert first == {"keys": [], "next_cursor": "002000"}
    assert keys_by_pages(past, target, "keys", limit=100) == ["004100"]
