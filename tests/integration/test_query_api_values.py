"""Values over HTTP: capsules and deployments, conditions, keys of every kind, secret namespaces."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvfold.schemas.names import check_deployment_key
from support.asgi_client import AsgiClient
from support.projection_rows import ProjectionRows
from support.query_api import query_api
from support.servers import fresh_database

pytestmark = pytest.mark.postgres

DEP = ProjectionRows.partition("d:dep")
CAPSULE = ProjectionRows.partition("c:alice:capsule:notes")
AWKWARD_KEYS = [
    *("a/b", "/a", "a/", "//", ".", "..", "../..", "a//b", "%", "%2F", "%25", "+", "a b", " ", "🦊", "שלום"),
    *("_", "a%b", "?key=x", "#", "e\u0301", "é", "&", "=", "\\", '"', "key", "\U0010ffff", "x" * 1_024),
]


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


@pytest.mark.row("D6")
def test_a_deployment_value(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.deployment("dep", "user", "k", b"\x00\xff", version=7)
    rows.advance(DEP, 41)
    answered = api.get("/deployments/dep/kv/user/k")
    assert (answered.status, answered.body) == (200, b"\x00\xff")
    headers = answered.headers
    assert (headers["x-object-version"], headers["etag"]) == ("7", '"7"')
    assert headers["x-kvfold-position"] == f"{DEP}:41"
    assert headers["content-type"] == "application/octet-stream"
    head = api.request("HEAD", "/deployments/dep/kv/user/k")
    assert (head.status, head.headers, head.body) == (200, headers, b"")


@pytest.mark.row("D6")
def test_an_absent_value_is_404_with_a_position(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.deployment("dep", "user", "deleted", None, version=4)
    rows.advance(DEP, 41)
    for key in ("never", "deleted"):
        answered = api.get(f"/deployments/dep/kv/user/{key}")
        assert (answered.status, answered.code) == (404, "not-found")
        assert answered.headers["x-kvfold-position"] == f"{DEP}:41"
        assert "etag" not in answered.headers


@pytest.mark.row("D4")
@pytest.mark.row("C7")
def test_an_empty_value_is_200(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.deployment("dep", "user", "k", b"")
    rows.capsule("alice", "notes", "k", b"")
    for target in ("/deployments/dep/kv/user/k", "/v1/capsules/alice/notes/kv/k"):
        answered = api.get(target)
        assert (answered.status, answered.body, answered.headers["content-length"]) == (200, b"", "0")


@pytest.mark.row("C3")
def test_a_capsule_value(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.capsule("alice", "notes", "k", b"value")
    digest = hashlib.sha256(b"value").hexdigest()
    answered = api.get("/v1/capsules/alice/notes/kv/k")
    assert (answered.status, answered.body, answered.headers["etag"]) == (200, b"value", f'"{digest}"')
    assert answered.headers["x-kvfold-position"] == f"{CAPSULE}:-1"


@pytest.mark.row("C1")
@pytest.mark.row("D1")
def test_scopes_are_isolated(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.capsule("alice", "notes", "k", b"1")
    rows.deployment("dep", "user", "k", b"1")
    assert api.get("/v1/capsules/bob/notes/kv/k").status == 404
    assert api.get("/v1/capsules/alice/other/kv/k").status == 404
    assert api.get("/deployments/other/kv/user/k").status == 404
    assert api.get("/deployments/dep/kv/system/k").status == 404
    for forged in ("a:capsule:b", "a%2Fb", "", "e%CC%81", "a%0A"):
        assert api.get(f"/v1/capsules/{forged}/notes/kv/k").code == "malformed-name"


@pytest.mark.row("D5")
def test_awkward_keys(api: AsgiClient, rows: ProjectionRows) -> None:
    """What was written is read back under the same URL and listed once."""
    for key in AWKWARD_KEYS:
        rows.deployment("dep", "user", key, key.encode())
        targets = [f"/{quote(key, safe=safe)}" for safe in ("", "/.-_~!$&'()*,;=:@")]
        for target in (*targets, f"?key={quote(key, safe='')}"):
            answered = api.get(f"/deployments/dep/kv/user{target}")
            assert (answered.status, answered.body) == (200, key.encode()), key
        answered = api.get(f"/deployments/dep/objects/{quote(key)}?namespace=user")
        assert answered.json == {"key": key, "value": key, "encoding": "utf8", "version": 1}
        by_key = api.get(f"/deployments/dep/objects?namespace=user&key={quote(key, safe='')}")
        assert by_key.json["key"] == key
    listed = api.get("/deployments/dep/objects?namespace=user&limit=1024").json["objects"]
    assert [item["key"] for item in listed] == sorted(AWKWARD_KEYS, key=str.encode)


@pytest.mark.row("D5")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
@example(key="../x")
def test_what_was_put_under_a_key_is_found_under_its_url(
    api: AsgiClient, rows: ProjectionRows, key: str
) -> None:
    target = f"/deployments/dep/kv/user/{quote(key)}"
    if check_deployment_key(key) is not None:
        assert api.get(target).code == "invalid-key"
        return
    rows.execute("DELETE FROM {g}.deployment_entry")
    rows.deployment("dep", "user", key, key.encode())
    assert api.get(target).body == key.encode()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(
        [
            *(
                b"/",
                b"/deployments/dep/kv/user/",
                b"/v1/capsules/a/b/keys?",
                b"/v1/instances?",
                b"/v1/mutations/",
            ),
            *(b"/deployments/dep/objects?namespace=user&", b"/v1/instances/", b"/v1/capsules/a/b/kv/"),
        ]
    ),
    st.binary(max_size=30) | st.text(max_size=30).map(lambda text: quote(text, errors="replace").encode()),
)
def test_no_input_is_a_500(api: AsgiClient, start: bytes, rest: bytes) -> None:
    assert api.get(start + rest).status in (200, 400, 404, 405, 503)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["X-Kvfold-Min-Position", "If-Match", "If-None-Match", "Authorization", "Range"]),
    st.text(st.characters(max_codepoint=255), max_size=20),
)
def test_no_header_is_a_500(api: AsgiClient, name: str, value: str) -> None:
    assert api.get("/deployments/dep/kv/user/k", (name, value)).status in (400, 404, 412)


@pytest.mark.row("D5")
@pytest.mark.row("C6")
@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/deployments/dep/kv/user/", "invalid-key"),
        ("/deployments/dep/kv/user/a%00", "invalid-key"),
        ("/deployments/dep/kv/user/a%0Ab", "invalid-key"),
        ("/deployments/dep/kv/user/" + "x" * 1_025, "invalid-key"),
        ("/deployments/dep/kv/user/%ED%A0%80", "malformed-path"),
        ("/deployments//kv/user/k", "malformed-name"),
        ("/deployments/" + "x" * 129 + "/kv/user/k", "malformed-name"),
        ("/deployments/dep/kv//k", "invalid-namespace"),
        ("/deployments/dep/kv/user/k?version=1", "malformed-query"),
        ("/v1/capsules/a/b/kv/", "invalid-key"),
        ("/v1/capsules/a/b/kv/e%CC%81", "invalid-key"),
        ("/v1/capsules/a/b/kv/" + "x" * 257, "invalid-key"),
    ],
)
def test_what_is_refused(empty_api: AsgiClient, target: str, code: str) -> None:
    answered = empty_api.get(target)
    assert (answered.status, answered.code) == (400, code)


@pytest.mark.parametrize("kind", ["deployment", "capsule"])
def test_conditions(api: AsgiClient, rows: ProjectionRows, kind: str) -> None:
    rows.deployment("dep", "user", "k", b"value", version=7)
    rows.capsule("alice", "notes", "k", b"value")
    base = "/deployments/dep/kv/user" if kind == "deployment" else "/v1/capsules/alice/notes/kv"
    etag = api.get(f"{base}/k").headers["etag"]
    for value in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answered = api.get(f"{base}/k", ("If-None-Match", value))
        assert (answered.status, answered.body, answered.headers["etag"]) == (304, b"", etag)
        assert "x-kvfold-position" in answered.headers
        assert "content-length" not in answered.headers
    assert api.get(f"{base}/k", ("If-None-Match", '"other"')).body == b"value"
    assert api.get(f"{base}/k", ("If-Match", etag)).body == b"value"
    for header in (("If-Match", '"other"'), ("If-Match", f"W/{etag}")):
        answered = api.get(f"{base}/k", header)
        assert (answered.status, answered.code, answered.headers["etag"]) == (
            412,
            "precondition-failed",
            etag,
        )
    assert api.get(f"{base}/absent", ("If-Match", "*")).status == 412
    assert api.get(f"{base}/absent", ("If-None-Match", "*")).status == 404
    assert api.get(f"{base}/k", ("If-Match", "7")).code == "malformed-precondition"
    assert api.get(f"{base}/k", ("If-Match", '"a"'), ("If-Match", etag)).status == 200


@pytest.mark.row("D10")
@pytest.mark.row("D11")
@pytest.mark.row("D12")
@pytest.mark.parametrize(
    ("namespace", "status", "code"),
    [
        ("user_secrets", 503, "encryption-key-missing"),
        ("x_secrets_secrets", 503, "encryption-key-missing"),
        ("user_volatile", 503, "volatile-unavailable"),
        ("user_secrets_volatile", 400, "secret-and-volatile"),
        ("user_volatile_secrets", 400, "secret-and-volatile"),
        ("a_secrets_volatile_secrets", 400, "secret-and-volatile"),
    ],
)
def test_secret_and_volatile_namespaces_are_never_read(
    api: AsgiClient, rows: ProjectionRows, namespace: str, status: int, code: str
) -> None:
    rows.deployment("dep", namespace, "k", b"KVS1 ciphertext")
    for target in (f"/deployments/dep/kv/{namespace}/k", f"/deployments/dep/kv/{namespace}?key=k"):
        for method in ("GET", "HEAD"):
            answered = api.request(method, target)
            assert answered.status == status
        assert api.get(target).code == code


@pytest.mark.row("D13")
@pytest.mark.row("D20")
@pytest.mark.parametrize(
    ("namespace", "status", "code"),
    [
        ("system", 400, "invalid-namespace"),
        ("users", 400, "invalid-namespace"),
        ("user_secrets", 400, "invalid-namespace"),
        ("system_volatile", 400, "invalid-namespace"),
        ("user_secrets_volatile", 400, "secret-and-volatile"),
        ("user_volatile", 503, "volatile-unavailable"),
        ("", 400, "invalid-namespace"),
    ],
)
def test_the_browser_keeps_to_the_user_family(
    api: AsgiClient, rows: ProjectionRows, namespace: str, status: int, code: str
) -> None:
    if namespace:
        rows.deployment("dep", namespace, "k", b"KVS1 ciphertext")
    for target in ("objects?", "objects/k?", "objects?key=k&"):
        answered = api.get(f"/deployments/dep/{target}namespace={namespace}")
        assert (answered.status, answered.code) == (status, code)
    assert api.get("/deployments/dep/objects").code == "invalid-namespace"
    assert api.get("/deployments/dep/namespaces").json == {"namespaces": ["user", "user_volatile"]}


@pytest.mark.row("D13")
def test_browser_objects(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.deployment("dep", "user", "text", "é\n".encode(), version=2)
    rows.deployment("dep", "user", "bytes", b"\xff\x00", version=3)
    rows.deployment("dep", "user", "empty", b"")
    rows.deployment("dep", "user", "gone", None, version=9)
    assert api.get("/deployments/dep/namespaces").json == {"namespaces": ["user", "user_volatile"]}
    listed = api.get("/deployments/dep/objects?namespace=user").json
    time = "2023-11-14T22:13:20.000Z"
    digests = [hashlib.sha256(value).hexdigest() for value in (b"\xff\x00", b"", "é\n".encode())]
    assert listed == {
        "objects": [
            {"key": "bytes", "version": 3, "size": 2, "updated_at": time, "sha256": digests[0]},
            {"key": "empty", "version": 1, "size": 0, "updated_at": time, "sha256": digests[1]},
            {"key": "text", "version": 2, "size": 3, "updated_at": time, "sha256": digests[2]},
        ],
        "next_cursor": None,
    }
    text = api.get("/deployments/dep/objects/text?namespace=user")
    assert text.json == {"key": "text", "value": "é\n", "encoding": "utf8", "version": 2}
    assert (text.headers["x-object-version"], text.headers["etag"]) == ("2", '"2"')
    value = base64.b64encode(b"\xff\x00").decode()
    assert api.get("/deployments/dep/objects/bytes?namespace=user").json == {
        "key": "bytes",
        "value": value,
        "encoding": "base64",
        "version": 3,
    }
    assert api.get("/deployments/dep/objects/empty?namespace=user").json["value"] == ""
    assert api.get("/deployments/dep/objects/gone?namespace=user").code == "not-found"
    cached = api.get("/deployments/dep/objects/text?namespace=user", ("If-None-Match", '"2"'))
    assert (cached.status, cached.headers["x-object-version"]) == (304, "2")


def test_no_route_redirects(empty_api: AsgiClient) -> None:
    for target in (
        "/deployments/dep/kv/user/k/",
        "/v1/instances/",
        "/healthz/",
        "//healthz",
        "/docs/",
        "/V1/instances",
    ):
        assert empty_api.get(target).status in (400, 404)


def test_a_bearer_token_is_accepted_and_ignored(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.deployment("dep", "user", "k", b"v")
    assert api.get("/deployments/dep/kv/user/k", ("Authorization", "Bearer x")).status == 200


def test_writes_are_not_here(empty_api: AsgiClient) -> None:
    answered = empty_api.request("PUT", "/deployments/dep/kv/user/k", chunks=[b"v"])
    assert (answered.status, answered.headers["allow"]) == (405, "GET, HEAD")
