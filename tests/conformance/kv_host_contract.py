"""The frozen contract of capsules' storage, function by function and code by code, on a host over any store.

The cases are taken from `schemas/contracts/kv@1.0.0.wit`: a function or a code without a case here is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from kvfold.producers.capsule.errors import HostError
from kvfold.producers.capsule.host import CapsuleHost
from kvfold.producers.capsule.sdk import CapsuleKv
from kvfold.producers.capsule.store import KeyPage, PagedKvStore
from kvfold.schemas.limits import CAPSULE_LIST_KEYS_MAX, CAPSULE_VALUE_BYTES_MAX, PAGE_LIMIT_MAX
from support.capsule_stores import ALICE
from support.contracts import KV, Function

__all__ = ["KvHostContract"]

_Call = Callable[[CapsuleKv], Any]

# One call that succeeds where "k" holds b"1" and "l" holds nothing yet.
GOOD: Final[dict[str, _Call]] = {
    "kv-get": lambda kv: kv.get_bytes_opt("k"),
    "kv-set": lambda kv: kv.set_bytes("k", b"2"),
    "kv-delete": lambda kv: kv.delete("k"),
    "kv-list-keys": lambda kv: kv.list_keys("k"),
    "kv-list-keys-page": lambda kv: kv.list_keys_page("k", None, 1),
    "kv-clear-prefix": lambda kv: kv.clear_prefix("k"),
    "kv-cas": lambda kv: kv.cas("k", b"1", b"2"),
}
ANSWERS: Final[dict[str, Any]] = {
    "kv-get": b"1",
    "kv-set": None,
    "kv-delete": None,
    "kv-list-keys": ["k"],
    "kv-list-keys-page": KeyPage(("k",), None),
    "kv-clear-prefix": 1,
    "kv-cas": True,
}
_LARGE: Final = bytes(CAPSULE_VALUE_BYTES_MAX + 1)
REFUSED: Final[dict[tuple[str, str], _Call]] = {
    ("kv-get", "invalid-key"): lambda kv: kv.get_bytes_opt(""),
    ("kv-set", "invalid-key"): lambda kv: kv.set_bytes("a\x00", b""),
    ("kv-set", "too-large"): lambda kv: kv.set_bytes("k", _LARGE),
    ("kv-set", "quota"): lambda kv: kv.set_bytes("k", b"22"),
    ("kv-delete", "invalid-key"): lambda kv: kv.delete("e\u0301"),
    ("kv-list-keys", "invalid-key"): lambda kv: kv.list_keys("\x1f"),
    ("kv-list-keys", "too-large"): lambda kv: kv.list_keys(""),
    ("kv-list-keys-page", "invalid-key"): lambda kv: kv.list_keys_page("p" * 257, None, 1),
    ("kv-list-keys-page", "too-large"): lambda kv: kv.list_keys_page("", None, PAGE_LIMIT_MAX + 1),
    ("kv-clear-prefix", "invalid-key"): lambda kv: kv.clear_prefix("\ud800"),
    ("kv-cas", "invalid-key"): lambda kv: kv.cas("k" * 257, None, b""),
    ("kv-cas", "too-large"): lambda kv: kv.cas("k", b"1", _LARGE),
    ("kv-cas", "quota"): lambda kv: kv.cas("k", b"1", b"22"),
}
# The SDK answers a lost race with False (002, "Atomic Compare-and-Swap"), and `unknown` is what a call outside any
# invocation meets, of every function.
_ELSEWHERE: Final = {"cas-mismatch", "unknown"}

_functions = pytest.mark.parametrize("function", KV.functions, ids=lambda function: function.name)


class KvHostContract:
    """Subclasses have a fixture `store` that gives an empty one, and say how an operator sets a quota."""

    @pytest.fixture
    def store(self) -> PagedKvStore:
        """A store with nothing in it."""
        raise NotImplementedError

    def set_quota(self, store: PagedKvStore, namespace: str, bytes_max: int) -> None:
        """Sets a quota as an operator does."""
        raise NotImplementedError

    @pytest.mark.row("C20")
    @_functions
    def test_a_function_of_the_contract_answers(self, store: PagedKvStore, function: Function) -> None:
        store.set(ALICE, "k", b"1")
        host = CapsuleHost(store, capsule_id="notes")
        with host.invocation("alice"):
            assert GOOD[function.name](host.kv) == ANSWERS[function.name]

    @pytest.mark.row("C11")
    @pytest.mark.row("C20")
    @_functions
    def test_a_function_of_the_contract_fails_with_each_of_its_codes(
        self, store: PagedKvStore, function: Function
    ) -> None:
        store.set(ALICE, "k", b"1")
        host = CapsuleHost(store, capsule_id="notes")
        for code in set(function.codes) - _ELSEWHERE:
            if code == "quota":
                self.set_quota(store, ALICE, 2)
            if (function.name, code) == ("kv-list-keys", "too-large"):
                keys = [f"k{n}" for n in range(CAPSULE_LIST_KEYS_MAX)]
                with ThreadPoolExecutor(32) as threads:
                    list(threads.map(lambda key: store.set(ALICE, key, b""), keys))
            with host.invocation("alice"), pytest.raises(HostError) as caught:
                REFUSED[function.name, code](host.kv)
            assert caught.value.code == code
        assert store.get(ALICE, "k") == b"1"

    @pytest.mark.row("C11")
    @pytest.mark.row("C20")
    @_functions
    def test_a_function_of_the_contract_fails_with_unknown(
        self, store: PagedKvStore, function: Function
    ) -> None:
        assert "unknown" in function.codes
        with pytest.raises(HostError) as caught:
            GOOD[function.name](CapsuleHost(store, capsule_id="notes").kv)
        assert caught.value.code == "unknown" and str(caught.value)

    @pytest.mark.row("C15")
    @pytest.mark.row("C20")
    def test_a_mismatch_is_an_answer_and_no_error(self, store: PagedKvStore) -> None:
        assert [function.name for function in KV.functions if "cas-mismatch" in function.codes] == ["kv-cas"]
        host = CapsuleHost(store, capsule_id="notes")
        with host.invocation("alice"):
            assert host.kv.cas("k", b"", b"x") is False
            assert host.kv.get_bytes_opt("k") is None

    @pytest.mark.row("C20")
    def test_every_function_and_code_of_the_contract_has_a_case(self) -> None:
        pairs = {(function.name, code) for function in KV.functions for code in function.codes}
        assert {pair for pair in pairs if pair[1] not in _ELSEWHERE} == set(REFUSED)
        assert {code for _, code in pairs} == set(KV.codes)
        assert set(GOOD) == set(ANSWERS) == {function.name for function in KV.functions}
