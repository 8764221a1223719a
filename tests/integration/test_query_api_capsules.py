"""`GET /v1/capsules`: what capsules leave behind, for operators (row C22)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from support.asgi_client import AsgiClient
from support.projection_rows import ProjectionRows
from support.query_api import query_api

__all__: list[str] = []

pytestmark = pytest.mark.postgres

DEFAULT = 64 * 1024 * 1024


@pytest.fixture
def api(postgres_dsn: str, rows: ProjectionRows) -> Iterator[AsgiClient]:
    with query_api(postgres_dsn) as client:
        yield client


def listed(api: AsgiClient, query: str = "") -> list[tuple[str, str]]:
    answered = api.get(f"/v1/capsules{query}")
    assert answered.status == 200, answered.body
    return [(item["principal"], item["capsule_id"]) for item in answered.json["capsules"]]


@pytest.mark.row("C22")
def test_every_namespace_with_its_usage(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.capsule_usage("alice", "notes", keys=2, size=9, bytes_max=None)
    rows.capsule_usage("bob", "notes", keys=0, size=0, bytes_max=5)
    answered = api.get("/v1/capsules")
    assert answered.json == {
        "capsules": [
            {"principal": "alice", "capsule_id": "notes", "keys": 2, "bytes": 9, "bytes_max": DEFAULT},
            {"principal": "bob", "capsule_id": "notes", "keys": 0, "bytes": 0, "bytes_max": 5},
        ],
        "next_cursor": None,
    }
    assert "x-kvfold-position" in answered.headers


@pytest.mark.row("C22")
def test_there_may_be_none(api: AsgiClient) -> None:
    assert api.get("/v1/capsules").json == {"capsules": [], "next_cursor": None}


@pytest.mark.row("C22")
def test_pages_and_prefixes(api: AsgiClient, rows: ProjectionRows) -> None:
    names = [("a", "x"), ("a", "y"), ("ab", "x"), ("a_", "x"), ("é", "x"), ("z", "x")]
    for principal, capsule_id in names:
        rows.capsule_usage(principal, capsule_id, keys=1, size=1, bytes_max=None)
    in_order = sorted(names, key=lambda name: f"{name[0]}:capsule:{name[1]}".encode())
    assert listed(api) == in_order
    assert listed(api, "?prefix=a:") == [("a", "x"), ("a", "y")]
    assert listed(api, "?prefix=a_") == [("a_", "x")]
    assert listed(api, f"?prefix={quote('é')}") == [("é", "x")]
    found: list[tuple[str, str]] = []
    cursor = ""
    while True:
        page = api.get(f"/v1/capsules?limit=2{cursor}").json
        found += [(item["principal"], item["capsule_id"]) for item in page["capsules"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={quote(page['next_cursor'])}"
    assert found == in_order


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?limit=0", "malformed-limit"),
        ("?limit=1025", "malformed-limit"),
        ("?cursor=" + "c" * 1025, "malformed-cursor"),
        ("?prefix=" + "p" * 1025, "malformed-prefix"),
    ],
)
def test_what_is_no_page_is_refused(api: AsgiClient, query: str, code: str) -> None:
    answered = api.get(f"/v1/capsules{query}")
    assert (answered.status, answered.json["code"]) == (400, code)
