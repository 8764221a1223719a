"""Atomic batches of a capsule's keys, through the client and over a real projection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvfold.producers.capsule import CapsuleClient
from kvfold.schemas.errors import InvalidError, RejectedError
from support.capsules import Capsules, capsules
from support.projectors import postgres_log
from support.servers import fresh_database

__all__: list[str] = []

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def stack(postgres_admin_dsn: str) -> Iterator[Capsules]:
    with fresh_database(postgres_admin_dsn) as dsn, postgres_log(dsn) as log, capsules(log, dsn) as stack:
        yield stack


def content(capsule: CapsuleClient) -> dict[str, bytes | None]:
    return {key: capsule.get(key) for key in capsule.list_keys()}


@pytest.mark.row("C3")
def test_a_batch_sets_and_removes_what_it_names(stack: Capsules) -> None:
    capsule = stack.fresh()
    assert capsule.batch({"a": b"1", "b": b"", "é/..": b"\x00\xff"}) is True
    assert content(capsule) == {"a": b"1", "b": b"", "é/..": b"\x00\xff"}
    assert capsule.batch({"a": b"2"}, ["b", "missing"]) is True
    assert content(capsule) == {"a": b"2", "é/..": b"\x00\xff"}
    assert capsule.batch({}, ["a", "é/.."]) is True
    assert content(capsule) == {}


@pytest.mark.row("C15")
@pytest.mark.parametrize(
    ("expected", "holds"),
    [
        ({"a": b"1"}, True),
        ({"a": b"1", "b": None}, True),
        ({"a": None}, False),
        ({"a": b""}, False),
        ({"b": b""}, False),
        ({"a": b"1", "c": b"1"}, False),
    ],
)
def test_a_batch_is_applied_whole_or_not_at_all(
    stack: Capsules, expected: dict[str, bytes | None], holds: bool
) -> None:
    capsule = stack.fresh()
    capsule.set("a", b"1")
    assert capsule.batch({"a": b"2", "b": b"2"}, expected=expected) is holds
    assert content(capsule) == ({"a": b"2", "b": b"2"} if holds else {"a": b"1"})


def test_of_many_batches_on_one_state_exactly_one_is_applied(stack: Capsules) -> None:
    """Money moves between two keys: whoever read an old state moves nothing."""
    capsule = stack.fresh()
    capsule.batch({"left": b"100", "right": b"0"})
    before: dict[str, bytes | None] = {"left": b"100", "right": b"0"}

    def move(amount: int) -> bool:
        return capsule.batch({"left": b"%d" % (100 - amount), "right": b"%d" % amount}, expected=before)

    with ThreadPoolExecutor(12) as threads:
        won = list(threads.map(move, range(1, 13)))
    assert won.count(True) == 1
    amount = won.index(True) + 1
    assert content(capsule) == {"left": b"%d" % (100 - amount), "right": b"%d" % amount}


def _invalid(call: Callable[[], object]) -> str:
    with pytest.raises(InvalidError) as caught:
        call()
    return caught.value.code


def test_what_is_no_batch_is_refused_at_the_door(stack: Capsules) -> None:
    capsule = stack.fresh()
    many = {f"k{n}": b"" for n in range(1_025)}
    for key in ("", "a\x00", "\x1f", "\ud800", "e\u0301", "k" * 257):
        assert _invalid(lambda key=key: capsule.batch({key: b""})) == "invalid-key"  # type: ignore[misc]
        assert _invalid(lambda key=key: capsule.batch({}, [key])) == "invalid-key"  # type: ignore[misc]
        assert _invalid(lambda key=key: capsule.batch({"k": b""}, expected={key: None})) == "invalid-key"  # type: ignore[misc]
    assert _invalid(lambda: capsule.batch(many)) == "too-large"
    assert _invalid(lambda: capsule.batch({"k": b""}, expected=many)) == "too-large"
    assert _invalid(lambda: capsule.batch({"k": bytes(1_048_576)})) == "too-large"
    assert _invalid(lambda: capsule.batch({})) == "malformed"
    assert _invalid(lambda: capsule.batch({"k": b""}, ["k"])) == "malformed"
    assert _invalid(lambda: capsule.batch({}, ["k", "k"])) == "malformed"
    assert capsule.list_keys() == () and capsule.usage().keys == 0


@pytest.mark.row("C10")
def test_a_batch_above_the_quota_changes_nothing(stack: Capsules) -> None:
    capsule = stack.fresh()
    capsule.set("a", b"123456789")
    capsule.set_quota(12)
    with pytest.raises(RejectedError) as caught:
        capsule.batch({"b": b"1", "c": b""})
    assert caught.value.code == "quota"
    assert capsule.batch({"b": b"12345678901"}, ["a"]) is True
    assert (capsule.usage().keys, capsule.usage().bytes) == (1, 12)


@pytest.mark.row("C8")
def test_1024_keys_are_listed_and_1025_are_too_large(stack: Capsules) -> None:
    capsule = stack.fresh()
    capsule.batch({f"k{n:04}": b"" for n in range(1_024)})
    assert capsule.list_keys() == capsule.list_keys("k") == tuple(f"k{n:04}" for n in range(1_024))
    capsule.set("z", b"")
    assert len(capsule.list_keys("k")) == 1_024
    with pytest.raises(InvalidError, match="list_keys_page") as caught:
        capsule.list_keys()
    assert caught.value.code == "too-large"
    page = capsule.list_keys_page(limit=1_024)
    assert capsule.list_keys_page(cursor=page.next_cursor).keys == ("z",)
