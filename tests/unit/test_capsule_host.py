"""The host's binding: who is being served, in threads, tasks and nested calls (rows C1, C2)."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kvfold.producers.capsule import kv
from kvfold.producers.capsule.errors import InvalidKey, SysError, Unbound
from kvfold.producers.capsule.host import CapsuleHost
from kvfold.producers.capsule.memory_store import MemoryKvStore

__all__: list[str] = []


@pytest.fixture
def store() -> MemoryKvStore:
    return MemoryKvStore()


@pytest.fixture
def host(store: MemoryKvStore) -> CapsuleHost:
    return CapsuleHost(store, capsule_id="notes", owner="owner")


@pytest.mark.row("C1")
@pytest.mark.row("C2")
def test_a_call_writes_to_the_namespace_of_who_calls(host: CapsuleHost, store: MemoryKvStore) -> None:
    with host.load():
        kv.set_bytes("who", b"owner")
    with host.invocation("alice"):
        assert host.kv.get_bytes_opt("who") is None
        kv.set_bytes("who", b"alice")
        assert kv.list_keys() == ["who"] and kv.clear_prefix("none") == 0
    assert store.get("owner:capsule:notes", "who") == b"owner"
    assert store.get("alice:capsule:notes", "who") == b"alice"


@pytest.mark.row("C1")
def test_a_deployment_with_a_single_user(store: MemoryKvStore) -> None:
    host = CapsuleHost(store, capsule_id="astrid-capsule-session")
    with host.load():
        kv.set_bytes("k", b"1")
    assert store.list_keys("default:capsule:astrid-capsule-session") == ["k"]


@pytest.mark.row("C2")
def test_without_a_principal_everything_is_refused(host: CapsuleHost, store: MemoryKvStore) -> None:
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda one: one.set_bytes("k", b""),
        lambda one: one.get_bytes("k"),
        lambda one: one.get_bytes_opt("k"),
        lambda one: one.delete("k"),
        lambda one: one.exists("k"),
        lambda one: one.list_keys(),
        lambda one: one.list_keys_page(),
        lambda one: one.clear_prefix(""),
        lambda one: one.cas("k", None, b""),
        lambda one: one.update("k", lambda before: b""),
        lambda one: one.set_json("k", 1),
        lambda one: one.get_json("k"),
        lambda one: one.get_json_opt("k"),
        lambda one: one.get_borsh("k", int),
        lambda one: one.get_borsh_opt("k", int),
        lambda one: one.set_versioned("k", 1, 1),
        lambda one: one.get_versioned("k", 1),
        lambda one: one.get_versioned_or_migrate("k", 1, lambda raw, version: 1),
    )
    with host.load():
        kv.set_bytes("k", b"owner's")
    for call in calls:
        for one in (kv, host.kv):
            with pytest.raises(Unbound) as caught:
                call(one)
            assert isinstance(caught.value, SysError) and caught.value.code == "unknown"
    assert store.get("owner:capsule:notes", "k") == b"owner's"


@pytest.mark.row("C2")
def test_a_message_with_no_known_principal_is_refused(host: CapsuleHost) -> None:
    for principal in (None, ""):
        with pytest.raises(Unbound, match="never for the owner"):
            host.invocation(principal)
    with host.load(), pytest.raises(Unbound):
        host.invocation(None)


@pytest.mark.row("C1")
@pytest.mark.parametrize(
    "name", ["a:capsule:b", "a:", ":", "a/b", "a\x00", "a\n", "e\u0301", "\ud800", "a" * 129]
)
def test_a_name_that_could_forge_a_namespace_is_refused(store: MemoryKvStore, name: str) -> None:
    host = CapsuleHost(store, capsule_id="notes")
    with pytest.raises(InvalidKey):
        host.invocation(name)
    with pytest.raises(InvalidKey):
        CapsuleHost(store, capsule_id=name)
    with pytest.raises(InvalidKey):
        CapsuleHost(store, capsule_id="notes", owner=name)


@pytest.mark.row("C2")
def test_a_nested_invocation_ends_with_the_outer_one_bound(host: CapsuleHost, store: MemoryKvStore) -> None:
    with host.invocation("alice"):
        with pytest.raises(ZeroDivisionError), host.invocation("bob"):
            kv.set_bytes("k", b"bob")
            raise ZeroDivisionError
        kv.set_bytes("k", b"alice")
    with pytest.raises(Unbound):
        kv.exists("k")
    assert store.get("bob:capsule:notes", "k") == b"bob"
    assert store.get("alice:capsule:notes", "k") == b"alice"


@pytest.mark.row("C1")
def test_a_capsule_that_calls_another_lends_it_nothing(host: CapsuleHost, store: MemoryKvStore) -> None:
    other = CapsuleHost(store, capsule_id="other")
    with host.invocation("alice"):
        with other.invocation("alice"):
            kv.set_bytes("k", b"other's")
            other.kv.set_bytes("l", b"other's")
            with pytest.raises(Unbound, match="another capsule"):
                host.kv.set_bytes("k", b"")
        host.kv.set_bytes("k", b"notes'")
    assert store.get("alice:capsule:other", "k") == b"other's"
    assert store.get("alice:capsule:notes", "k") == b"notes'"
    assert store.list_keys("alice:capsule:other") == ["k", "l"]


@pytest.mark.row("C2")
def test_an_invocation_is_entered_once(host: CapsuleHost) -> None:
    invocation = host.invocation("alice")
    with invocation, pytest.raises(Unbound, match="once"):
        invocation.__enter__()
    with pytest.raises(Unbound, match="once"):
        invocation.__enter__()


@pytest.mark.row("C2")
def test_threads_do_not_see_each_others_principal(host: CapsuleHost, store: MemoryKvStore) -> None:
    together = threading.Barrier(8)

    def serve(number: int) -> None:
        for turn in range(20):
            with host.invocation(f"user-{number}"):
                together.wait(30)
                kv.set_bytes(f"k{turn}", b"%d" % number)
                together.wait(30)
                assert kv.get_bytes(f"k{turn}") == b"%d" % number

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(serve, range(8)))
    for number in range(8):
        namespace = f"user-{number}:capsule:notes"
        assert len(store.list_keys(namespace)) == 20
        assert store.get(namespace, "k0") == b"%d" % number


@pytest.mark.row("C2")
def test_a_thread_that_was_not_given_the_binding_has_none(host: CapsuleHost) -> None:
    with host.invocation("alice"), ThreadPoolExecutor(1) as threads:
        with pytest.raises(Unbound):
            threads.submit(kv.exists, "k").result(30)
        assert threads.submit(contextvars.copy_context().run, kv.exists, "k").result(30) is False


@pytest.mark.row("C2")
def test_tasks_do_not_see_each_others_principal(host: CapsuleHost, store: MemoryKvStore) -> None:
    async def serve(number: int) -> None:
        with host.invocation(f"user-{number}"):
            for turn in range(5):
                await asyncio.sleep(0)
                kv.set_bytes(f"k{turn}", b"%d" % number)
                await asyncio.to_thread(kv.set_bytes, f"t{turn}", b"%d" % number)

    async def run() -> None:
        await asyncio.gather(*(serve(number) for number in range(8)))

    asyncio.run(run())
    for number in range(8):
        namespace = f"user-{number}:capsule:notes"
        keys = store.list_keys(namespace)
        assert len(keys) == 10 and {store.get(namespace, key) for key in keys} == {b"%d" % number}


@pytest.mark.row("C2")
def test_a_task_that_outlives_its_invocation_is_refused(host: CapsuleHost, store: MemoryKvStore) -> None:
    async def run() -> None:
        over = asyncio.Event()

        async def linger() -> None:
            kv.set_bytes("k", b"in time")
            await over.wait()
            kv.set_bytes("k", b"too late")

        with host.invocation("alice"):
            task = asyncio.create_task(linger())
            await asyncio.sleep(0)
        with host.invocation("bob"):
            over.set()
            with pytest.raises(Unbound, match="over"):
                await task

    asyncio.run(run())
    assert store.get("alice:capsule:notes", "k") == b"in time"
    assert store.list_keys("bob:capsule:notes") == []


@pytest.mark.row("C2")
def test_a_thread_that_outlives_its_invocation_is_refused(host: CapsuleHost) -> None:
    over = threading.Event()

    def linger() -> None:
        over.wait(30)
        kv.set_bytes("k", b"too late")

    with ThreadPoolExecutor(1) as threads:
        with host.invocation("alice"):
            late = threads.submit(contextvars.copy_context().run, linger)
        over.set()
        with pytest.raises(Unbound, match="over"):
            late.result(30)


@pytest.mark.row("C2")
def test_a_function_of_an_invocation_that_is_over_is_refused_also_within_another(host: CapsuleHost) -> None:
    """An update that is under way when its invocation ends does not go on in the next one's namespace."""

    def serve() -> Generator[None, None, None]:
        with host.invocation("alice"):
            yield
            kv.set_bytes("k", b"")

    generator = serve()
    context = contextvars.copy_context()
    context.run(next, generator)
    with host.invocation("bob"):
        # Ended in another context than it began in: bob stays bound here, and nothing of alice's leaks.
        generator.close()
        kv.set_bytes("bob", b"")
    with pytest.raises(Unbound):
        context.run(kv.exists, "k")
