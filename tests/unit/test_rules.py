"""What a mutation alone shows to be wrong, and in which order; the doors and the fold judge by the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvfold.schemas.form import Formed, check_mutation
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.rules import is_secret, validate
from support.mutations import (
    capsule_cleared,
    capsule_deleted,
    capsule_quota,
    capsule_set,
    deployment_deleted,
    deployment_put,
    envelope,
    format_raised,
    instance_deleted,
    instance_events,
    instance_pruned,
    instance_started,
    key_set,
    namespace_cleared,
    undeployed,
)

__all__: list[str] = []


def _code(mutation: Mutation) -> str | None:
    formed = check_mutation(mutation, 1)
    assert isinstance(formed, Formed), formed
    decision = validate(formed)
    return None if decision is None else decision.code


@pytest.mark.parametrize(
    "mutation",
    [
        *(
            capsule_set("k"),
            capsule_deleted("k"),
            capsule_cleared("k"),
            capsule_cleared(None),
            namespace_cleared(),
        ),
        *(capsule_quota(0), deployment_put("k"), deployment_deleted("k"), undeployed(), format_raised(9)),
        *(instance_started(), instance_events(key_set("k")), instance_pruned([1]), instance_deleted()),
    ],
    ids=lambda mutation: mutation.type,
)
def test_nothing_is_wrong_with_a_good_mutation(mutation: Mutation) -> None:
    assert _code(mutation) is None


def test_the_first_thing_that_is_wrong_names_the_code() -> None:
    wrong = deployment_put("k\x01", b"plain", namespace="n\x01_secrets_volatile")
    assert _code(wrong) == "invalid-namespace"
    assert _code(replace(wrong, namespace="n_secrets_volatile")) == "invalid-key"
    assert _code(replace(wrong, namespace="n_secrets_volatile", subject="k")) == "secret-and-volatile"
    assert (
        _code(replace(wrong, namespace="n_volatile", subject="k", body=bytes(1_048_577))) == "volatile-in-log"
    )
    assert (
        _code(replace(wrong, namespace="n_secrets", subject="k", body=bytes(1_048_577)))
        == "secret-not-encrypted"
    )
    assert _code(replace(wrong, namespace="n_secrets", subject="k", body=envelope(1_048_577))) == "too-large"
    assert _code(capsule_set("k\x01", bytes(1_048_577))) == "invalid-key"


@pytest.mark.parametrize(
    ("namespace", "secret"),
    [
        ("user", False),
        ("user_secrets", True),
        ("user_secrets_secrets", True),
        ("user_secrets_volatile", True),
        ("user_volatile_secrets", True),
        ("user_volatile", False),
        ("_secrets", True),
        ("secrets", False),
        ("user_secrets_x", False),
    ],
)
def test_secret_at_whatever_depth(namespace: str, secret: bool) -> None:
    assert is_secret(namespace) is secret
