"""Decisions about deployments and what they change."""

from __future__ import annotations

import pytest

from kvfold.schemas.limits import DEPLOYMENT_VALUE_BYTES_MAX
from support.given import applied, conflict, given, rejected
from support.mutations import DEPLOYMENT, deployment_deleted, deployment_put, envelope, undeployed

__all__: list[str] = []


@pytest.mark.row("D2")
def test_versions_begin_at_one_and_step_by_one() -> None:
    given().when(deployment_put("a", b"1"), deployment_put("a", b"2"), deployment_put("b", b"1")).then(
        applied(1),
        applied(2),
        applied(1),
        deployment_entry=[
            {
                "scope": DEPLOYMENT,
                "namespace": "user",
                "key": "a",
                "version": 2,
                "value": b"2",
                "valid_from": 1,
            },
            {"key": "b", "version": 1},
        ],
        deployment_entry_history=[{"key": "a", "version": 1, "value": b"1", "valid_from": 0, "valid_to": 1}],
        deployment_scope=[],
    )


@pytest.mark.row("D2")
def test_a_version_goes_on_over_delete_and_recreate() -> None:
    scenario = given(deployment_put("a"), deployment_put("a")).when(deployment_deleted("a"))
    scenario.then(applied(2), deployment_entry=[{"key": "a", "version": 2, "value": None, "valid_from": 2}])
    scenario.when(deployment_put("a", expected="version:2")).then(conflict("version-conflict", 0))
    scenario.when(deployment_put("a", b"new", expected="absent")).then(
        applied(3),
        deployment_entry=[{"version": 3, "value": b"new"}],
        deployment_entry_history=[
            {"version": 1, "valid_to": 1},
            {"version": 2, "value": b"v", "valid_to": 2},
            {"version": 2, "value": None, "valid_from": 2, "valid_to": 4},
        ],
    )
    scenario.when(deployment_put("a", expected="absent")).then(conflict("version-conflict", 3))


@pytest.mark.row("D2")
@pytest.mark.row("D16")
def test_a_version_goes_on_over_undeploy() -> None:
    scenario = given(*(deployment_put("a") for _ in range(3)), deployment_put("b"), deployment_deleted("b"))
    scenario.when(undeployed()).then(
        applied(removed=1), deployment_entry=[], deployment_scope=[{"scope": DEPLOYMENT, "version_floor": 3}]
    )
    scenario.when(deployment_put("b", expected="absent"), deployment_put("a")).then(applied(4), applied(4))
    scenario.when(undeployed()).then(applied(removed=2), deployment_scope=[{"version_floor": 4}])
    scenario.when(deployment_put("c")).then(applied(5))


def test_an_undeploy_of_tombstones_alone_still_lifts_the_floor() -> None:
    scenario = given(deployment_put("a"), deployment_deleted("a")).when(undeployed())
    scenario.then(applied(removed=0), deployment_entry=[], deployment_scope=[{"version_floor": 1}])
    scenario.when(deployment_put("a")).then(applied(2))


def test_an_undeploy_of_nothing_is_applied_and_a_second_one_keeps_the_floor() -> None:
    given().when(undeployed()).then(applied(removed=0), deployment_scope=[])
    scenario = given(deployment_put("a"), deployment_put("a"), undeployed()).when(undeployed())
    scenario.then(applied(removed=0), deployment_scope=[{"version_floor": 2}])


def test_an_undeploy_leaves_the_neighbour() -> None:
    other = deployment_put("a", scope="d:dep-10")
    given(deployment_put("a"), other).when(undeployed()).then(
        applied(removed=1), deployment_entry=[{"scope": "d:dep-10"}]
    )


@pytest.mark.row("D3")
@pytest.mark.parametrize(
    ("expected", "put_absent", "put_at_2", "delete_at_2"),
    [
        ("any", True, True, True),
        ("absent", True, False, False),
        ("present", False, True, True),
        ("version:2", False, True, True),
        ("version:1", False, False, False),
        ("version:0", False, False, False),
        ("version:1,2", False, True, True),
        ("not:version:2", True, False, False),
        ("not:version:1", True, True, True),
    ],
)
def test_preconditions(expected: str, put_absent: bool, put_at_2: bool, delete_at_2: bool) -> None:
    put, deleted = deployment_put("a", expected=expected), deployment_deleted("a", expected=expected)
    given().when(put).then(applied(1) if put_absent else conflict("version-conflict", 0))
    two = (deployment_put("a"), deployment_put("a"))
    given(*two).when(put).then(applied(3) if put_at_2 else conflict("version-conflict", 2))
    given(*two).when(deleted).then(applied(2) if delete_at_2 else conflict("version-conflict", 2))


@pytest.mark.row("D3")
@pytest.mark.parametrize("expected", ["any", "absent", "present", "version:7", "not:version:0"])
def test_deleting_what_is_absent_succeeds_whatever_the_version(expected: str) -> None:
    given().when(deployment_deleted("a", expected=expected)).then(applied(0), deployment_entry=[])
    scenario = given(deployment_put("a"), deployment_deleted("a"))
    scenario.when(deployment_deleted("a", expected=expected)).then(
        applied(0), deployment_entry=[{"version": 1, "valid_from": 1}]
    )


@pytest.mark.row("D4")
def test_values_up_to_the_limit() -> None:
    scenario = given().when(deployment_put("a", b"")).then(applied(1), deployment_entry=[{"value": b""}])
    scenario.when(deployment_put("a", expected="absent")).then(conflict("version-conflict", 1))
    scenario.when(deployment_put("a", bytes(DEPLOYMENT_VALUE_BYTES_MAX))).then(applied(2))
    scenario.when(deployment_put("a", bytes(DEPLOYMENT_VALUE_BYTES_MAX + 1))).then(rejected("too-large"))


@pytest.mark.row("D10")
def test_a_secret_needs_the_envelope_and_counts_its_plaintext() -> None:
    given().when(deployment_put("k", b"plain", namespace="user_secrets")).then(
        rejected("secret-not-encrypted", "the value of a secret namespace must have the envelope KVS1"),
        deployment_entry=[],
    )
    for size in (0, DEPLOYMENT_VALUE_BYTES_MAX):
        given().when(deployment_put("k", envelope(size), namespace="x_secrets")).then(applied(1))
    too_large = envelope(DEPLOYMENT_VALUE_BYTES_MAX + 1)
    given().when(deployment_put("k", too_large, namespace="x_secrets")).then(rejected("too-large"))
    short = envelope(0)[:-1]
    given().when(deployment_put("k", short, namespace="_secrets")).then(rejected("secret-not-encrypted"))
    given().when(deployment_put("k", b"", namespace="_secrets")).then(rejected("secret-not-encrypted"))


def test_a_secret_is_deleted_as_any_entry() -> None:
    scenario = given(deployment_put("k", envelope(1), namespace="s_secrets"))
    scenario.when(deployment_deleted("k", namespace="s_secrets", expected="version:1")).then(applied(1))


@pytest.mark.row("D12")
@pytest.mark.parametrize(
    "namespace",
    [
        "user_secrets_volatile",
        "user_volatile_secrets",
        "a_secrets_secrets_volatile",
        "a_volatile_volatile_secrets",
        "_secrets_volatile",
        "a_secrets_volatile_secrets_volatile",
    ],
)
def test_both_suffixes_at_any_nesting_are_refused(namespace: str) -> None:
    for mutation in (
        deployment_put("k", envelope(1), namespace=namespace),
        deployment_put("k", b"plain", namespace=namespace),
        deployment_deleted("k", namespace=namespace),
    ):
        given().when(mutation).then(rejected("secret-and-volatile"), deployment_entry=[])


@pytest.mark.row("D8")
@pytest.mark.parametrize("namespace", ["user_volatile", "_volatile", "a_volatile_volatile"])
def test_volatile_namespaces_never_go_through_the_log(namespace: str) -> None:
    for mutation in (deployment_put("k", namespace=namespace), deployment_deleted("k", namespace=namespace)):
        given().when(mutation).then(rejected("volatile-in-log"), deployment_entry=[])


@pytest.mark.parametrize("namespace", ["user_volatiles", "volatile", "secrets", "user_secrets_", "_SECRETS"])
def test_names_that_only_look_like_a_suffix_are_plain(namespace: str) -> None:
    given().when(deployment_put("k", b"plain", namespace=namespace)).then(applied(1))


@pytest.mark.parametrize("namespace", ["n" * 129, "é" * 65, "a\tb", "\x7f"])
def test_an_invalid_namespace_is_rejected(namespace: str) -> None:
    given().when(deployment_put("k", namespace=namespace)).then(rejected("invalid-namespace"))


@pytest.mark.row("D5")
@pytest.mark.parametrize("key", ["k" * 1024, "a//b/", "/", ".", "..", "%2F", "e\u0301", "\u00e9", " ", "😀"])
def test_any_printable_key_is_kept_byte_for_byte(key: str) -> None:
    given().when(deployment_put(key)).then(applied(1), deployment_entry=[{"key": key}])


def test_keys_are_not_normalised() -> None:
    given(deployment_put("e\u0301")).when(deployment_put("\u00e9", expected="absent")).then(applied(1))


@pytest.mark.parametrize("key", ["k" * 1025, "a\nb", "\x00", "\x9f"])
def test_an_invalid_key_is_rejected(key: str) -> None:
    given().when(deployment_put(key)).then(rejected("invalid-key"), deployment_entry=[])


@pytest.mark.row("D20")
def test_namespaces_are_separate() -> None:
    given(deployment_put("k", namespace="system")).when(deployment_put("k", expected="absent")).then(
        applied(1), deployment_entry=[{"namespace": "system"}, {"namespace": "user"}]
    )
