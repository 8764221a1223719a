"""Decisions about capsules and what they change."""

from __future__ import annotations

import hashlib

import pytest

from kvfold.schemas.limits import CAPSULE_QUOTA_BYTES_DEFAULT, CAPSULE_VALUE_BYTES_MAX
from support.given import applied, conflict, given, rejected
from support.mutations import (
    CAPSULE,
    capsule_cleared,
    capsule_deleted,
    capsule_quota,
    capsule_set,
    namespace_cleared,
    scope_in,
)

__all__: list[str] = []


def _hash(value: bytes) -> str:
    return "sha256:" + hashlib.sha256(value).hexdigest()


def test_a_first_set_makes_version_one() -> None:
    given().when(capsule_set("todo", b"milk", actor="alice")).then(
        applied(1),
        capsule_entry=[
            {
                "scope": CAPSULE,
                "key": "todo",
                "version": 1,
                "value": b"milk",
                "sha256": hashlib.sha256(b"milk").digest(),
                "actor": "alice",
                "valid_from": 0,
            }
        ],
        capsule_entry_history=[],
        capsule_scope=[{"scope": CAPSULE, "keys": 1, "bytes": 8, "bytes_max": None}],
    )


def test_an_overwrite_keeps_the_old_row_as_history() -> None:
    given(capsule_set("a", b"1")).when(capsule_set("a", b"22")).then(
        applied(2),
        capsule_entry=[{"version": 2, "value": b"22", "valid_from": 1}],
        capsule_entry_history=[{"version": 1, "value": b"1", "valid_from": 0, "valid_to": 1}],
        capsule_scope=[{"keys": 1, "bytes": 3}],
    )


def test_a_delete_moves_the_row_and_names_the_version_removed() -> None:
    given(capsule_set("a", b"1"), capsule_set("a", b"2")).when(capsule_deleted("a")).then(
        applied(2),
        capsule_entry=[],
        capsule_entry_history=[{"version": 1, "valid_to": 1}, {"version": 2, "valid_from": 1, "valid_to": 2}],
        capsule_scope=[{"keys": 0, "bytes": 0}],
    )


def test_deleting_what_is_absent_succeeds_and_changes_nothing() -> None:
    given().when(capsule_deleted("a")).then(applied(0), capsule_entry=[], capsule_scope=[])


def test_an_empty_value_is_no_missing_one() -> None:
    """Row C7: empty and absent differ in reads and in CAS."""
    scenario = given(capsule_set("a", b""))
    scenario.then(capsule_entry=[{"value": b"", "version": 1}], capsule_scope=[{"keys": 1, "bytes": 1}])
    scenario.when(capsule_set("a", b"x", expected="absent")).then(conflict("cas-mismatch", 1))
    scenario.when(capsule_set("a", b"x", expected=_hash(b""))).then(applied(2))


@pytest.mark.row("C15")
@pytest.mark.parametrize(
    ("expected", "when_absent", "when_x"),
    [
        ("any", True, True),
        ("absent", True, False),
        ("present", False, True),
        (_hash(b"x"), False, True),
        (_hash(b"y"), False, False),
        (_hash(b"y") + "," + _hash(b"x").removeprefix("sha256:"), False, True),
        ("not:" + _hash(b"x"), True, False),
        ("not:" + _hash(b"y"), True, True),
    ],
)
@pytest.mark.parametrize("deletes", [False, True])
def test_preconditions(expected: str, when_absent: bool, when_x: bool, deletes: bool) -> None:
    mutation = capsule_deleted("a", expected=expected) if deletes else capsule_set("a", expected=expected)
    absent = applied(0 if deletes else 1) if when_absent else conflict("cas-mismatch", 0)
    given().when(mutation).then(absent)
    present = applied(1 if deletes else 2) if when_x else conflict("cas-mismatch", 1)
    given(capsule_set("a", b"x")).when(mutation).then(present)


def test_a_precondition_sees_what_the_same_batch_wrote() -> None:
    given().when(
        capsule_set("a", b"1", expected="absent"),
        capsule_set("a", b"2", expected="absent"),
        capsule_set("a", b"2", expected=_hash(b"1")),
        capsule_deleted("a", expected=_hash(b"1")),
        capsule_deleted("a", expected=_hash(b"2")),
        capsule_set("a", b"3", expected="absent"),
    ).then(
        applied(1),
        conflict("cas-mismatch", 1),
        applied(2),
        conflict("cas-mismatch", 2),
        applied(2),
        applied(1),
    )


@pytest.mark.row("C7")
def test_a_value_of_the_limit_passes_and_one_byte_more_does_not() -> None:
    detail = (
        f"the value has {CAPSULE_VALUE_BYTES_MAX + 1} bytes: at most {CAPSULE_VALUE_BYTES_MAX} are accepted"
    )
    scenario = given().when(capsule_set("a", bytes(CAPSULE_VALUE_BYTES_MAX))).then(applied(1))
    scenario.when(capsule_set("a", bytes(CAPSULE_VALUE_BYTES_MAX + 1))).then(
        rejected("too-large", detail), capsule_entry=[{"version": 1}]
    )


@pytest.mark.row("C6")
@pytest.mark.parametrize("key", ["a\x1fb", "a\x00b", "\x7f", "\x85", "e\u0301", "k" * 257, "é" * 129])
def test_an_invalid_key_is_rejected(key: str) -> None:
    scenario = (
        given().when(capsule_set(key)).then(rejected("invalid-key"), capsule_entry=[], capsule_scope=[])
    )
    assert scenario.last.subject == (None if "\x00" in key else key)


@pytest.mark.row("C6")
@pytest.mark.parametrize(
    "key", ["k" * 256, "é" * 128, "a/b", "..", "%2F", " ", "\u00e9", "😀", "\u05d0\u05d1"]
)
def test_a_valid_key_is_kept_as_it_is(key: str) -> None:
    given().when(capsule_set(key)).then(applied(1), capsule_entry=[{"key": key}])


@pytest.mark.row("C10")
def test_the_quota_is_what_may_be_held_after_the_write() -> None:
    scenario = given(capsule_quota(10), capsule_set("a", b"1234"))
    scenario.when(capsule_set("b", b"12345")).then(
        rejected("quota", "11 bytes would be above the quota of 10")
    )
    scenario.when(capsule_set("b", b"1234")).then(
        applied(1), capsule_scope=[{"keys": 2, "bytes": 10, "bytes_max": 10}]
    )
    scenario.when(capsule_set("b", b"12345")).then(rejected("quota"))
    scenario.when(capsule_set("b", b"123")).then(applied(2), capsule_scope=[{"bytes": 9}])


@pytest.mark.row("C10")
def test_overwriting_an_empty_value_counts_its_key_once() -> None:
    scenario = given(capsule_quota(2), capsule_set("a", b""))
    scenario.when(capsule_set("a", b"12")).then(rejected("quota", "3 bytes would be above the quota of 2"))
    scenario.when(capsule_set("a", b"1")).then(applied(2), capsule_scope=[{"keys": 1, "bytes": 2}])


@pytest.mark.row("C10")
def test_above_a_lowered_quota_only_shrinking_is_allowed() -> None:
    scenario = given(capsule_set("a", b"12345678"), capsule_quota(3)).then(
        capsule_scope=[{"bytes": 9, "bytes_max": 3}]
    )
    scenario.when(capsule_set("a", b"123456789")).then(rejected("quota"))
    scenario.when(capsule_set("a", b"87654321")).then(applied(2))
    scenario.when(capsule_set("a", b"1234567")).then(applied(3))
    scenario.when(capsule_set("b", b"")).then(rejected("quota"))
    scenario.when(capsule_deleted("a")).then(
        applied(3), capsule_scope=[{"keys": 0, "bytes": 0, "bytes_max": 3}]
    )


@pytest.mark.row("C10")
def test_the_default_quota_holds_where_none_was_set() -> None:
    full = CAPSULE_QUOTA_BYTES_DEFAULT // CAPSULE_VALUE_BYTES_MAX
    value = bytes(CAPSULE_VALUE_BYTES_MAX - 1)
    scenario = given(*(capsule_set(chr(ord("0") + n), value) for n in range(full)))
    scenario.then(capsule_scope=[{"bytes": CAPSULE_QUOTA_BYTES_DEFAULT}])
    scenario.when(capsule_set("z", b"")).then(rejected("quota"))
    scenario.when(capsule_quota(CAPSULE_QUOTA_BYTES_DEFAULT + 1), capsule_set("z", b"")).then(
        applied(), applied(1)
    )


def test_a_failed_precondition_comes_before_the_quota() -> None:
    given(capsule_quota(1)).when(capsule_set("a", b"22", expected="present")).then(
        conflict("cas-mismatch", 0)
    )


def test_a_quota_is_set_in_an_empty_namespace_and_again() -> None:
    given(capsule_quota(5)).when(capsule_quota(0)).then(
        applied(), capsule_scope=[{"keys": 0, "bytes_max": 0}]
    )


@pytest.mark.row("C19")
@pytest.mark.row("C21")
def test_a_prefix_is_literal_and_takes_no_neighbour() -> None:
    keys = ["session", "session.", "session.1", "session.2", "sessionx", "session/", "react.turn.1"]
    scenario = given(*(capsule_set(key) for key in keys)).when(capsule_cleared("session."))
    scenario.then(applied(removed=3), capsule_scope=[{"keys": 4}])
    assert {row["key"] for row in scenario.rows("capsule_entry")} == {
        "session",
        "sessionx",
        "session/",
        "react.turn.1",
    }
    assert [row["valid_to"] for row in scenario.rows("capsule_entry_history")] == [7, 7, 7]


@pytest.mark.parametrize("prefix", ["%", "_", "a%", "a_"])
def test_wildcards_in_a_prefix_are_literal(prefix: str) -> None:
    given(capsule_set("ab"), capsule_set("xy")).when(capsule_cleared(prefix)).then(
        applied(removed=0), capsule_scope=[{"keys": 2}]
    )


def test_the_empty_prefix_and_the_namespace_take_every_key() -> None:
    for clears in (capsule_cleared(None), namespace_cleared()):
        scenario = given(
            capsule_quota(99),
            capsule_set("a", b"1"),
            capsule_set("b"),
            capsule_set("x", scope="c:b:capsule:x"),
        )
        scenario.when(clears).then(
            applied(removed=2),
            capsule_entry=[{"key": "x"}],
            capsule_scope=[{"keys": 0, "bytes": 0, "bytes_max": 99}, {"keys": 1}],
        )
        scenario.when(capsule_set("a", expected="absent")).then(applied(1))


def test_clearing_nothing_is_applied() -> None:
    given().when(namespace_cleared()).then(applied(removed=0), capsule_scope=[])
    given(capsule_set("a")).when(capsule_cleared("b")).then(applied(removed=0), capsule_entry=[{"key": "a"}])


@pytest.mark.parametrize("prefix", ["a\x00", "\x1f", "p" * 257])
def test_an_invalid_prefix_is_rejected(prefix: str) -> None:
    given(capsule_set("a")).when(capsule_cleared(prefix)).then(
        rejected("invalid-key"), capsule_entry=[{"key": "a"}]
    )


def test_a_prefix_need_not_be_normalised() -> None:
    """A prefix that is no key itself only matches nothing."""
    given(capsule_set("\u00e9")).when(capsule_cleared("e\u0301")).then(applied(removed=0))


@pytest.mark.row("C1")
def test_two_namespaces_never_meet() -> None:
    other = scope_in(0, 1, "c:bob{}:capsule:notes")
    given(capsule_set("a", b"1")).when(capsule_set("a", b"2", expected="absent", scope=other)).then(
        applied(1), capsule_entry=[{"scope": CAPSULE, "value": b"1"}, {"scope": other, "value": b"2"}]
    )
