"""Routing by suffix: one pure function, on every composition of suffixes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvfold.producers.deployment.object_store import check_namespace
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.tiers import Tier, tier_of

__all__: list[str] = []

_SUFFIXES = ("_secrets", "_volatile")
_COMPOSED = [
    (name + "".join(suffixes), frozenset(suffixes))
    for name in ("user", "system", "", "a:b", "secrets", "volatile", "_", "user_secrets_", "übung")
    for count in range(5)
    for suffixes in product(_SUFFIXES, repeat=count)
]
_EXPECTED = {
    frozenset[str](): Tier.PERSISTENT,
    frozenset({"_secrets"}): Tier.SECRET,
    frozenset({"_volatile"}): Tier.VOLATILE,
    frozenset(_SUFFIXES): Tier.REFUSED,
}


@pytest.mark.row("D8", "D12", "D20")
def test_every_composition_of_suffixes() -> None:
    assert len(_COMPOSED) == 9 * 31
    for namespace, suffixes in _COMPOSED:
        assert tier_of(namespace) is _EXPECTED[suffixes], namespace


@given(st.text(max_size=12), st.text(max_size=12))
def test_only_the_end_of_a_name_routes(name: str, rest: str) -> None:
    if not rest.endswith(_SUFFIXES):
        assert tier_of(f"{name}_secrets_volatile{rest}x") is Tier.PERSISTENT


@pytest.mark.row("D12")
def test_a_refused_tier_is_an_error_that_says_why() -> None:
    for namespace in (
        "user_secrets_volatile",
        "user_volatile_secrets",
        "a_volatile_volatile_secrets_volatile",
    ):
        with pytest.raises(InvalidError, match="secret or volatile, never both") as caught:
            check_namespace(namespace)
        assert caught.value.code == "secret-and-volatile"


def test_a_malformed_name_is_said_first() -> None:
    for namespace in ("", "a\x00_secrets_volatile", "\ud800", "x" * 129):
        with pytest.raises(InvalidError) as caught:
            check_namespace(namespace)
        assert caught.value.code == "invalid-namespace"
