"""The gateway's pure rules: statuses of decisions, what headers expect, idempotency keys."""

from __future__ import annotations

from uuid import UUID

import pytest

from kvfold.producers import mutations
from kvfold.producers.gateway.expectations import (
    Expectation,
    expected_by_delete,
    expected_by_put,
    expected_of_content,
)
from kvfold.producers.gateway.statuses import applied_status
from kvfold.producers.idempotency import mutation_id_of
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.precondition import ABSENT, ANY, PRESENT, Precondition

__all__: list[str] = []

CAPSULE, DEPLOYMENT, INSTANCE = "c:alice:capsule:notes", "d:dep", "o:1"
SET = mutations.capsule_set(CAPSULE, "k", b"")
PUT = mutations.deployment_put(DEPLOYMENT, "user", "k", b"")
CREATE = mutations.deployment_put(DEPLOYMENT, "user", "k", b"", expected=ABSENT)
REPLACE = mutations.deployment_put(DEPLOYMENT, "user", "k", b"", expected=Precondition.version(4))
VERSION_5 = Precondition.version(5)


@pytest.mark.row("D6")
@pytest.mark.parametrize(
    ("mutation", "version", "status"),
    [
        (SET, 1, 201),
        (SET, 2, 200),
        (PUT, 1, 201),
        (PUT, 5, 200),
        (CREATE, 1, 201),
        (CREATE, 9, 201),  # made again after a delete
        (REPLACE, 5, 200),
        (mutations.capsule_deleted(CAPSULE, "k"), 3, 204),
        (mutations.deployment_deleted(DEPLOYMENT, "user", "k"), 0, 204),
        (mutations.capsule_prefix_cleared(CAPSULE, ""), None, 200),
        (mutations.capsule_namespace_cleared(CAPSULE), None, 200),
        (mutations.capsule_quota_set(CAPSULE, 1), None, 200),
        (mutations.deployment_undeployed(DEPLOYMENT), None, 200),
        (mutations.orchestration_started(INSTANCE, "n"), None, 201),
        (mutations.orchestration_executions_pruned(INSTANCE, [1]), None, 200),
        (mutations.orchestration_executions_pruned_before(INSTANCE, 2), None, 200),
        (mutations.orchestration_instance_deleted(INSTANCE), None, 204),
    ],
)
def test_status_of_an_applied_mutation(mutation: Mutation, version: int | None, status: int) -> None:
    assert applied_status(mutation, Decision(DecisionStatus.APPLIED, version=version)) == status


@pytest.mark.row("D3")
@pytest.mark.parametrize(
    ("version", "put", "delete"),
    [(None, ABSENT, ANY), (0, ABSENT, ANY), (5, VERSION_5, VERSION_5)],
)
def test_what_an_object_version_expects(version: int | None, put: Precondition, delete: Precondition) -> None:
    assert expected_by_put(version, None) == Expectation(put, False)
    assert expected_by_delete(version, None) == Expectation(delete, False)


@pytest.mark.parametrize("conditional", [ABSENT, PRESENT, VERSION_5, Precondition.version(5, negated=True)])
def test_conditions_decide_alone(conditional: Precondition) -> None:
    assert expected_by_put(None, conditional) == Expectation(conditional, True)
    assert expected_by_delete(None, conditional) == Expectation(conditional, True)
    assert expected_by_delete(0, conditional) == Expectation(conditional, True)
    assert expected_of_content(conditional) == Expectation(conditional, True)


def test_the_same_in_both_is_no_contradiction() -> None:
    assert expected_by_put(5, VERSION_5) == Expectation(VERSION_5, True)
    assert expected_by_put(0, ABSENT) == Expectation(ABSENT, True)
    assert expected_by_delete(5, VERSION_5) == Expectation(VERSION_5, True)


@pytest.mark.parametrize(
    ("version", "conditional"),
    [
        (4, VERSION_5),
        (5, ABSENT),
        (5, PRESENT),
        (5, Precondition.version(5, 6)),
        (5, Precondition.version(5, negated=True)),
        (0, VERSION_5),
        (0, PRESENT),
    ],
)
def test_a_contradiction_is_refused(version: int, conditional: Precondition) -> None:
    for call in (expected_by_put, expected_by_delete) if version else (expected_by_put,):
        with pytest.raises(InvalidError) as caught:
            call(version, conditional)
        assert caught.value.code == "malformed-precondition"


def test_without_conditions_a_capsule_write_is_unconditional() -> None:
    assert expected_of_content(None) == Expectation(ANY, False)


@pytest.mark.parametrize(
    ("expectation", "needs_presence"),
    [
        (Expectation(PRESENT, True), True),
        (Expectation(VERSION_5, True), True),
        (Expectation(VERSION_5, False), False),
        (Expectation(ABSENT, True), False),
        (Expectation(Precondition.version(5, negated=True), True), False),
        (Expectation(ANY, False), False),
    ],
)
def test_if_match_never_holds_for_an_absent_key(expectation: Expectation, needs_presence: bool) -> None:
    assert expectation.needs_presence is needs_presence


@pytest.mark.row("X4")
def test_an_idempotency_key_is_a_uuid_or_gives_one_within_its_scope() -> None:
    text = "8E03978E-40D5-43DD-BC93-6894A57F9324"
    assert mutation_id_of(text, DEPLOYMENT) == text.lower()
    assert mutation_id_of(f'"{text}"', DEPLOYMENT) == text.lower()
    made = mutation_id_of("order 17", DEPLOYMENT)
    assert UUID(made).version == 5
    assert made == mutation_id_of('"order 17"', DEPLOYMENT)
    assert len({made, mutation_id_of("order 17", CAPSULE), mutation_id_of("order 18", DEPLOYMENT)}) == 3


@pytest.mark.parametrize("key", ["", " ", '""', '" "', "a\x00", "a\tb", "ü", "a" * 256])
def test_an_idempotency_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(InvalidError) as caught:
        mutation_id_of(key, DEPLOYMENT)
    assert caught.value.code == "malformed-idempotency-key"
