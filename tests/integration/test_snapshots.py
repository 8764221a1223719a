"""Snapshots over HTTP (row X11): a whole scope as of one position, as a stream that ends with its client."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from starlette.types import Message

from kvfold.http.app import App
from kvfold.projector.tables import CapsuleEntry, DeploymentEntry, KvEntry
from kvfold.query_api.serve import query_api_app, read_context
from kvfold.schemas.partitioning import partition_of
from support.asgi_client import AsgiClient
from support.past import PARTITIONS, Past, folded_past
from support.query_api import query_api

pytestmark = [pytest.mark.postgres, pytest.mark.row("X11")]

FAMILIES = {"c": "capsule", "d": "deployment", "o": "orchestration"}
SCOPES = ("c:bob:capsule:notes", "d:one", "o:i1")


@pytest.fixture(scope="module")
def past(postgres_admin_dsn: str) -> Iterator[Past]:
    with folded_past(postgres_admin_dsn, seed=23, count=500) as folded:
        yield folded


@pytest.fixture(scope="module")
def gateway(past: Past) -> Iterator[AsgiClient]:
    with query_api(past.dsn, gives_ciphertext=True) as api:
        yield api


def partition(scope: str) -> int:
    return partition_of(scope.encode(), PARTITIONS)


def target(scope: str, more: str = "") -> str:
    return f"/v1/snapshots/{FAMILIES[scope[0]]}/{quote(scope, safe='')}?{more}"


def lines(api: AsgiClient, scope: str, more: str = "") -> list[dict[str, Any]]:
    answered = api.get(target(scope, more))
    assert answered.status == 200, answered.body
    assert answered.headers["content-type"].startswith("application/x-ndjson")
    found = [json.loads(line) for line in answered.body.split(b"\n")[:-1]]
    assert found[0]["position"] == answered.headers["x-kvfold-position"]
    return found


def expected(past: Past, scope: str, offset: int, *, is_sealed: bool) -> list[tuple[object, ...]]:
    store = past.prefix(partition(scope), offset)
    rows: list[tuple[object, ...]] = []
    for row in store.rows("capsule_entry"):
        capsule = CapsuleEntry(*row)  # type: ignore[arg-type]
        if capsule.scope == scope:
            rows.append((None, capsule.key, capsule.version, capsule.value, capsule.valid_from))
    for row in store.rows("deployment_entry"):
        entry = DeploymentEntry(*row)  # type: ignore[arg-type]
        if entry.scope == scope and entry.value is not None:
            is_shown = is_sealed or not entry.namespace.endswith("_secrets")
            value = entry.value if is_shown else None
            rows.append((entry.namespace, entry.key, entry.version, value, entry.valid_from))
    for row in store.rows("orchestration_kv"):
        kept = KvEntry(*row)  # type: ignore[arg-type]
        if kept.scope == scope:
            rows.append((None, kept.key, None, kept.value.encode(), kept.valid_from))
    return rows


def given(found: list[dict[str, Any]], number: int) -> list[tuple[object, ...]]:
    result: list[tuple[object, ...]] = []
    for line in found[1:]:
        text = line["value_base64"]
        value = None if text is None else base64.b64decode(text)
        assert value is None or line["size"] == len(value)
        place, _, offset = line["position"].partition(":")
        assert place == str(number)
        result.append((line.get("namespace"), line["key"], line["version"], value, int(offset)))
    return result


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_as_of_positions(past: Past, gateway: AsgiClient, scope: str) -> None:
    number = partition(scope)
    most = 0
    for offset in past.offsets(number, every=9):
        for api, is_sealed in ((past.api, False), (gateway, True)):
            more = f"as_of={number}:{offset}" + ("&sealed=true" if is_sealed else "")
            found = lines(api, scope, more)
            assert found[0] == {"position": f"{number}:{offset}", "generation": 1, "scope": scope}
            rows = expected(past, scope, offset, is_sealed=is_sealed)
            assert given(found, number) == rows, offset
            most = max(most, len(rows))
    assert most > 0, "the workload fills the scope"


def test_as_of_now(past: Past) -> None:
    number = partition("d:one")
    last = past.records[number][-1].offset
    assert lines(past.api, "d:one") == lines(past.api, "d:one", f"as_of={number}:{last}")


def test_secrets_are_metadata_to_the_read_only_api(past: Past, gateway: AsgiClient) -> None:
    refused = past.api.get(target("d:one", "sealed=true"))
    assert (refused.status, refused.code) == (400, "sealed-not-served")
    number = partition("d:one")
    offsets = past.offsets(number)
    secret = next(
        offset
        for offset in offsets
        if any(str(row[0]).endswith("_secrets") for row in expected(past, "d:one", offset, is_sealed=False))
    )
    for api in (past.api, gateway):  # it has to be asked for, too
        found = lines(api, "d:one", f"as_of={number}:{secret}")
        of_secrets = [line for line in found[1:] if line["namespace"].endswith("_secrets")]
        assert of_secrets and all(line["value_base64"] is None for line in of_secrets)
        assert all(line["version"] and line["size"] for line in of_secrets)


def test_what_is_refused_is_refused_before_the_stream_begins(past: Past) -> None:
    number = partition("d:one")
    for more, code in (
        (f"as_of={1 - number}:3", "as-of-other-partition"),
        ("as_of=x", "malformed-as-of"),
        ("sealed=yes", "malformed-sealed"),
    ):
        answered = past.api.get(target("d:one", more))
        assert (answered.status, answered.code) == (400, code)
    with psycopg.connect(past.dsn, autocommit=True) as connection:
        move = "UPDATE kvfold_g1.partition_offset SET deployment_from = %s WHERE partition = %s"
        connection.execute(move.encode(), (90, number))
        try:
            gone = past.api.get(target("d:one", f"as_of={number}:88"))
            assert (gone.status, gone.code) == (410, "gone")
        finally:
            connection.execute(move.encode(), (0, number))


def test_head_has_no_body(past: Past) -> None:
    answered = past.api.request("HEAD", target("d:one"))
    assert (answered.status, answered.body) == (200, b"")
    assert "x-kvfold-position" in answered.headers


def test_many_entries_and_large_values_come_in_pieces(past: Past) -> None:
    """Pages of keys and groups of values: 2,600 small ones, and some that come alone."""
    with psycopg.connect(past.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO kvfold_g1.deployment_entry (scope, namespace, key, version, value, valid_from, time_ms) "
            "SELECT 'd:large', 'user', lpad(n::text, 6, '0'), n, "
            "CASE WHEN n % 500 = 7 THEN convert_to(repeat('x', 700000), 'UTF8') ELSE convert_to(n::text, 'UTF8') END, 0, 0 "
            "FROM generate_series(1, 2600) AS n"
        )
    answered = past.api.get(target("d:large"))
    found = [json.loads(line) for line in answered.body.splitlines()]
    assert [line["version"] for line in found[1:]] == list(range(1, 2_601))
    assert {len(base64.b64decode(line["value_base64"])) for line in found[1:]} == {1, 2, 3, 4, 700_000}


def test_a_client_that_goes_away_ends_the_stream(past: Past) -> None:
    with psycopg.connect(past.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO kvfold_g1.deployment_entry (scope, namespace, key, version, value, valid_from, time_ms) "
            "SELECT 'd:long', 'user', lpad(n::text, 6, '0'), 1, 'v', 0, 0 FROM generate_series(1, 20000) AS n"
        )
    app = query_api_app(read_context(past.dsn, pool_size=1))
    with AsgiClient(app) as api:
        chunks = api.run(_left_after(app, target("d:long"), chunks=3))
        assert 3 <= chunks <= 5, "what was under way ends, and nothing is read after it"
        # The pool's one connection is free again.
        assert api.get("/deployments/long/kv/user/000001").status == 200


async def _left_after(app: App, path: str, *, chunks: int) -> int:
    """Asks, goes away after some chunks; gives how many were sent until the app was through."""
    left = asyncio.Event()
    sent = 0

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal sent
        if message["type"] == "http.response.body" and message.get("body"):
            sent += 1
            if sent == chunks:
                left.set()

    raw = path.encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path.partition("?")[0],
        "raw_path": raw.partition(b"?")[0],
        "query_string": b"",
        "root_path": "",
        "headers": [],
    }
    await app(scope, receive, send)
    return sent
