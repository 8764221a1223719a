"""Lists by pages: byte order, literal prefixes, cursors that survive writes and deletes (rows C8, C9, D13)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

from support.asgi_client import AsgiClient
from support.projection_rows import ProjectionRows
from support.query_api import query_api
from support.servers import fresh_database

pytestmark = pytest.mark.postgres

KEYS = "/v1/capsules/alice/notes/keys"
OBJECTS = "/deployments/dep/objects"


@pytest.fixture(scope="module")
def empty_api(postgres_admin_dsn: str) -> Iterator[AsgiClient]:
    """Over a projection of nothing, for what is refused anyway; tests share it."""
    with fresh_database(postgres_admin_dsn) as dsn:
        ProjectionRows(dsn).close()
        with query_api(dsn) as client:
            yield client


@pytest.fixture
def api(postgres_dsn: str, rows: ProjectionRows) -> Iterator[AsgiClient]:
    with query_api(postgres_dsn) as client:
        yield client


def keys_of(api: AsgiClient, **query: object) -> list[str]:
    answered = api.get(f"{KEYS}?{urlencode(query)}")
    assert answered.status == 200, answered.body
    keys: list[str] = answered.json["keys"]
    return keys


@pytest.mark.row("C8")
def test_keys_in_byte_order(api: AsgiClient, rows: ProjectionRows) -> None:
    keys = ["b", "a", "B", "é", "z", "ä", "🦊", "\ufffd", "a.b", "a-b", "A", "aa", "10", "9"]
    for key in keys:
        rows.capsule("alice", "notes", key, b"")
    rows.capsule("bob", "notes", "theirs", b"")
    assert keys_of(api) == sorted(keys, key=str.encode)


@pytest.mark.row("C8")
def test_a_prefix_is_literal(api: AsgiClient, rows: ProjectionRows) -> None:
    """`_` and `%` in a prefix are themselves (kine#562)."""
    for key in ["a_1", "a_2", "ab1", "a%1", "a%2", "aX", "session.1", "session.", "sessions", "\U0010ffffx"]:
        rows.capsule("alice", "notes", key, b"")
    assert keys_of(api, prefix="a_") == ["a_1", "a_2"]
    assert keys_of(api, prefix="a%") == ["a%1", "a%2"]
    assert keys_of(api, prefix="session.") == ["session.", "session.1"]
    assert keys_of(api, prefix="\U0010ffff") == ["\U0010ffffx"]
    assert keys_of(api, prefix="nothing") == []
    assert len(keys_of(api, prefix="")) == 10


@pytest.mark.row("C9")
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_join_to_the_whole(api: AsgiClient, rows: ProjectionRows, limit: int) -> None:
    keys = sorted(["a", "a\u00a0", "aa", "a b", "b%2F", "b/..", "é", "🦊", "z+"], key=str.encode)
    for key in keys:
        rows.capsule("alice", "notes", key, b"")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": limit} | ({} if cursor is None else {"cursor": cursor})
        page = api.get(f"{KEYS}?{urlencode(query)}").json
        seen += page["keys"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert len(page["keys"]) == limit
    assert seen == keys


@pytest.mark.row("C9")
def test_paging_during_writes(api: AsgiClient, rows: ProjectionRows) -> None:
    """A key that stayed is neither repeated nor lost; the cursor's own key may go (nats.go#1884, fluxer#2302)."""
    for n in range(10):
        rows.capsule("alice", "notes", f"k{n}", b"")
    first = api.get(f"{KEYS}?limit=4").json
    assert first == {"keys": ["k0", "k1", "k2", "k3"], "next_cursor": "k3"}
    rows.execute("DELETE FROM {g}.capsule_entry WHERE key IN ('k3', 'k1', 'k5')")
    rows.capsule("alice", "notes", "k0a", b"")
    rows.capsule("alice", "notes", "k4a", b"")
    second = api.get(f"{KEYS}?limit=4&cursor=k3").json
    assert second == {"keys": ["k4", "k4a", "k6", "k7"], "next_cursor": "k7"}
    assert api.get(f"{KEYS}?limit=4&cursor=k7").json == {"keys": ["k8", "k9"], "next_cursor": None}


@pytest.mark.row("C9")
def test_a_cursor_outside_the_prefix(api: AsgiClient, rows: ProjectionRows) -> None:
    for key in ["a", "b1", "b2", "c"]:
        rows.capsule("alice", "notes", key, b"")
    assert keys_of(api, prefix="b", cursor="a") == ["b1", "b2"]
    assert keys_of(api, prefix="b", cursor="b1") == ["b2"]
    assert keys_of(api, prefix="b", cursor="zz") == []


@pytest.mark.row("C8")
def test_a_page_is_1024_at_most(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.execute(
        "INSERT INTO {g}.capsule_entry SELECT 'c:alice:capsule:notes', lpad(n::text, 5, '0'), 1, '', '', NULL, 0, 0 "
        "FROM generate_series(1, 1025) n"
    )
    page = api.get(f"{KEYS}?limit=1024").json
    assert (len(page["keys"]), page["next_cursor"]) == (1_024, "01024")
    assert len(api.get(KEYS).json["keys"]) == 100


@pytest.mark.parametrize("base", [f"{KEYS}?", f"{OBJECTS}?namespace=user&", "/v1/instances?"])
@pytest.mark.parametrize("limit", ["0", "-1", "1025", "", "1.5", "x", "01", "99999999999999999999", "1 "])
def test_malformed_limits(empty_api: AsgiClient, base: str, limit: str) -> None:
    assert empty_api.get(f"{base}limit={quote(limit)}").code == "malformed-limit"


def test_malformed_prefixes_and_cursors(empty_api: AsgiClient) -> None:
    assert empty_api.get(f"{KEYS}?prefix={'x' * 257}").code == "invalid-key"
    assert empty_api.get(f"{KEYS}?prefix=a%0A").code == "invalid-key"
    assert empty_api.get(f"{KEYS}?cursor={'x' * 1025}").code == "malformed-cursor"
    assert empty_api.get(f"{OBJECTS}?namespace=user&prefix={'x' * 1025}").code == "malformed-prefix"
    for name in ("prefix", "cursor"):
        assert empty_api.get(f"{KEYS}?{name}=%00").code == "malformed-query"


@pytest.mark.row("D13")
def test_objects_by_pages(api: AsgiClient, rows: ProjectionRows) -> None:
    for n in range(5):
        rows.deployment("dep", "user", f"a/{n}", b"")
        rows.deployment("dep", "system", f"a/{n}", b"")
    rows.deployment("dep", "user", "a/2x", None)
    rows.deployment("dep", "user", "b", b"")
    first = api.get(f"{OBJECTS}?namespace=user&prefix=a/&limit=3").json
    assert [item["key"] for item in first["objects"]] == ["a/0", "a/1", "a/2"]
    assert first["next_cursor"] == "a/2"
    second = api.get(f"{OBJECTS}?namespace=user&prefix=a/&limit=3&cursor=a/2").json
    assert [item["key"] for item in second["objects"]] == ["a/3", "a/4"]
    assert second["next_cursor"] is None


@pytest.mark.row("C10")
def test_usage(api: AsgiClient, rows: ProjectionRows) -> None:
    target = "/v1/capsules/alice/notes/usage"
    assert api.get(target).json == {"keys": 0, "bytes": 0, "bytes_max": 64 * 1024 * 1024}
    rows.insert("capsule_scope", scope="c:alice:capsule:notes", keys=2, bytes=17, bytes_max=None)
    assert api.get(target).json == {"keys": 2, "bytes": 17, "bytes_max": 64 * 1024 * 1024}
    rows.execute("UPDATE {g}.capsule_scope SET bytes_max = 0")
    assert api.get(target).json["bytes_max"] == 0


def test_instances_by_pages_and_status(api: AsgiClient, rows: ProjectionRows) -> None:
    for n in range(6):
        rows.instance(f"order-{n}", status=("Running", "Completed", "Failed")[n % 3])
    rows.instance("payment-1", worker="w-1")
    page = api.get("/v1/instances?limit=4").json
    assert [item["instance_id"] for item in page["instances"]] == [f"order-{n}" for n in range(4)]
    page = api.get(f"/v1/instances?limit=4&cursor={page['next_cursor']}").json
    assert [item["instance_id"] for item in page["instances"]] == ["order-4", "order-5", "payment-1"]
    assert page["next_cursor"] is None
    assert page["instances"][-1] == {
        "instance_id": "payment-1",
        "name": "order",
        "mode": "external",
        "status": "Running",
        "execution_id": 1,
        "owner": "w-1",
        "history_length": 3,
        "created_at": "2023-11-14T22:13:20.000Z",
        "updated_at": "2023-11-14T22:13:20.500Z",
    }
    failed = api.get("/v1/instances?status=Failed&prefix=order-&limit=1").json
    assert ([item["instance_id"] for item in failed["instances"]], failed["next_cursor"]) == (
        ["order-2"],
        "order-2",
    )
    failed = api.get("/v1/instances?status=Failed&prefix=order-&cursor=order-2").json
    assert [item["instance_id"] for item in failed["instances"]] == ["order-5"]
    assert api.get("/v1/instances?status=failed").code == "malformed-status"
    assert api.get("/v1/instances?prefix=o_der").json["instances"] == []
    assert api.get("/v1/instances").headers["x-kvfold-position"] == "0:-1,1:-1,2:-1,3:-1"
