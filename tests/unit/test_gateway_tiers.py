"""Every deployment verb goes to the tier that its namespace's suffix says: log, log with a key, memory (rows D8 to D12)."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest
from structlog.testing import capture_logs

from kvfold.http.app import App
from kvfold.log.memory import AppendFault, MemoryLog
from kvfold.producers.deployment.memory_volatile import MemoryVolatileTier
from kvfold.producers.deployment.volatile import SweepError
from kvfold.producers.gateway.context import build_gateway_context
from kvfold.producers.gateway.keyring import Keyring
from kvfold.producers.gateway.routes import write_routes
from kvfold.producers.gateway.undeploying import SWEEP_FAILED
from kvfold.projector.tables import DeploymentEntry
from kvfold.schemas.limits import DEPLOYMENT_VALUE_BYTES_MAX
from support.asgi import AsgiAnswer, request
from support.folding import FoldingWaiter

__all__: list[str] = []

KEYRING = Keyring(b"k" * 32)
SECRET = b"planted-secret-4711"
BOTH = [
    "user_secrets_volatile",
    "user_volatile_secrets",
    "_secrets_volatile",
    "user_volatile_secrets_volatile",
    "user_secrets_secrets_volatile_volatile",
]


class SweepingTier(MemoryVolatileTier):
    """A tier whose sweep fails after three entries, until it is mended."""

    fails = False

    def sweep(self, deployment_id: str) -> int:
        if self.fails:
            raise SweepError("the volatile tier does not answer", removed=3)
        return super().sweep(deployment_id)


class Gateway:
    """The write routes over a log and a volatile tier in memory."""

    def __init__(self, *, keyring: Keyring | None = KEYRING, with_volatile: bool = True) -> None:
        self.faults: list[AppendFault] = []
        self.log = MemoryLog(partition_count=3, fault=lambda *_: self.faults.pop() if self.faults else None)
        self.waiter = FoldingWaiter(self.log)
        self.tier = SweepingTier()
        volatile = self.tier if with_volatile else None
        self.context = build_gateway_context(
            self.log, self.waiter, secrets=keyring, volatile=volatile, write_timeout_s=0.5
        )
        self.app = App(write_routes(self.context))

    def __call__(self, method: str, target: str, body: bytes = b"", **headers: str) -> AsgiAnswer:
        pairs = [(name.replace("_", "-"), text) for name, text in headers.items()]
        return asyncio.run(request(self.app, method, target, headers=pairs, body=body))

    def event(self, namespace: str, value: str = "v", **attributes: str) -> dict[str, Any]:
        return {
            "specversion": "1.0",
            "type": "kvfold.deployment.put.v1",
            "id": str(uuid.uuid4()),
            "source": "/tests",
            "partitionkey": "d:dep",
            "subject": "k",
            "kvnamespace": namespace,
            "data": value,
            "datacontenttype": "text/plain",
            **attributes,
        }

    def post(self, *events: dict[str, Any], query: str = "?wait=1") -> AsgiAnswer:
        """One event in structured mode, or a batch."""
        kind = "cloudevents" if len(events) == 1 else "cloudevents-batch"
        body = json.dumps(events[0] if len(events) == 1 else events).encode()
        return self("POST", f"/v1/mutations{query}", body, content_type=f"application/{kind}+json")

    def entries(self) -> dict[tuple[str, str], tuple[int, bytes]]:
        """What the projection of deployment `dep` holds."""
        self.waiter.fold()
        rows = map(DeploymentEntry._make, self.waiter.store.rows("deployment_entry"))
        return {
            (row.namespace, row.key): (row.version, row.value)
            for row in rows
            if row.value is not None and row.scope == "d:dep"
        }

    def appended(self) -> int:
        return sum(bounds.end for bounds in self.log.bounds(range(3)).values())


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


def code(answer: AsgiAnswer) -> tuple[int, str]:
    return answer.status, answer.json()["code"]


# --- routing ---


@pytest.mark.row("D8")
def test_volatile_entries_have_the_same_protocol_and_never_meet_the_log(gateway: Gateway) -> None:
    key = "/deployments/dep/kv/user_volatile/k"
    created = gateway("PUT", key, b"1")
    assert created.status == 201
    version = int(created.header("x-object-version") or 0)
    assert version > 0 and created.header("etag") == f'"{version}"'
    assert created.header("x-kvfold-position") is None
    conflict = gateway("PUT", key, b"2")
    assert code(conflict) == (409, "version-conflict")
    assert conflict.header("x-object-version") == str(version)
    assert conflict.json()["version"] == version
    assert code(gateway("PUT", key, b"2", x_object_version=str(version - 1))) == (409, "version-conflict")
    replaced = gateway("PUT", key, b"", x_object_version=str(version))
    assert (replaced.status, replaced.header("x-object-version")) == (200, str(version + 1))
    entry = gateway.tier.entries("dep").get("user_volatile", "k")
    assert entry is not None and (entry.value, entry.version) == (b"", version + 1)
    assert code(gateway("PUT", key, b"", If_Match='"1"')) == (412, "version-conflict")
    assert code(gateway("DELETE", key, x_object_version="1")) == (409, "version-conflict")
    assert gateway("DELETE", key, x_object_version="0").status == 204
    assert gateway("DELETE", key, x_object_version="7").status == 204  # absent: at any version
    assert gateway("DELETE", key, If_Match="*").status == 412
    assert gateway.appended() == 0


@pytest.mark.row("D8")
@pytest.mark.row("D13")
def test_the_browser_writes_volatile_objects(gateway: Gateway) -> None:
    target = "/deployments/dep/objects/k?namespace=user_volatile"
    created = gateway("PUT", target, b'{"value":"AP8=","encoding":"base64"}')
    assert created.status == 201
    entry = gateway.tier.entries("dep").get("user_volatile", "k")
    assert entry is not None and entry.value == b"\x00\xff"
    assert created.json() == {"key": "k", "version": entry.version}
    assert gateway("DELETE", target, x_object_version=str(entry.version)).status == 204
    assert gateway.tier.entries("dep").get("user_volatile", "k") is None
    assert gateway.appended() == 0


@pytest.mark.row("D8")
def test_an_event_for_a_volatile_namespace_is_done_in_its_tier(gateway: Gateway) -> None:
    assert gateway.post(gateway.event("user_volatile", "1"), query="").status == 200
    assert code(gateway.post(gateway.event("user_volatile", "2", kvexpected="absent"))) == (
        409,
        "version-conflict",
    )
    outcomes = gateway.post(
        gateway.event("user_volatile", "3"),
        gateway.event("user", "4"),
        gateway.event("user_volatile", "5"),
        gateway.event("user:x_volatile", "6"),
        gateway.event("user_volatile", type="kvfold.deployment.deleted.v1", subject="none"),
    ).json()
    assert [item["status"] for item in outcomes] == ["applied", "applied", "applied", "rejected", "rejected"]
    assert [item["code"] for item in outcomes[3:]] == ["invalid-namespace", "malformed"]
    assert outcomes[2]["version"] == outcomes[0]["version"] + 1, "in the batch's order"
    entry = gateway.tier.entries("dep").get("user_volatile", "k")
    assert entry is not None and entry.value == b"5"
    assert gateway.entries() == {("user", "k"): (1, b"4")}


@pytest.mark.row("D8")
@pytest.mark.parametrize("target", ["/deployments/a:b/kv/n_volatile/k", "/deployments/a/kv/b:n_volatile/k"])
def test_names_with_a_colon_are_refused_in_the_volatile_tier(gateway: Gateway, target: str) -> None:
    for method in ("PUT", "DELETE"):
        answer = gateway(method, target, b"v")
        assert code(answer) in ((400, "malformed-name"), (400, "invalid-namespace"))


@pytest.mark.row("D12")
@pytest.mark.parametrize("namespace", BOTH)
def test_both_suffixes_are_refused_on_every_verb(gateway: Gateway, namespace: str) -> None:
    refused = (400, "secret-and-volatile")
    for method in ("PUT", "DELETE"):
        assert code(gateway(method, f"/deployments/dep/kv/{namespace}/k", SECRET)) == refused
        target = f"/deployments/dep/objects/k?namespace={namespace}"
        assert code(gateway(method, target, b'{"value":"","encoding":"utf8"}')) == refused
    assert code(gateway.post(gateway.event(namespace))) == refused
    assert gateway.appended() == 0
    assert gateway.tier.entries("dep").namespaces() == ()


# --- secrets ---


@pytest.mark.row("D10")
def test_a_secret_is_sealed_on_every_route(gateway: Gateway) -> None:
    key = "/deployments/dep/kv/user_secrets"
    put = gateway("PUT", f"{key}/a", SECRET)
    assert (put.status, put.header("x-object-version")) == (201, "1")
    assert gateway.post(gateway.event("user_secrets", SECRET.decode(), subject="b")).status == 201
    outcomes = gateway.post(
        gateway.event("user_secrets", SECRET.decode(), subject="c"),
        gateway.event("x_secrets_secrets", SECRET.decode(), subject="d"),
    ).json()
    assert [item["status"] for item in outcomes] == ["applied", "applied"]
    entries = gateway.entries()
    assert {key for _, key in entries} == {"a", "b", "c", "d"}
    for (namespace, name), (_, envelope) in entries.items():
        assert envelope.startswith(b"KVS1") and SECRET not in envelope
        assert KEYRING.open("d:dep", namespace, name, envelope) == SECRET


@pytest.mark.row("D10")
def test_what_looks_sealed_is_plaintext_all_the_same(gateway: Gateway) -> None:
    lookalike = Keyring(b"o" * 32).seal("d:dep", "user_secrets", "k", SECRET)
    assert gateway("PUT", "/deployments/dep/kv/user_secrets/k", lookalike).status == 201
    ((_, envelope),) = gateway.entries().values()
    assert KEYRING.open("d:dep", "user_secrets", "k", envelope) == lookalike


@pytest.mark.row("D4")
@pytest.mark.row("D10")
def test_a_secret_of_exactly_the_limit_passes(gateway: Gateway) -> None:
    key = "/deployments/dep/kv/user_secrets/k"
    limit = DEPLOYMENT_VALUE_BYTES_MAX
    assert gateway("PUT", key, bytes(limit)).status == 201
    assert code(gateway("PUT", key, bytes(limit + 1), x_object_version="1")) == (413, "too-large")
    ((_, envelope),) = gateway.entries().values()
    assert len(envelope) > limit and KEYRING.open("d:dep", "user_secrets", "k", envelope) == bytes(limit)


@pytest.mark.row("D10")
def test_a_repeated_secret_write_has_the_first_outcome(gateway: Gateway) -> None:
    key = "/deployments/dep/kv/user_secrets/k"
    first = gateway("PUT", key, SECRET, Idempotency_Key="attempt")
    again = gateway("PUT", key, SECRET, Idempotency_Key="attempt")
    assert (first.status, again.status) == (201, 201)
    assert first.header("x-kvfold-position") == again.header("x-kvfold-position")
    assert gateway.entries()["user_secrets", "k"][0] == 1


@pytest.mark.row("D11")
def test_without_a_key_secret_operations_alone_are_503() -> None:
    gateway = Gateway(keyring=None)
    missing = (503, "encryption-key-missing")
    for method in ("PUT", "DELETE"):
        answer = gateway(method, "/deployments/dep/kv/user_secrets/k", SECRET)
        assert code(answer) == missing
        assert SECRET not in answer.body
    assert code(gateway.post(gateway.event("user_secrets"))) == missing
    assert gateway.appended() == 0
    assert gateway("PUT", "/deployments/dep/kv/user/k", b"v").status == 201
    assert gateway("PUT", "/deployments/dep/kv/user_volatile/k", b"v").status == 201
    assert gateway("DELETE", "/deployments/dep").status == 200


@pytest.mark.row("D8")
def test_without_a_volatile_tier_volatile_operations_alone_are_503() -> None:
    gateway = Gateway(with_volatile=False)
    for method in ("PUT", "DELETE"):
        assert code(gateway(method, "/deployments/dep/kv/user_volatile/k", b"v")) == (
            503,
            "volatile-unavailable",
        )
    assert gateway("PUT", "/deployments/dep/kv/user/k", b"v").status == 201
    assert gateway("PUT", "/deployments/dep/kv/user_secrets/k", SECRET).status == 201


# --- isolation, and undeploy ---


@pytest.mark.row("D1")
@pytest.mark.row("D20")
def test_deployments_and_namespaces_keep_to_themselves(gateway: Gateway) -> None:
    places = [
        f"/deployments/{deployment}/kv/{family}{suffix}/k"
        for deployment in ("dep", "dep2")
        for family in ("user", "system")
        for suffix in ("", "_secrets", "_volatile")
    ]
    for place in places:
        assert gateway("PUT", place, place.encode()).status == 201, "absent, whatever the others hold"
    assert gateway("DELETE", places[0]).status == 204
    assert gateway("DELETE", places[2]).status == 204
    for place in places:
        assert gateway("PUT", place, b"").status == (201 if place in (places[0], places[2]) else 409)


def fill(gateway: Gateway) -> None:
    for deployment in ("dep", "dep2"):
        for namespace in ("user", "system_secrets", "user_volatile", "system_volatile"):
            assert gateway("PUT", f"/deployments/{deployment}/kv/{namespace}/k", b"v").status == 201


@pytest.mark.row("D16")
def test_undeploy_sweeps_both_tiers_and_says_so(gateway: Gateway) -> None:
    fill(gateway)
    swept = gateway("DELETE", "/deployments/dep")
    assert (swept.status, swept.json()) == (
        200,
        {
            "removed": 4,
            "complete": True,
            "persistent": {"status": "swept", "removed": 2, "code": None},
            "volatile": {"status": "swept", "removed": 2, "code": None},
        },
    )
    assert gateway.entries() == {}
    assert gateway.tier.entries("dep").namespaces() == ()
    for namespace in ("user", "user_volatile"):  # the neighbour keeps its own
        assert gateway("PUT", f"/deployments/dep2/kv/{namespace}/k").status == 409


@pytest.mark.row("D16")
def test_a_volatile_tier_that_fails_does_not_fail_the_undeploy(gateway: Gateway) -> None:
    fill(gateway)
    gateway.tier.fails = True
    with capture_logs() as logs:
        swept = gateway("DELETE", "/deployments/dep")
    assert swept.status == 200
    assert swept.json()["complete"] is False
    assert swept.json()["persistent"] == {"status": "swept", "removed": 2, "code": None}
    assert swept.json()["volatile"] == {"status": "failed", "removed": 3, "code": "volatile-unavailable"}
    assert [(line["event"], line["tier"], line["removed"]) for line in logs] == [
        (SWEEP_FAILED, "volatile", 3)
    ]
    gateway.tier.fails = False
    rest = gateway("DELETE", "/deployments/dep").json()
    assert (rest["complete"], rest["persistent"]["removed"], rest["volatile"]["removed"]) == (True, 0, 2)


@pytest.mark.row("D16")
def test_a_log_that_fails_does_not_fail_the_undeploy(gateway: Gateway) -> None:
    fill(gateway)
    gateway.faults.append(AppendFault.NOT_APPENDED)
    with capture_logs() as logs:
        swept = gateway("DELETE", "/deployments/dep")
    assert swept.status == 200
    assert swept.json()["complete"] is False
    assert swept.json()["persistent"] == {"status": "failed", "removed": 0, "code": "log-unavailable"}
    assert swept.json()["volatile"] == {"status": "swept", "removed": 2, "code": None}
    assert [(line["event"], line["tier"]) for line in logs] == [(SWEEP_FAILED, "persistent")]
    assert len(gateway.entries()) == 2
    assert gateway("DELETE", "/deployments/dep").json()["complete"] is True
    assert gateway.entries() == {}


@pytest.mark.row("D16")
def test_an_undeploy_that_reached_no_tier_is_503(gateway: Gateway) -> None:
    fill(gateway)
    gateway.tier.fails = True
    gateway.faults.append(AppendFault.NOT_APPENDED)
    assert code(gateway("DELETE", "/deployments/dep")) == (503, "log-unavailable")
    assert len(gateway.entries()) == 2
