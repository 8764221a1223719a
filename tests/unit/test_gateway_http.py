"""The write routes over a log in memory and the real fold: every status, header and problem (contract, "Writes")."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from kvfold.http.app import App
from kvfold.log.memory import AppendFault, MemoryLog
from kvfold.producers.gateway.context import build_gateway_context
from kvfold.producers.gateway.routes import write_routes
from kvfold.projector.tables import CapsuleEntry, DeploymentEntry
from kvfold.schemas.limits import BODY_DRAIN_BYTES_MAX, DEPLOYMENT_VALUE_BYTES_MAX
from support.asgi import AsgiAnswer, request
from support.folding import FoldingWaiter

__all__: list[str] = []

KEY = "/deployments/dep/kv/user/k"
CAPSULE_KEY = "/v1/capsules/alice/notes/kv/k"
OBJECT = "/deployments/dep/objects/k?namespace=user"
Headers = Sequence[tuple[str, str | bytes]]


class Gateway:
    """An app of the write routes, and what it wrote."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog(partition_count=3)
        self.waiter = FoldingWaiter(self.log)
        self.app = App(write_routes(build_gateway_context(self.log, self.waiter)))

    def __call__(
        self, method: str, target: str | bytes, body: bytes = b"", *, headers: Headers = ()
    ) -> AsgiAnswer:
        return asyncio.run(request(self.app, method, target, headers=headers, body=body))

    def deployment(self) -> dict[tuple[str, str, str], tuple[int, bytes]]:
        entries = {}
        for row in map(DeploymentEntry._make, self.waiter.store.rows("deployment_entry")):
            if row.value is not None:
                entries[row.scope, row.namespace, row.key] = (row.version, row.value)
        return entries

    def capsule(self) -> dict[tuple[str, str], bytes]:
        entries = {}
        for row in map(CapsuleEntry._make, self.waiter.store.rows("capsule_entry")):
            entries[row.scope, row.key] = row.value
        return entries

    def appended(self) -> int:
        return sum(bounds.end for bounds in self.log.bounds(range(3)).values())


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


def expect_problem(answer: AsgiAnswer, status: int, code: str) -> dict[str, Any]:
    assert (answer.status, answer.json().get("code")) == (status, code), answer
    assert answer.header("content-type") == "application/problem+json"
    document: dict[str, Any] = answer.json()
    return document


def version(number: int) -> Headers:
    return [("X-Object-Version", str(number))]


# --- deployments ---


@pytest.mark.row("D3")
@pytest.mark.row("D6")
def test_create_replace_and_delete(gateway: Gateway) -> None:
    created = gateway("PUT", KEY, b"1")
    assert (created.status, created.header("x-object-version"), created.header("etag")) == (201, "1", '"1"')
    assert created.header("x-kvfold-position") is not None
    conflict = gateway("PUT", KEY, b"2")
    assert expect_problem(conflict, 409, "version-conflict")["version"] == 1
    assert conflict.header("x-object-version") == "1"
    assert conflict.header("x-kvfold-position") is not None
    assert gateway("PUT", KEY, b"2", headers=version(0)).status == 409
    replaced = gateway("PUT", KEY, b"", headers=version(1))
    assert (replaced.status, replaced.header("x-object-version")) == (200, "2")
    assert gateway.deployment() == {("d:dep", "user", "k"): (2, b"")}
    assert gateway("DELETE", KEY, headers=version(1)).status == 409
    deleted = gateway("DELETE", KEY, headers=version(2))
    assert (deleted.status, deleted.body) == (204, b"")
    assert deleted.header("x-kvfold-position") is not None
    assert gateway("DELETE", KEY, headers=version(2)).status == 204  # absent: whatever is expected
    assert (
        expect_problem(gateway("PUT", KEY, b"", headers=version(2)), 409, "version-conflict")["version"] == 0
    )
    again = gateway("PUT", KEY, b"3")
    assert (again.status, again.header("x-object-version")) == (201, "3")
    assert gateway("DELETE", KEY).status == 204
    assert gateway.deployment() == {}


@pytest.mark.parametrize(
    ("state", "headers", "put", "delete"),
    [
        (0, [("If-None-Match", "*")], 201, 204),
        (0, [("If-Match", "*")], 412, 412),
        (0, [("If-Match", '"1"')], 412, 412),
        (0, [("If-None-Match", '"1"')], 201, 204),
        (1, [("If-None-Match", "*")], 412, 412),
        (1, [("If-Match", "*")], 200, 204),
        (1, [("If-Match", '"1"')], 200, 204),
        (1, [("If-Match", '"7", "1"')], 200, 204),
        (1, [("If-Match", '"7"'), ("If-Match", '"1"')], 200, 204),
        (1, [("If-Match", '"7"')], 412, 412),
        (1, [("If-Match", 'W/"1"')], 412, 412),
        (1, [("If-None-Match", 'W/"1"')], 412, 412),
        (1, [("If-None-Match", '"7", "8"')], 200, 204),
        (1, [("If-Match", '"1"'), ("X-Object-Version", "1")], 200, 204),
        (0, [("If-None-Match", "*"), ("X-Object-Version", "0")], 201, 204),
        (1, [("If-Match", '"1"'), ("X-Object-Version", "2")], 400, 400),
        (1, [("If-None-Match", "*"), ("X-Object-Version", "1")], 400, 400),
    ],
)
@pytest.mark.parametrize("route", [KEY, OBJECT])
def test_rfc_9110_decides_alone(
    gateway: Gateway, route: str, state: int, headers: Headers, put: int, delete: int
) -> None:
    body = json.dumps({"value": "2", "encoding": "utf8"}).encode() if route is OBJECT else b"2"
    for method, status in (("PUT", put), ("DELETE", delete)):
        gateway("DELETE", KEY)
        if state:
            # A new deployment for each attempt, so that the version is 1 again.
            gateway = Gateway()
            assert gateway("PUT", KEY, b"1").status == 201
        answer = gateway(method, route, body if method == "PUT" else b"", headers=headers)
        if status < 300 and method == "PUT" and not state:
            assert answer.status == 201
        else:
            assert answer.status == status, answer
        if status == 412:
            problem = expect_problem(answer, 412, "version-conflict")
            assert answer.header("x-object-version") == str(state) == str(problem["version"])


@pytest.mark.parametrize(
    "headers",
    [
        *(
            [("X-Object-Version", text)]
            for text in ("", " ", "-1", "1.0", "01", "+1", "1 ", "x", "1e0", "9" * 19)
        ),
        [("X-Object-Version", "1"), ("X-Object-Version", "1")],
        [("X-Object-Version", b"\xb2")],
        *([("If-Match", text)] for text in ("", " ", "1", '"1', '"1" "2"', '*, "1"', "W/1", "'1'")),
        *([("If-None-Match", text)] for text in ("", ",", "1", '"', "**")),
        [("If-Match", "*"), ("If-None-Match", '"1"')],
    ],
)
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("route", [KEY, OBJECT, CAPSULE_KEY])
def test_a_malformed_precondition_is_never_unconditional(
    gateway: Gateway, route: str, method: str, headers: Headers
) -> None:
    body = b'{"value":"","encoding":"utf8"}' if route is OBJECT else b""
    answer = gateway(method, route, body, headers=headers)
    assert answer.status == 400
    assert answer.json()["code"] in {"malformed-version", "malformed-precondition"}
    assert gateway.appended() == 0


@pytest.mark.row("D16")
def test_undeploy_says_what_was_swept(gateway: Gateway) -> None:
    for key in ("a", "b"):
        gateway("PUT", f"/deployments/dep/kv/user/{key}")
        gateway("PUT", f"/deployments/dep/kv/system/{key}")
        gateway("PUT", f"/deployments/dep2/kv/user/{key}")
    swept = gateway("DELETE", "/deployments/dep")
    assert (swept.status, swept.json()) == (
        200,
        {
            "removed": 4,
            "complete": True,
            "persistent": {"status": "swept", "removed": 4, "code": None},
            "volatile": {"status": "none", "removed": 0, "code": None},
        },
    )
    assert swept.header("x-kvfold-position") is not None
    assert {scope for scope, _, _ in gateway.deployment()} == {"d:dep2"}
    assert gateway("DELETE", "/deployments/dep").json()["removed"] == 0
    for name in ("If-Match", "X-Object-Version", "If-None-Match"):
        expect_problem(
            gateway("DELETE", "/deployments/dep2", headers=[(name, "*")]), 400, "malformed-precondition"
        )


@pytest.mark.row("D10")
@pytest.mark.row("D11")
@pytest.mark.row("D12")
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize(
    ("namespace", "status", "code"),
    [
        ("user_secrets", 503, "encryption-key-missing"),
        ("user_volatile", 503, "volatile-unavailable"),
        ("user_secrets_volatile", 400, "secret-and-volatile"),
        ("user_volatile_secrets", 400, "secret-and-volatile"),
        ("a%0Ab", 400, "invalid-namespace"),
        ("n" * 129, 400, "invalid-namespace"),
    ],
)
def test_namespaces(gateway: Gateway, method: str, namespace: str, status: int, code: str) -> None:
    expect_problem(gateway(method, f"/deployments/dep/kv/{namespace}/k", b"v"), status, code)
    assert gateway.appended() == 0
    assert gateway("PUT", KEY).status == 201  # plain ones keep working


@pytest.mark.row("D4")
def test_a_value_of_exactly_the_limit_passes(gateway: Gateway) -> None:
    limit = DEPLOYMENT_VALUE_BYTES_MAX
    for route in (KEY, CAPSULE_KEY):
        assert gateway("PUT", route, bytes(limit)).status == 201
        expect_problem(gateway("PUT", route, bytes(limit + 1)), 413, "too-large")
    for size, status in ((limit, 201), (limit + 1, 413)):
        # Escaped, and in base64, the document is far longer than the value.
        for text, encoding in (("\x01" * size, "utf8"), (base64.b64encode(bytes(size)).decode(), "base64")):
            body = json.dumps({"value": text, "encoding": encoding}).encode()
            assert (
                gateway("PUT", f"/deployments/dep/objects/{encoding}-{size}?namespace=user", body).status
                == status
            )
    expect_problem(gateway("PUT", KEY, bytes(BODY_DRAIN_BYTES_MAX + 1)), 413, "too-large")


# --- capsules ---


@pytest.mark.row("C15")
def test_capsule_keys(gateway: Gateway) -> None:
    created = gateway("PUT", CAPSULE_KEY, b"")
    empty = hashlib.sha256(b"").hexdigest()
    assert (created.status, created.header("etag"), created.header("x-object-version")) == (
        201,
        f'"{empty}"',
        "1",
    )
    assert gateway("PUT", CAPSULE_KEY, b"1").status == 200
    lost = gateway("PUT", CAPSULE_KEY, b"2", headers=[("If-Match", f'"{empty}"')])
    expect_problem(lost, 412, "cas-mismatch")
    expect_problem(gateway("PUT", CAPSULE_KEY, b"2", headers=[("If-None-Match", "*")]), 412, "cas-mismatch")
    tag = f'"{hashlib.sha256(b"1").hexdigest()}"'
    assert gateway("PUT", CAPSULE_KEY, b"2", headers=[("If-Match", tag)]).status == 200
    assert gateway("DELETE", CAPSULE_KEY, headers=[("If-Match", tag)]).status == 412
    assert gateway("DELETE", CAPSULE_KEY).status == 204
    assert gateway("DELETE", CAPSULE_KEY).status == 204
    assert gateway("DELETE", CAPSULE_KEY, headers=[("If-Match", "*")]).status == 412
    expect_problem(gateway("PUT", CAPSULE_KEY, headers=version(1)), 400, "malformed-precondition")
    assert gateway.capsule() == {}


@pytest.mark.row("C19")
def test_clearing_a_prefix(gateway: Gateway) -> None:
    for key in ("a_b", "axb", "a%25", "ab", "session.1", "session2"):
        gateway("PUT", f"/v1/capsules/alice/notes/kv/{key}")
    keys = "/v1/capsules/alice/notes/keys"
    assert gateway("DELETE", f"{keys}?prefix=a_").json() == {"removed": 1}
    assert gateway("DELETE", f"{keys}?prefix=a%25").json() == {"removed": 1}
    assert gateway("DELETE", f"{keys}?prefix=session.").json() == {"removed": 1}
    assert gateway("DELETE", f"{keys}?prefix=none").json() == {"removed": 0}
    assert [key for _, key in sorted(gateway.capsule())] == ["ab", "axb", "session2"]
    expect_problem(gateway("DELETE", keys), 400, "malformed-query")
    assert gateway("DELETE", f"{keys}?prefix=").json() == {"removed": 3}


@pytest.mark.row("C1")
@pytest.mark.parametrize("path", ["a:b/c", "a/b:c", "a%2Fb/c", "a/b%3Ac", "/c", "a/", "e%CC%81/c", "a%0A/c"])
def test_names_that_could_forge_a_namespace(gateway: Gateway, path: str) -> None:
    for method in ("PUT", "DELETE"):
        expect_problem(gateway(method, f"/v1/capsules/{path}/kv/k"), 400, "malformed-name")
    expect_problem(gateway("DELETE", f"/v1/capsules/{path}/keys?prefix="), 400, "malformed-name")


# --- the object browser ---


@pytest.mark.row("D13")
def test_objects(gateway: Gateway) -> None:
    created = gateway("PUT", OBJECT, b'{"value":"AP8=","encoding":"base64"}')
    assert (created.status, created.json()) == (201, {"key": "k", "version": 1})
    assert gateway("PUT", OBJECT, b'{"value":"","encoding":"utf8"}').status == 409
    assert gateway.deployment() == {("d:dep", "user", "k"): (1, b"\x00\xff")}
    replaced = gateway("PUT", f"{OBJECT}&version=1", b'{"value":"x","encoding":"utf8","version":1}')
    assert (replaced.status, replaced.header("x-object-version")) == (200, "2")
    assert gateway("PUT", OBJECT, '{"value":"ü","encoding":"utf8","version":2}'.encode()).status == 200
    assert gateway.deployment() == {("d:dep", "user", "k"): (3, "ü".encode())}
    differ = gateway("PUT", f"{OBJECT}&version=1", b'{"value":"x","encoding":"utf8","version":3}')
    expect_problem(differ, 400, "malformed-version")
    assert gateway("DELETE", f"{OBJECT}&version=1").status == 409
    assert gateway("DELETE", f"{OBJECT}&version=3").status == 204
    assert gateway("DELETE", OBJECT).status == 204


@pytest.mark.row("D13")
@pytest.mark.parametrize(
    ("namespace", "status", "code"),
    [
        ("system", 400, "invalid-namespace"),
        ("user_secrets", 400, "invalid-namespace"),
        ("system_volatile", 400, "invalid-namespace"),
        ("", 400, "invalid-namespace"),
        ("user_secrets_volatile", 400, "secret-and-volatile"),
        ("user_volatile", 503, "volatile-unavailable"),
    ],
)
def test_the_browser_keeps_to_the_user_family(
    gateway: Gateway, namespace: str, status: int, code: str
) -> None:
    target = f"/deployments/dep/objects/k?namespace={namespace}"
    expect_problem(gateway("PUT", target, b'{"value":"","encoding":"utf8"}'), status, code)
    expect_problem(gateway("DELETE", target), status, code)
    assert gateway.appended() == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"value":"x"}',
        b'{"value":1,"encoding":"utf8"}',
        b'{"value":"x","encoding":"utf16"}',
        b'{"value":"x","encoding":"base64"}',
        b'{"value":"\xc3\xa9==","encoding":"base64"}',
        b'{"value":"","encoding":"utf8","version":-1}',
        b'{"value":"","encoding":"utf8","version":"1"}',
        b'{"value":"","encoding":"utf8","version":1.0}',
        b'{"value":"","encoding":"utf8","version":true}',
        b'{"value":"","encoding":"utf8","surplus":1}',
        b'{"value":"\\ud800","encoding":"utf8"}',
        b"\xff",
    ],
)
def test_a_body_that_is_no_object_is_refused(gateway: Gateway, body: bytes) -> None:
    answer = gateway("PUT", OBJECT, body)
    assert answer.status == 400, answer
    assert answer.json()["code"].startswith("malformed")
    assert gateway.appended() == 0


# --- attempts ---


@pytest.mark.row("X4")
@pytest.mark.parametrize("key", [str(uuid.uuid4()), "order 17", '"quoted"'])
def test_a_repeat_with_the_same_key_gives_the_first_outcome(gateway: Gateway, key: str) -> None:
    attempt: Headers = [("Idempotency-Key", key)]
    first = gateway("PUT", KEY, b"1", headers=attempt)
    gateway("PUT", KEY, b"2", headers=version(1))
    repeat = gateway("PUT", KEY, b"1", headers=attempt)
    assert (repeat.status, repeat.json(), repeat.headers) == (201, first.json(), first.headers)
    assert gateway.deployment() == {("d:dep", "user", "k"): (2, b"2")}
    other = gateway("PUT", KEY, b"3", headers=attempt)
    expect_problem(other, 422, "id-reused")
    conflict = gateway("PUT", KEY, b"", headers=[("Idempotency-Key", "c")])
    gateway("DELETE", KEY)
    again = gateway("PUT", KEY, b"", headers=[("Idempotency-Key", "c")])
    assert (conflict.status, again.status, again.json()) == (409, 409, conflict.json())
    # The same text in another scope is another mutation.
    assert gateway("PUT", "/deployments/dep2/kv/user/k", b"1", headers=attempt).status == 201


@pytest.mark.parametrize("keys", [[""], [" "], ["a", "a"], ["a\x7f"], [b"\xfc"], ["a" * 256]])
def test_a_malformed_idempotency_key_is_refused(gateway: Gateway, keys: list[str | bytes]) -> None:
    headers = [("Idempotency-Key", key) for key in keys]
    expect_problem(gateway("PUT", KEY, headers=headers), 400, "malformed-idempotency-key")
    assert gateway.appended() == 0


def test_a_log_that_is_away_is_said_with_the_mutation_id() -> None:
    fault: list[AppendFault] = [AppendFault.ANSWER_LOST]
    log = MemoryLog(partition_count=3, fault=lambda _partition, _record: fault[0] if fault else None)
    gateway = Gateway(log)
    answer = gateway("PUT", KEY, b"1")
    problem = expect_problem(answer, 503, "log-unavailable")
    assert answer.header("retry-after") is not None
    assert problem["position"] is None
    fault.clear()
    repeat = gateway("PUT", KEY, b"1", headers=[("Idempotency-Key", problem["mutation_id"])])
    assert (repeat.status, repeat.header("x-object-version")) == (201, "1")
    assert gateway.appended() == 2  # and applied once
