"""The clients of the three families the whole way: log in Postgres, real projector, real reads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from kvfold.log.postgres import PostgresLog
from kvfold.producers import mutations
from kvfold.producers.capsule import CapsuleClient
from kvfold.producers.deployment import DeploymentClient
from kvfold.producers.orchestration import OrchestrationClient
from kvfold.producers.producer import Producer
from kvfold.reads.executor import Reader, read_pool
from kvfold.reads.waiting import Waiter
from kvfold.schemas.errors import (
    ConflictError,
    InvalidError,
    NotUpToPositionError,
    OutcomeUnknownError,
    RejectedError,
)
from kvfold.schemas.limits import CAPSULE_VALUE_BYTES_MAX
from kvfold.schemas.orchestration import (
    CustomStatusUpdated,
    KeyValueCleared,
    KeyValueSet,
    OrchestrationCompleted,
    OrchestrationContinuedAsNew,
)
from kvfold.schemas.outcome import DecisionStatus
from kvfold.schemas.position import Position
from support.projectors import postgres_log, running_projector

__all__: list[str] = []

pytestmark = pytest.mark.postgres

ODD_KEYS = ("a/b", "//", "/a/", ".", "..", "%25", "a+b", " a ", "_", "%", "\U0001f600", "שלום", "é")


@dataclass(frozen=True)
class Stack:
    log: PostgresLog
    producer: Producer
    reader: Reader
    waiter: Waiter
    dsn: str

    def capsule(self, principal: str = "alice", capsule_id: str = "notes") -> CapsuleClient:
        return CapsuleClient(self.producer, self.reader, principal=principal, capsule_id=capsule_id)

    def deployment(self, deployment_id: str = "dep") -> DeploymentClient:
        return DeploymentClient(self.producer, self.reader, deployment_id=deployment_id)

    def orchestration(self) -> OrchestrationClient:
        return OrchestrationClient(self.producer, self.reader)


@pytest.fixture
def idle(postgres_dsn: str) -> Iterator[Stack]:
    """Everything but a projector."""
    with ExitStack() as stack:
        log = stack.enter_context(postgres_log(postgres_dsn))
        pool = stack.enter_context(read_pool(postgres_dsn, size_max=8))
        reader = Reader(pool)
        stack.callback(reader.close)
        waiter = Waiter(postgres_dsn)
        stack.callback(waiter.close)
        yield Stack(log, Producer(log, waiter, source="/tests"), reader, waiter, postgres_dsn)


@pytest.fixture
def kvfold(idle: Stack) -> Iterator[Stack]:
    with running_projector(idle.log, idle.dsn):
        yield idle


@pytest.mark.row("C3")
@pytest.mark.row("C7")
def test_a_capsule_keeps_bytes(kvfold: Stack) -> None:
    capsule = kvfold.capsule()
    assert capsule.get("k") is None and not capsule.exists("k")
    assert capsule.set("k", b"") == 1
    assert capsule.get("k") == b"" and capsule.exists("k")
    assert capsule.set("k", b"\x00\xff") == 2
    assert capsule.get("k") == b"\x00\xff"
    assert capsule.delete("k") is True
    assert capsule.delete("k") is False
    assert capsule.get("k") is None
    whole = bytes(CAPSULE_VALUE_BYTES_MAX)
    capsule.set("k", whole)
    assert capsule.get("k") == whole
    with pytest.raises(InvalidError, match="1048577 bytes") as caught:
        capsule.set("k", whole + b"x")
    assert caught.value.code == "too-large"


@pytest.mark.row("C6")
@pytest.mark.row("C8")
def test_odd_keys_are_kept_apart_and_listed_once_in_byte_order(kvfold: Stack) -> None:
    capsule, deployment = kvfold.capsule(), kvfold.deployment()
    for key in ODD_KEYS:
        capsule.set(key, key.encode())
        deployment.put("user", key, key.encode())
    expected = tuple(sorted(ODD_KEYS, key=str.encode))
    assert capsule.list_keys() == expected
    assert tuple(entry.key for entry in deployment.list("user").objects) == expected
    for key in ODD_KEYS:
        assert capsule.get(key) == key.encode()
        found = deployment.get("user", key)
        assert found is not None and found.value == key.encode()


@pytest.mark.row("C19")
@pytest.mark.row("C21")
def test_a_prefix_is_literal_and_never_takes_a_neighbour(kvfold: Stack) -> None:
    capsule = kvfold.capsule()
    for key in ("a_b", "axb", "a%", "ab", "a", "b", "session.1", "session.2", "session2"):
        capsule.set(key, b"")
    assert capsule.list_keys("a_") == ("a_b",)
    assert capsule.clear_prefix("a_") == 1
    assert capsule.clear_prefix("a%") == 1
    assert capsule.clear_prefix("session.") == 2
    assert capsule.list_keys() == ("a", "ab", "axb", "b", "session2")
    assert capsule.clear_prefix("none") == 0
    assert capsule.clear_prefix("") == 5
    capsule.set("a", b"")
    assert capsule.clear_namespace() == 1
    assert capsule.list_keys() == ()


@pytest.mark.row("C9")
def test_pages_of_keys(kvfold: Stack) -> None:
    capsule = kvfold.capsule()
    for n in range(7):
        capsule.set(f"k{n}", b"")
    first = capsule.list_keys_page("k", limit=3)
    assert first.keys == ("k0", "k1", "k2") and first.next_cursor is not None
    capsule.delete(first.next_cursor)  # deleting the cursor's key is harmless
    second = capsule.list_keys_page("k", cursor=first.next_cursor, limit=3)
    third = capsule.list_keys_page("k", cursor=second.next_cursor, limit=3)
    assert second.keys + third.keys == ("k3", "k4", "k5", "k6")
    assert third.next_cursor is None
    for prefix, cursor, limit in (("", None, 0), ("", None, 1_025), ("", "a\x00", 1), ("\ud800", None, 1)):
        with pytest.raises(InvalidError):
            capsule.list_keys_page(prefix, cursor=cursor, limit=limit)


@pytest.mark.row("C10")
def test_the_quota_counts_keys_and_values(kvfold: Stack) -> None:
    capsule = kvfold.capsule()
    capsule.set("key", b"12345")
    capsule.set_quota(10)
    assert capsule.usage() == replace(capsule.usage(), keys=1, bytes=8, bytes_max=10)
    with pytest.raises(RejectedError) as caught:
        capsule.set("key", b"12345678")
    assert caught.value.code == "quota"
    assert capsule.get("key") == b"12345"
    capsule.set_quota(1)
    capsule.set("key", b"1")  # shrinking is always allowed
    assert capsule.usage().bytes == 4
    assert kvfold.capsule("bob").usage().bytes == 0


@pytest.mark.row("C15")
def test_one_of_many_swappers_wins(kvfold: Stack) -> None:
    capsule = kvfold.capsule()
    for expected in (None, b"first"):
        values = [b"first"] if expected is None else [b"%d" % n for n in range(16)]
        with ThreadPoolExecutor(16) as threads:
            swaps = [values[n % len(values)] for n in range(16)]
            won = list(threads.map(partial(capsule.cas, "state", expected), swaps))
        assert won.count(True) == 1
        assert capsule.get("state") == swaps[won.index(True)]
    assert capsule.cas("state", None, b"") is False
    assert capsule.cas("other", b"", b"") is False  # an empty value is not a missing one
    assert capsule.cas("other", None, b"") is True
    assert capsule.cas("other", b"", b"x") is True


@pytest.mark.row("C1")
def test_a_principal_cannot_forge_a_namespace(idle: Stack) -> None:
    for principal, capsule_id in (
        ("a:capsule:b", "c"),
        ("a", "b:c"),
        ("", "c"),
        ("a/b", "c"),
        ("a\x00", "c"),
    ):
        with pytest.raises(InvalidError) as caught:
            idle.capsule(principal, capsule_id)
        assert caught.value.code == "malformed-name"


@pytest.mark.row("D2")
@pytest.mark.row("D3")
def test_versions_go_on_growing_over_delete_and_create(kvfold: Stack) -> None:
    deployment = kvfold.deployment()
    assert deployment.put("user", "k", b"", expected=0) == 1
    found = deployment.get("user", "k")
    assert found is not None and (found.value, found.version) == (b"", 1)
    with pytest.raises(ConflictError) as caught:
        deployment.put("user", "k", b"x", expected=0)
    assert (caught.value.code, caught.value.version) == ("version-conflict", 1)
    assert deployment.put("user", "k", b"x", expected=1) == 2
    with pytest.raises(ConflictError):
        deployment.delete("user", "k", expected=1)
    assert deployment.delete("user", "k", expected=2).version == 2
    assert deployment.delete("user", "k", expected=2).version == 0
    with pytest.raises(ConflictError) as caught:
        deployment.put("user", "k", b"x", expected=2)
    assert caught.value.version is None
    assert deployment.put("user", "k", b"x", expected=0) == 3
    with pytest.raises(ConflictError):
        deployment.put("user", "k", b"x", expected=0)


@pytest.mark.row("D1")
@pytest.mark.row("D16")
def test_undeploy_sweeps_every_namespace_of_one_deployment(kvfold: Stack) -> None:
    deployment, neighbour = kvfold.deployment(), kvfold.deployment("dep2")
    for namespace in ("user", "system"):
        for n in range(3):
            deployment.put(namespace, f"k{n}", b"")
            neighbour.put(namespace, f"k{n}", b"")
    assert deployment.undeploy() == 6
    assert deployment.namespaces() == ()
    assert neighbour.namespaces() == ("system", "user")
    assert deployment.put("user", "k0", b"", expected=0) == 2
    assert deployment.undeploy() == 1
    assert deployment.undeploy() == 0


@pytest.mark.row("D18")
def test_one_of_many_writers_wins_a_version(kvfold: Stack) -> None:
    deployment = kvfold.deployment()

    def put(expected: int) -> int | None:
        try:
            return deployment.put("user", "k", b"", expected=expected)
        except ConflictError as error:
            assert error.version == expected + 1
            return None

    for expected in range(3):
        with ThreadPoolExecutor(16) as threads:
            versions = list(threads.map(put, [expected] * 16))
        assert [version for version in versions if version is not None] == [expected + 1]


@pytest.mark.row("O8")
@pytest.mark.row("O12")
@pytest.mark.row("O13")
@pytest.mark.row("O14")
@pytest.mark.row("O16")
def test_an_external_instance(kvfold: Stack) -> None:
    client = kvfold.orchestration()
    assert client.get_value("i", "k") is None and client.snapshot("i") == {} and client.instance("i") is None
    incarnation = client.start("i", "order", {"n": 1}, mode="external")
    with pytest.raises(ConflictError) as caught:
        client.start("i", "order", mode="external")
    assert caught.value.code == "already-exists"
    client.append_events(
        "i",
        1,
        [
            KeyValueSet(kind="KeyValueSet", key="", value=""),
            KeyValueSet(kind="KeyValueSet", key="a", value="1"),
            CustomStatusUpdated(kind="CustomStatusUpdated", status="busy"),
            OrchestrationContinuedAsNew(kind="OrchestrationContinuedAsNew", input=2),
        ],
        incarnation=incarnation,
    )
    client.append_events(
        "i",
        2,
        [
            KeyValueSet(kind="KeyValueSet", key="b", value="2"),
            KeyValueCleared(kind="KeyValueCleared", key="none"),
        ],
    )
    assert client.snapshot("i") == {"": "", "a": "1", "b": "2"}
    with pytest.raises(ConflictError) as caught:
        client.append_events("i", 1, [KeyValueSet(kind="KeyValueSet", key="c", value="")])
    assert caught.value.code == "wrong-execution"
    with pytest.raises(RejectedError) as rejected:
        client.append_events("i", 2, [KeyValueSet(kind="KeyValueSet", key="c", value="x" * 16_385)])
    assert rejected.value.code == "limit"
    assert client.prune("i", [1]) == 1
    assert client.snapshot("i") == {"b": "2"}
    client.append_events("i", 2, [OrchestrationCompleted(kind="OrchestrationCompleted", output="done")])
    view = client.instance("i")
    assert view is not None
    assert (view.status, view.execution_id, view.incarnation) == ("Completed", 2, incarnation)
    client.delete_instance("i", incarnation=incarnation)
    with pytest.raises(ConflictError) as caught:
        client.delete_instance("i")
    assert caught.value.code == "unknown-instance"
    client.start("i", "order", mode="external")
    assert client.snapshot("i") == {}


@pytest.mark.row("X4")
def test_a_repeat_has_the_first_outcome_and_is_applied_once(kvfold: Stack) -> None:
    producer = kvfold.producer
    mutation = mutations.deployment_put("d:dep", "user", "k", b"1", mutation_id=producer.new_id())
    first = producer.execute(mutation)
    other = producer.execute(mutations.deployment_put("d:dep", "user", "k", b"2"))
    repeat = producer.execute(mutation)
    assert (first.decision.version, other.decision.version) == (1, 2)
    assert (repeat.decision, repeat.position) == (first.decision, first.position)
    assert first.repeated_at is None and repeat.repeated_at is not None
    found = kvfold.deployment().get("user", "k")
    assert found is not None and (found.value, found.version) == (b"2", 2)
    reused = producer.execute(replace(mutation, body=b"3"))
    assert (reused.decision.status, reused.decision.code) == (DecisionStatus.REJECTED, "id-reused")


@pytest.mark.row("X5")
def test_a_read_sees_what_was_only_appended(kvfold: Stack) -> None:
    capsule = kvfold.capsule()
    for n in range(50):
        kvfold.producer.append(mutations.capsule_set(capsule.scope, "k", b"%d" % n))
        assert capsule.get("k") == b"%d" % n


def test_without_a_projector_outcomes_and_own_reads_say_so(idle: Stack) -> None:
    with running_projector(idle.log, idle.dsn):
        idle.capsule().set("k", b"1")
    with pytest.raises(OutcomeUnknownError) as caught:
        idle.producer.execute(mutations.capsule_set("c:alice:capsule:notes", "k", b"2"), 2.0)
    assert caught.value.position is not None
    capsule = CapsuleClient(idle.producer, idle.reader, principal="alice", capsule_id="notes", timeout_s=0.2)
    with pytest.raises(NotUpToPositionError):
        capsule.get("k")
    with running_projector(idle.log, idle.dsn):
        assert idle.capsule().get("k") == b"2"


@pytest.mark.row("X8")
def test_clients_read_the_past(kvfold: Stack) -> None:
    deployment, capsule = kvfold.deployment(), kvfold.capsule()
    deployment.put("user", "k", b"one")
    capsule.set("c", b"one")

    def now(scope: str) -> Position:
        partition = kvfold.producer.partition_of(scope)
        offset = kvfold.producer.acknowledged(partition)
        assert offset is not None
        return Position(partition, offset)

    of_deployment, of_capsule = now(deployment.scope), now(capsule.scope)
    deployment.put("user", "k", b"two")
    deployment.put("other", "later", b"")
    capsule.set("c", b"two")
    capsule.set("later", b"")
    found = deployment.get("user", "k", as_of=of_deployment)
    assert found is not None and (found.value, found.version) == (b"one", 1)
    assert deployment.namespaces(as_of=of_deployment) == ("user",)
    assert deployment.list("other", as_of=of_deployment).objects == ()
    assert capsule.get("c", as_of=of_capsule) == b"one"
    assert capsule.list_keys_page(as_of=of_capsule).keys == ("c",)
    assert capsule.list_keys_page().keys == ("c", "later")
    # Times: before anything, and as of what is folded by now, which is all of it.
    assert capsule.get("c", as_of=datetime(2001, 1, 1, tzinfo=UTC)) is None
    assert capsule.get("c", as_of=datetime.now(UTC)) == b"two"
    for wrong, code in (
        (Position(of_capsule.partition + 1, 1), "as-of-other-partition"),
        (datetime(2001, 1, 1), "malformed-as-of"),
        (datetime.now(UTC) + timedelta(days=1), "as-of-in-future"),
    ):
        with pytest.raises(InvalidError) as caught:
            capsule.get("c", as_of=wrong)
        assert caught.value.code == code
