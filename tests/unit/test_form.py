"""The form of records: type, partition, parts, scopes, bodies; judged without any state."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from kvfold.schemas.form import Formed, Unformed, check_form, check_mutation
from kvfold.schemas.limits import JSON_BODY_BYTES_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.precondition import Precondition
from kvfold.schemas.types import MUTATION_TYPES, BodyKind, SubjectRule
from support.mutations import (
    answer,
    batch_delete,
    capsule_batch,
    capsule_cleared,
    capsule_deleted,
    capsule_quota,
    capsule_restored,
    capsule_set,
    deployment_deleted,
    deployment_put,
    deployment_restored,
    format_raised,
    instance_deleted,
    instance_events,
    instance_pruned,
    instance_pruned_before,
    instance_started,
    key_set,
    mutation_id,
    namespace_cleared,
    orchestration_record,
    raw_record,
    record_of,
    turn,
    undeployed,
)

__all__: list[str] = []

GOOD = {
    mutation.type: mutation
    for mutation in (
        capsule_set("k"),
        capsule_deleted("k"),
        capsule_cleared("k"),
        namespace_cleared(),
        capsule_quota(1),
        capsule_batch(batch_delete("k")),
        capsule_restored("k"),
        deployment_restored("k"),
        deployment_put("k"),
        deployment_deleted("k"),
        undeployed(),
        instance_started(),
        instance_events(key_set("k")),
        instance_pruned([1]),
        instance_pruned_before(1),
        instance_deleted(),
        turn(key_set("k")),
        answer("activity-completed", 1, attempt=1),
        answer("activity-failed", 1, attempt=1, error="e"),
        answer("timer-fired", 1),
        answer("child-completed", 1),
        answer("child-failed", 1, error="e"),
        answer("delivered", 1, kind="start"),
        orchestration_record("event-raised", {"name": "go"}),
        orchestration_record("cancel-requested", {}),
        format_raised(2),
    )
}


def _code(mutation: Mutation, code: str, detail: str | None = None) -> None:
    judged = check_mutation(mutation, 1)
    assert isinstance(judged, Decision) and judged.code == code, judged
    assert detail is None or judged.detail == detail


def test_there_is_a_good_example_of_every_type() -> None:
    assert set(GOOD) == set(MUTATION_TYPES)


@pytest.mark.parametrize("mutation", GOOD.values(), ids=GOOD)
def test_a_good_record_is_formed(mutation: Mutation) -> None:
    formed = check_form(record_of(mutation), 1)
    assert isinstance(formed, Formed)
    assert formed.mutation == mutation and formed.type is MUTATION_TYPES[mutation.type]
    assert (formed.body is not None) == (formed.type.body is BodyKind.JSON)


@pytest.mark.parametrize("mutation", GOOD.values(), ids=GOOD)
def test_the_parts_that_each_type_asks_for(mutation: Mutation) -> None:
    row = MUTATION_TYPES[mutation.type]
    match row.subject:
        case SubjectRule.KEY:
            _code(replace(mutation, subject=None), "malformed", "ce_subject is missing: it is the key")
        case SubjectRule.PREFIX:
            assert isinstance(check_mutation(replace(mutation, subject=None), 1), Formed)
        case SubjectRule.NONE:
            _code(replace(mutation, subject="x"), "malformed", "ce_subject has no meaning for this type")
    if row.has_namespace:
        _code(replace(mutation, namespace=None), "malformed", "ce_kvnamespace is missing")
    else:
        _code(replace(mutation, namespace="n"), "malformed", "ce_kvnamespace has no meaning for this type")
    if row.body is BodyKind.NONE:
        _code(replace(mutation, body=b"x"), "malformed", "this type has no body")
        assert check_mutation(replace(mutation, body=b""), 1) == check_mutation(mutation, 1)
    else:
        _code(replace(mutation, body=None), "malformed", "the body is missing")


@pytest.mark.parametrize("mutation", GOOD.values(), ids=GOOD)
def test_the_preconditions_that_each_type_takes(mutation: Mutation) -> None:
    _, family, verb, _ = mutation.type.split(".")
    by_family = {"capsule": "sha256:" + "a" * 64, "deployment": "version:1"}
    fitting = {"absent", "present", by_family.get(family)} if verb in ("set", "deleted", "put") else set()
    for text in ("absent", "present", "version:1", "not:version:1", "sha256:" + "a" * 64):
        taken = text.removeprefix("not:") in fitting
        asked = replace(mutation, expected=Precondition.parse(text))
        if taken:
            assert isinstance(check_mutation(asked, 1), Formed)
        else:
            kind = asked.expected.kind
            _code(asked, "malformed", f"the precondition {kind} has no meaning for this type")


@pytest.mark.parametrize(
    "type_",
    ["x", "kvfold.capsule.set.v2", "kvfold.capsule.set", "KVFOLD.CAPSULE.SET.V1", "kvfold.capsule.set.v1 "],
)
def test_types_that_are_unknown(type_: str) -> None:
    _code(replace(GOOD["kvfold.capsule.set.v1"], type=type_), "unknown-type")


def test_an_over_long_type_is_cut_in_what_is_kept() -> None:
    unformed = check_form(record_of(replace(GOOD["kvfold.capsule.set.v1"], type="x" * 1_000)), 1)
    assert isinstance(unformed, Unformed) and unformed.type == "x" * 256


@pytest.mark.parametrize(
    ("type_", "scopes"),
    [
        (
            "kvfold.capsule.set.v1",
            [
                *(
                    "",
                    "c",
                    "c:alice",
                    "c:alice:capsule",
                    "c:alice:capsule:",
                    "c::capsule:x",
                    "c:a:b:capsule:x",
                ),
                *(
                    "C:alice:capsule:notes",
                    "c:alice:Capsule:notes",
                    "c:a/b:capsule:x",
                    "c:a:capsule:x/y",
                    "d:dep-1",
                ),
                *(
                    "c:a:capsule:x:y",
                    "c:e\u0301:capsule:x",
                    "c:" + "a" * 129 + ":capsule:x",
                    "c:a\n:capsule:x",
                ),
                "c:\U000105d2\u0307:capsule:x",
            ],
        ),
        ("kvfold.deployment.put.v1", ["", "d", "d:", "D:x", "d:a\x7f", "d:" + "é" * 65, "o:x"]),
        ("kvfold.orchestration.started.v1", ["", "o", "o:", "o:a\nb", "o:" + "x" * 257, "s:0"]),
        ("kvfold.system.format-raised.v1", ["", "s:", "s:1", "s:00", "s:-1", "c:alice:capsule:notes"]),
    ],
)
def test_scopes_of_another_form(type_: str, scopes: list[str]) -> None:
    for scope in scopes:
        _code(replace(GOOD[type_], scope=scope), "malformed")


@pytest.mark.parametrize("scope", ["d:a:b/c", "d:é", "d: ", "d:d:"])
def test_deployment_ids_may_hold_any_printable_text(scope: str) -> None:
    assert isinstance(check_mutation(replace(GOOD["kvfold.deployment.put.v1"], scope=scope), 1), Formed)


def test_a_record_in_another_partition_than_murmur2_says() -> None:
    for mutation in GOOD.values():
        if mutation.type == "kvfold.system.format-raised.v1":
            continue
        right = partition_of(mutation.scope.encode(), 12)
        assert isinstance(check_form(record_of(mutation, partition=right), 12), Formed)
        unformed = check_form(record_of(mutation, partition=(right + 1) % 12), 12)
        assert isinstance(unformed, Unformed)
        assert unformed.decision.code == "wrong-partition"
        assert (unformed.scope, unformed.id, unformed.type) == (mutation.scope, mutation.id, mutation.type)


def test_what_librdkafkas_default_partitioner_would_choose_is_refused() -> None:
    """`consistent_random` is CRC32 of the key modulo the count."""
    refused = 0
    for number in range(100):
        mutation = deployment_put("k", scope=f"d:dep-{number}")
        chosen = zlib.crc32(mutation.scope.encode()) % 12
        judged = check_form(record_of(mutation, partition=chosen), 12)
        if isinstance(judged, Unformed):
            assert judged.decision.code == "wrong-partition"
            refused += 1
    assert refused > 80


def test_order_of_the_checks() -> None:
    """An unknown type is unknown in any partition; the partition comes before scope, parts and body."""
    wrong = (partition_of(b"c:alice:capsule:notes", 12) + 1) % 12
    unknown = check_form(record_of(replace(capsule_set("k"), type="x"), partition=wrong), 12)
    assert isinstance(unknown, Unformed) and unknown.decision.code == "unknown-type"
    bad_parts = check_form(record_of(replace(capsule_set("k"), namespace="n"), partition=wrong), 12)
    assert isinstance(bad_parts, Unformed) and bad_parts.decision.code == "wrong-partition"
    bad_scope = replace(capsule_set("k"), scope="x", namespace="n")
    _code(bad_scope, "malformed", "the key is no capsule scope: c:PRINCIPAL:capsule:ID")
    malformed = raw_record(capsule_set("k"), drop=["ce_id"])
    judged = check_form(replace(malformed, partition=wrong), 12)
    assert isinstance(judged, Unformed) and judged.decision.code == "malformed"


def test_the_size_of_a_json_body() -> None:
    started = instance_started()
    padding = JSON_BODY_BYTES_MAX - len(started.body or b"")
    assert isinstance(
        check_mutation(replace(started, body=(started.body or b"") + b" " * padding), 1), Formed
    )
    _code(replace(started, body=(started.body or b"") + b" " * (padding + 1)), "too-large")


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"1", b'"x"', b"{}", b'{"bytes_max":1,"x":2}', b"\xff", b'{"bytes_max":1']
)
def test_json_bodies_that_are_malformed(body: bytes) -> None:
    _code(replace(capsule_quota(1, id_=mutation_id(1)), body=body), "malformed")


def test_the_sentence_does_not_depend_on_pydantic() -> None:
    _code(
        capsule_quota(-1), "malformed", "the JSON body does not have the shape of kvfold.capsule.quota-set.v1"
    )
