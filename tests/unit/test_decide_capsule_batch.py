"""Capsule batches: several conditions and operations of one namespace in one record, all or nothing."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from kvfold.projector.batch import prepare
from kvfold.projector.needs import cut
from kvfold.schemas.limits import BATCH_KEYS_MAX, CAPSULE_BATCH_OPERATIONS_MAX, JSON_BODY_BYTES_MAX
from kvfold.schemas.strict_json import encode_json
from support.given import applied, conflict, given, rejected
from support.mutations import (
    CAPSULE,
    batch_delete,
    batch_set,
    capsule_batch,
    capsule_deleted,
    capsule_quota,
    capsule_set,
    mutation_id,
    record_of,
    scope_in,
)

__all__: list[str] = []


def _hash(value: bytes) -> str:
    return "sha256:" + hashlib.sha256(value).hexdigest()


def test_all_operations_are_applied_at_one_place() -> None:
    scenario = given(capsule_set("a", b"1"), capsule_set("b", b"22"))
    scenario.when(
        capsule_batch(
            batch_set("a", b"333"), batch_delete("b"), batch_set("c", b""), batch_delete("d"), actor="x"
        )
    ).then(
        applied(removed=1),
        capsule_entry=[
            {"key": "a", "version": 2, "value": b"333", "actor": "x", "valid_from": 2},
            {"key": "c", "version": 1, "value": b"", "sha256": hashlib.sha256(b"").digest(), "valid_from": 2},
        ],
        capsule_entry_history=[{"key": "a", "valid_to": 2}, {"key": "b", "valid_to": 2}],
        capsule_scope=[{"scope": CAPSULE, "keys": 2, "bytes": 5}],
    )
    assert (scenario.last.subject, scenario.last.keys) == (None, '["a","b","c"]')


def test_conditions_are_about_the_state_before_the_batch() -> None:
    scenario = given(capsule_set("a", b"1"))
    scenario.when(
        capsule_batch(
            batch_delete("a"),
            batch_set("b"),
            conditions={"a": "present", "b": "absent", "c": "not:" + _hash(b"")},
        )
    ).then(applied(removed=1), capsule_entry=[{"key": "b"}])


@pytest.mark.parametrize(
    ("conditions", "version", "place"),
    [
        ([("a", "absent")], 2, 0),
        ([("b", "present")], 0, 0),
        ([("a", "present"), ("a", _hash(b"1")), ("b", "present")], 2, 1),
        ([("b", "absent"), ("c", "absent"), ("b", _hash(b""))], 0, 2),
        ([("a", "not:" + _hash(b"2"))], 2, 0),
    ],
)
def test_a_condition_that_fails_changes_nothing_and_is_named(
    conditions: list[tuple[str, str]], version: int, place: int
) -> None:
    scenario = given(capsule_set("a", b"1"), capsule_set("a", b"2"))
    batch = capsule_batch(batch_set("a", b"3"), batch_set("b"), conditions=conditions)
    scenario.when(batch).then(
        replace(conflict("cas-mismatch", version), detail=f"conditions[{place}] does not hold"),
        capsule_entry=[{"key": "a", "version": 2, "value": b"2"}],
        capsule_scope=[{"keys": 1, "bytes": 2}],
    )


def test_records_before_and_after_in_one_fold_see_the_batch() -> None:
    scenario = given().when(
        capsule_set("a", b"1"),
        capsule_batch(batch_set("a", b"2"), batch_set("b"), conditions={"a": _hash(b"1")}),
        capsule_batch(batch_delete("a"), batch_set("b", b"x"), conditions={"b": _hash(b"v")}),
        capsule_set("a", b"3", expected="absent"),
        capsule_deleted("b", expected=_hash(b"x")),
    )
    scenario.then(applied(1), applied(removed=0), applied(removed=1), applied(1), applied(2))
    scenario.then(capsule_entry=[{"key": "a", "version": 1, "valid_from": 3}])
    assert [
        (row["key"], row["valid_from"], row["valid_to"]) for row in scenario.rows("capsule_entry_history")
    ] == [
        ("a", 0, 1),
        ("a", 1, 2),
        ("b", 1, 2),
        ("b", 2, 4),
    ]


@pytest.mark.row("C10")
def test_the_quota_is_judged_by_what_the_whole_batch_adds() -> None:
    scenario = given(capsule_quota(10), capsule_set("a", b"1234567"))
    scenario.when(capsule_batch(batch_set("b", b"1"), batch_set("c", b""))).then(
        rejected("quota", "11 bytes would be above the quota of 10"), capsule_entry=[{"key": "a"}]
    )
    scenario.when(capsule_batch(batch_set("b", b"12345678"), batch_delete("a"))).then(
        applied(removed=1), capsule_scope=[{"keys": 1, "bytes": 9}]
    )
    scenario.when(capsule_batch(batch_set("b", b"1234567"), batch_set("c", b"1"))).then(
        applied(removed=0), capsule_scope=[{"keys": 2, "bytes": 10}]
    )


@pytest.mark.row("C10")
def test_above_a_lowered_quota_a_batch_may_shrink_as_a_whole() -> None:
    scenario = given(capsule_set("a", b"12345678"), capsule_quota(3))
    scenario.when(capsule_batch(batch_set("b", b"1"), batch_set("a", b"1234567"))).then(rejected("quota"))
    scenario.when(capsule_batch(batch_set("b", b"1"), batch_set("a", b"123456"))).then(
        applied(removed=0), capsule_scope=[{"keys": 2, "bytes": 9}]
    )


def test_a_failed_condition_comes_before_the_quota() -> None:
    given(capsule_quota(1)).when(capsule_batch(batch_set("a", b"22"), conditions={"b": "present"})).then(
        conflict("cas-mismatch", 0)
    )


def test_deleting_what_is_absent_is_applied_and_changes_nothing() -> None:
    given().when(capsule_batch(batch_delete("a"), batch_delete("b"))).then(
        applied(removed=0), capsule_entry=[], capsule_scope=[]
    )


@pytest.mark.row("C1")
def test_a_batch_sees_its_own_namespace_only() -> None:
    other = scope_in(0, 1, "c:bob{}:capsule:notes")
    scenario = given(capsule_set("a", b"1"))
    scenario.when(
        capsule_batch(batch_delete("a"), batch_set("b"), conditions={"a": "absent"}, scope=other)
    ).then(applied(removed=0), capsule_entry=[{"scope": CAPSULE, "key": "a"}, {"scope": other, "key": "b"}])


def test_a_repeat_has_the_first_outcome() -> None:
    batch = capsule_batch(batch_set("a"), conditions={"a": "absent"}, id_=mutation_id(1))
    scenario = given(batch).when(batch).then(applied(removed=0), capsule_entry=[{"version": 1}])
    assert scenario.last.repeat_of == 0
    other = capsule_batch(batch_set("a", b"w"), conditions={"a": "absent"}, id_=mutation_id(1))
    scenario.when(other).then(rejected("id-reused"), capsule_entry=[{"value": b"v"}])


@pytest.mark.row("C6")
@pytest.mark.parametrize("key", ["", "a\x1fb", "\x85", "e\u0301", "k" * 257])
def test_an_invalid_key_is_named_by_its_place(key: str) -> None:
    scenario = given().when(capsule_batch(batch_set("a"), batch_delete(key))).then(rejected("invalid-key"))
    assert (scenario.last.detail or "").startswith("operations[1]: the key ")
    scenario.when(capsule_batch(batch_set("a"), conditions=[("b", "absent"), (key, "absent")]))
    scenario.then(rejected("invalid-key"), capsule_entry=[])
    assert (scenario.last.detail or "").startswith("conditions[1]: the key ")


@pytest.mark.parametrize("second", [batch_delete("a"), batch_set("a", b"1")])
def test_a_key_twice_among_the_operations_is_malformed(second: dict[str, object]) -> None:
    detail = "operations[2]: the key stands twice among the operations"
    scenario = given().when(capsule_batch(batch_set("a"), batch_set("b"), second))
    scenario.then(rejected("malformed", detail), capsule_entry=[], mutation_id=[])


def test_as_many_operations_and_conditions_as_the_limit_and_one_more() -> None:
    limit = CAPSULE_BATCH_OPERATIONS_MAX
    operations = [batch_set(f"k{n}", b"") for n in range(limit + 1)]
    conditions = [(f"k{n}", "absent") for n in range(limit + 1)]
    given().when(capsule_batch(*operations[:limit], conditions=conditions[:limit])).then(
        applied(removed=0), capsule_scope=[{"keys": limit}]
    )
    scenario = given().when(capsule_batch(*operations))
    scenario.then(rejected("too-large", "the batch has 1025 operations: at most 1024 are accepted"))
    scenario.when(capsule_batch(*operations[:1], conditions=conditions))
    scenario.then(
        rejected("too-large", "the batch has 1025 conditions: at most 1024 are accepted"), capsule_entry=[]
    )


def test_a_body_of_the_limit_passes_and_one_byte_more_does_not() -> None:
    frame = len(encode_json({"conditions": [], "operations": [batch_set("a", b"")]}))
    spare = JSON_BODY_BYTES_MAX - frame
    batch = capsule_batch(batch_set("a", bytes(spare // 4 * 3)))
    assert batch.body is not None
    full = replace(batch, body=batch.body + b" " * (JSON_BODY_BYTES_MAX - len(batch.body)))
    scenario = given().when(full).then(applied(removed=0))
    scenario.when(replace(full, body=(full.body or b"") + b" ", id=mutation_id())).then(rejected("too-large"))


@pytest.mark.parametrize("kind", ["clear", "Set", "SET", ""])
def test_an_operation_of_an_unknown_kind_is_of_a_later_level(kind: str) -> None:
    scenario = given().when(capsule_batch(batch_set("a"), {"kind": kind, "prefix": "x"}))
    scenario.then(rejected("unknown-type", f"unknown operation kind '{kind}'"), capsule_entry=[])


def test_a_fold_touches_a_bounded_number_of_keys() -> None:
    batches = [
        capsule_batch(*(batch_delete(f"k{n}-{m}") for m in range(CAPSULE_BATCH_OPERATIONS_MAX)))
        for n in range(BATCH_KEYS_MAX // CAPSULE_BATCH_OPERATIONS_MAX + 1)
    ]
    records = [
        record_of(mutation, offset=offset) for offset, mutation in enumerate([*batches, capsule_set("a")])
    ]
    pieces = [len(piece) for piece in cut(prepare(records, 1))]
    assert pieces == [len(batches) - 1, 2]
