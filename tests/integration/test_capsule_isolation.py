"""Namespaces never meet, writers never lose an update, and usage is always a recount: over a real projection."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Barrier

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kvfold.producers import mutations
from kvfold.producers.capsule import CapsuleClient
from kvfold.schemas.errors import InvalidError, RejectedError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.names import check_principal_part
from kvfold.schemas.precondition import ABSENT, PRESENT
from support.capsules import Capsules, capsules
from support.projectors import kafka_log, postgres_log
from support.servers import fresh_database

__all__: list[str] = []

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def stack(postgres_admin_dsn: str) -> Iterator[Capsules]:
    with fresh_database(postgres_admin_dsn) as dsn, postgres_log(dsn) as log, capsules(log, dsn) as stack:
        yield stack


_numbers = count(1)
# What could forge a name of a namespace, a pattern or a path, beside any text at all.
_pieces = st.sampled_from(
    ["a", "capsule", ".", "..", "%", "_", "\\", "'", " ", "default", "c", "é", "\U0001f600", "א"]
)
_names = st.one_of(
    st.lists(_pieces, min_size=1, max_size=4).map("".join),
    st.text(min_size=1, max_size=24),
).filter(lambda name: check_principal_part("the name", name) is None)


@pytest.mark.row("C1")
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(first=st.tuples(_names, _names), second=st.tuples(_names, _names), key=_names)
def test_two_namespaces_with_any_names_never_meet(
    stack: Capsules, first: tuple[str, str], second: tuple[str, str], key: str
) -> None:
    """Also (a, b) and (b, a); two principals of one capsule; one principal's two capsules."""
    assume(first != second)
    one, other = (stack.client(*names) for names in (first, second))
    for capsule in (one, other):
        capsule.clear_namespace()
    one.batch({key: b"mine", "a": b"1", "ab": b"2"})
    assert other.get(key) is None and not other.exists("a") and other.list_keys() == ()
    assert other.cas("a", None, b"theirs") is True
    kept = {name: other.get(name) for name in other.list_keys()}
    assert one.get("a") == b"1"
    assert one.clear_prefix("a") == sum(name.startswith("a") for name in {key, "a", "ab"})
    assert one.list_keys_page("a").keys == ()
    assert one.clear_namespace() == (0 if key.startswith("a") else 1)
    assert {name: other.get(name) for name in other.list_keys()} == kept == {"a": b"theirs"}
    assert (other.usage().keys, other.usage().bytes) == (1, 7)


@pytest.mark.row("C1")
@pytest.mark.parametrize(
    "name", ["", "a:b", "a/b", "a\x00", "a\x1f", "e\u0301", "n" * 129, "\ud800", ":", "/"]
)
def test_a_name_that_could_forge_a_namespace_is_refused(stack: Capsules, name: str) -> None:
    for names in ((name, "notes"), ("alice", name)):
        with pytest.raises(InvalidError) as caught:
            stack.client(*names)
        assert caught.value.code == "malformed-name"


@pytest.mark.row("C9")
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), limit=st.integers(1, 5))
def test_pages_lose_and_repeat_no_key_that_stayed(stack: Capsules, data: st.DataObject, limit: int) -> None:
    """Deletes, the cursor's key among them, inserts and a clear between pages."""
    capsule = stack.fresh()
    names = st.text("abé_%", min_size=1, max_size=3)
    keys = data.draw(st.sets(names, min_size=1, max_size=12))
    stayed, seen = set(keys), list[str]()
    capsule.batch(dict.fromkeys(keys, b""))
    cursor: str | None = None
    while True:
        page = capsule.list_keys_page(cursor=cursor, limit=limit)
        seen += page.keys
        cursor = page.next_cursor
        if cursor is None:
            break
        gone = {key for key in stayed if data.draw(st.integers(0, 4)) == 0}
        gone |= {cursor} if data.draw(st.booleans()) else set()
        added = data.draw(st.sets(names, max_size=3)) - keys - gone
        if gone or added:
            capsule.batch(dict.fromkeys(added, b""), gone)
        stayed -= gone
    assert seen == sorted(set(seen), key=str.encode), "in byte order, none twice"
    assert stayed <= set(seen)


@pytest.mark.row("C15")
def test_of_many_creators_exactly_one_wins(stack: Capsules) -> None:
    capsule = stack.fresh()
    for _ in range(3):
        start = Barrier(16)

        def create(number: int, start: Barrier = start) -> bool:
            start.wait(60)
            return capsule.cas("lock", None, b"%d" % number)

        with ThreadPoolExecutor(16) as threads:
            won = list(threads.map(create, range(16)))
        assert won.count(True) == 1
        assert capsule.get("lock") == b"%d" % won.index(True)
        assert capsule.delete("lock") is True


def _increment(capsule: CapsuleClient, times: int) -> None:
    for _ in range(times):
        while True:
            before = capsule.get("counter")
            if capsule.cas("counter", before, b"%d" % (int(before or b"0") + 1)):
                break


@pytest.mark.row("C15", "C18")
def test_fifty_writers_in_cas_loops_lose_no_update(stack: Capsules) -> None:
    capsule = stack.fresh()
    with ThreadPoolExecutor(50) as threads:
        list(threads.map(lambda _: _increment(capsule, 2), range(50)))
    assert capsule.get("counter") == b"100"


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.row("C15")
def test_fifty_writers_in_cas_loops_lose_no_update_over_kafka(
    kafka_bootstrap: str, postgres_dsn: str
) -> None:
    with kafka_log(kafka_bootstrap) as log, capsules(log, postgres_dsn) as stack:
        capsule = stack.client("alice")
        with ThreadPoolExecutor(50) as threads:
            list(threads.map(lambda _: _increment(capsule, 1), range(50)))
        assert capsule.get("counter") == b"50"


@pytest.mark.row("C10")
def test_writers_together_never_pass_the_quota(stack: Capsules) -> None:
    """Twenty writers, each of whom alone would fit, and room for seven."""
    capsule = stack.fresh()
    capsule.set_quota(7 * 10)

    def write(number: int) -> bool:
        try:
            capsule.set(f"k{number:02}", b"1234567")
        except RejectedError as refused:
            assert refused.code == "quota"
            return False
        return True

    with ThreadPoolExecutor(20) as threads:
        kept = list(threads.map(write, range(20)))
    assert kept.count(True) == 7
    usage = capsule.usage()
    assert (usage.keys, usage.bytes, usage.bytes_max) == (7, 70, 70)
    assert set(capsule.list_keys()) == {f"k{number:02}" for number, was_kept in enumerate(kept) if was_kept}
    assert stack.recount([capsule]) == [(7, 70)]


_keys = st.sampled_from(["a", "ab", "b", "é", "%"])
_values = st.sampled_from([b"", b"1", b"\x00\xff22", b"x" * 40])
_writes = st.one_of(
    st.tuples(st.just("set"), _keys, _values, st.sampled_from([None, ABSENT, PRESENT])),
    st.tuples(st.just("delete"), _keys),
    st.tuples(st.just("clear"), st.sampled_from(["", "a", "é", "zz"])),
    st.tuples(st.just("quota"), st.sampled_from([0, 5, 60, 10_000])),
    st.tuples(
        st.just("batch"),
        st.dictionaries(_keys, _values, min_size=1),
        st.sampled_from([ABSENT, PRESENT, None]),
    ),
)


def _mutation(scope: str, write: tuple[object, ...]) -> Mutation:
    match write:
        case ("set", str(key), bytes(value), None):
            return mutations.capsule_set(scope, key, value)
        case ("set", str(key), bytes(value), condition):
            return mutations.capsule_set(scope, key, value, expected=condition)  # type: ignore[arg-type]
        case ("delete", str(key)):
            return mutations.capsule_deleted(scope, key)
        case ("clear", str(prefix)):
            return mutations.capsule_prefix_cleared(scope, prefix)
        case ("quota", int(bytes_max)):
            return mutations.capsule_quota_set(scope, bytes_max)
        case ("batch", dict(sets), condition):
            conditions = {} if condition is None else {"a": condition}
            return mutations.capsule_batch(scope, sets=sets, conditions=conditions)  # type: ignore[arg-type]
        case _:
            raise AssertionError(write)


@pytest.mark.row("C10")
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(writes=st.lists(_writes, min_size=1, max_size=25))
def test_usage_is_a_recount_after_any_history(stack: Capsules, writes: list[tuple[object, ...]]) -> None:
    """Overwrites, deletes, clears, batches, quotas, and what is refused; two namespaces at once."""
    clients = [stack.fresh(), stack.fresh()]
    pending = [
        stack.producer.submit(_mutation(clients[number % 3 == 0].scope, write), timeout_s=60)
        for number, write in enumerate(writes)
    ]
    for submitted in pending:
        submitted.outcome.result(60)
    usages = [(usage.keys, usage.bytes) for usage in (client.usage() for client in clients)]
    assert usages == stack.recount(clients)


@pytest.mark.row("C10")
def test_shrinking_is_allowed_above_a_lowered_quota(stack: Capsules) -> None:
    capsule = stack.fresh()
    capsule.batch({"a": b"12345678", "b": b"12345678"})
    capsule.set_quota(4)
    for grow in (partial(capsule.set, "a", b"123456789"), partial(capsule.set, "c", b"")):
        with pytest.raises(RejectedError) as caught:
            grow()
        assert caught.value.code == "quota"
    capsule.set("a", b"87654321")
    capsule.set("a", b"1")
    assert capsule.delete("b") is True
    assert (capsule.usage().keys, capsule.usage().bytes) == (1, 2)
    capsule.set("c", b"1")
    assert capsule.clear_namespace() == 2
