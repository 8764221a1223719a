"""The contract of `KvStore`: one suite, for every store (002, "The KvStore Trait"; rows C3 to C10, C15, C21)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from conformance.kv_host_contract import KvHostContract
from kvfold.producers.capsule.errors import HostError, InvalidKey, Quota, TooLarge, Unknown
from kvfold.producers.capsule.store import PagedKvStore
from kvfold.schemas.limits import (
    CAPSULE_KEY_BYTES_MAX,
    CAPSULE_LIST_KEYS_MAX,
    CAPSULE_VALUE_BYTES_MAX,
    PAGE_LIMIT_MAX,
)
from support.capsule_stores import ALICE, BOB

__all__ = ["KvStoreContract"]

ODD_KEYS = ("a/b", "//", "/a/", ".", "..", "%25", "a+b", " a ", "_", "%", "?&#", "\U0001f600", "שלום", "é")
BAD_KEYS = ("", "\x00", "a\x00b", "\n", "\x7f", "e\u0301", "\ud800", "k" * (CAPSULE_KEY_BYTES_MAX + 1))
BAD_PREFIXES = ("\x00", "\n", "\ud800", "k" * (CAPSULE_KEY_BYTES_MAX + 1))
BAD_NAMESPACES = (
    "",
    "alice",
    "alice:notes",
    "alice:capsule:",
    ":capsule:notes",
    "alice:kapsule:notes",
    "alice:capsule:notes:more",
    "a:capsule:b:capsule:c",
    "alice:capsule:no/tes",
    "al\x00ice:capsule:notes",
    "e\u0301:capsule:notes",
    f"{'a' * 129}:capsule:notes",
)
OPERATIONS: tuple[Callable[[PagedKvStore, str], Any], ...] = (
    lambda store, namespace: store.get(namespace, "k"),
    lambda store, namespace: store.set(namespace, "k", b""),
    lambda store, namespace: store.delete(namespace, "k"),
    lambda store, namespace: store.exists(namespace, "k"),
    lambda store, namespace: store.list_keys(namespace),
    lambda store, namespace: store.list_keys_with_prefix(namespace, ""),
    lambda store, namespace: store.list_keys_page(namespace, "", cursor=None, limit=1),
    lambda store, namespace: store.compare_and_swap(namespace, "k", None, b""),
    lambda store, namespace: store.clear_namespace(namespace),
    lambda store, namespace: store.clear_prefix(namespace, ""),
)


class KvStoreContract(KvHostContract):
    """Beside the frozen contract: what every store must do besides. Subclasses as of `KvHostContract`."""

    @pytest.mark.row("C3")
    @pytest.mark.row("C7")
    def test_bytes_are_kept_and_an_empty_value_is_not_a_missing_one(self, store: PagedKvStore) -> None:
        assert store.get(ALICE, "k") is None and not store.exists(ALICE, "k")
        store.set(ALICE, "k", b"")
        assert store.get(ALICE, "k") == b"" and store.exists(ALICE, "k")
        assert store.list_keys(ALICE) == ["k"]
        store.set(ALICE, "k", b"\x00\xff\r\n")
        assert store.get(ALICE, "k") == b"\x00\xff\r\n"
        assert store.delete(ALICE, "k") is True
        assert store.delete(ALICE, "k") is False
        assert store.get(ALICE, "k") is None and not store.exists(ALICE, "k")

    @pytest.mark.row("C3")
    def test_a_key_that_only_begins_so_does_not_exist(self, store: PagedKvStore) -> None:
        store.set(ALICE, "key", b"1")
        assert not store.exists(ALICE, "ke") and store.get(ALICE, "ke") is None
        assert store.delete(ALICE, "ke") is False
        assert store.get(ALICE, "key") == b"1"

    @pytest.mark.row("C7")
    def test_a_value_of_the_limit_and_one_byte_more(self, store: PagedKvStore) -> None:
        whole = bytes(range(256)) * (CAPSULE_VALUE_BYTES_MAX // 256)
        store.set(ALICE, "k", whole)
        assert store.get(ALICE, "k") == whole
        with pytest.raises(TooLarge, match="1048577 bytes"):
            store.set(ALICE, "k", whole + b"x")
        with pytest.raises(TooLarge):
            store.compare_and_swap(ALICE, "k", whole, whole + b"x")
        assert store.compare_and_swap(ALICE, "k", whole, b"1")

    def test_a_value_that_is_no_bytes_is_a_mistake_of_the_code(self, store: PagedKvStore) -> None:
        with pytest.raises(TypeError, match="bytes, not str"):
            store.set(ALICE, "k", "text")  # type: ignore[arg-type]
        store.set(ALICE, "k", bytearray(b"1"))  # type: ignore[arg-type]
        assert store.get(ALICE, "k") == b"1"

    @pytest.mark.row("C6")
    @pytest.mark.row("C8")
    def test_odd_keys_are_kept_apart_and_listed_once_in_byte_order(self, store: PagedKvStore) -> None:
        keys = (*ODD_KEYS, "k" * CAPSULE_KEY_BYTES_MAX)
        for key in keys:
            assert store.compare_and_swap(ALICE, key, None, key.encode())
        assert store.list_keys(ALICE) == sorted(keys, key=str.encode)
        for key in keys:
            assert store.get(ALICE, key) == key.encode() and store.exists(ALICE, key)
            assert key in store.list_keys_with_prefix(ALICE, key)
            assert store.delete(ALICE, key)
        assert store.list_keys(ALICE) == []

    @pytest.mark.row("C6")
    @pytest.mark.row("C11")
    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_what_is_no_key_is_refused_by_every_call(self, store: PagedKvStore, key: str) -> None:
        calls: tuple[Callable[[], Any], ...] = (
            lambda: store.get(ALICE, key),
            lambda: store.set(ALICE, key, b""),
            lambda: store.delete(ALICE, key),
            lambda: store.exists(ALICE, key),
            lambda: store.compare_and_swap(ALICE, key, None, b""),
        )
        for call in calls:
            with pytest.raises(InvalidKey) as caught:
                call()
            assert (caught.value.code, caught.value.retryable) == ("invalid-key", False)

    @pytest.mark.parametrize("prefix", BAD_PREFIXES)
    def test_what_is_no_prefix_is_refused(self, store: PagedKvStore, prefix: str) -> None:
        calls: tuple[Callable[[], Any], ...] = (
            lambda: store.list_keys_with_prefix(ALICE, prefix),
            lambda: store.list_keys_page(ALICE, prefix, cursor=None, limit=1),
            lambda: store.clear_prefix(ALICE, prefix),
        )
        for call in calls:
            with pytest.raises(InvalidKey):
                call()

    @pytest.mark.row("C1")
    @pytest.mark.row("C3")
    @pytest.mark.parametrize("namespace", BAD_NAMESPACES)
    def test_what_is_no_namespace_is_refused_by_every_call(self, store: PagedKvStore, namespace: str) -> None:
        for operation in OPERATIONS:
            with pytest.raises(InvalidKey):
                operation(store, namespace)

    def test_the_namespace_is_looked_at_first_then_the_key_then_the_value(self, store: PagedKvStore) -> None:
        large = bytes(CAPSULE_VALUE_BYTES_MAX + 1)
        with pytest.raises(InvalidKey, match="namespace"):
            store.set("forged", "", large)
        with pytest.raises(InvalidKey, match="key"):
            store.set(ALICE, "", large)
        self.set_quota(store, ALICE, 0)
        with pytest.raises(TooLarge):
            store.set(ALICE, "k", large)

    @pytest.mark.row("C19")
    @pytest.mark.row("C21")
    def test_a_prefix_is_literal_and_never_takes_a_neighbour(self, store: PagedKvStore) -> None:
        keys = ["a", "a%", "a_b", "ab", "axb", "b", "session.1", "session.2", "session2"]
        for key in keys:
            store.set(ALICE, key, b"")
            store.set(BOB, key, b"")
        assert store.list_keys_with_prefix(ALICE, "a_") == ["a_b"]
        assert store.clear_prefix(ALICE, "a_") == 1
        assert store.clear_prefix(ALICE, "a%") == 1
        assert store.clear_prefix(ALICE, "session.") == 2
        assert store.list_keys(ALICE) == ["a", "ab", "axb", "b", "session2"]
        assert store.clear_prefix(ALICE, "none") == 0
        assert store.clear_prefix(ALICE, "e\u0301") == 0  # no key is like that: it matches nothing
        assert store.clear_prefix(ALICE, "") == 5
        assert store.clear_namespace(ALICE) == 0
        store.set(ALICE, "a", b"")
        assert store.clear_namespace(ALICE) == 1
        assert store.list_keys(BOB) == keys

    @pytest.mark.row("C9")
    def test_pages_go_on_after_the_key_that_was_last(self, store: PagedKvStore) -> None:
        for n in range(7):
            store.set(ALICE, f"k{n}", b"")
        store.set(ALICE, "j", b"")
        first = store.list_keys_page(ALICE, "k", cursor=None, limit=3)
        assert first.keys == ("k0", "k1", "k2") and first.next_cursor is not None
        store.delete(ALICE, "k2")
        store.set(ALICE, "k05", b"")  # before the cursor: not seen
        store.set(ALICE, "k25", b"")
        second = store.list_keys_page(ALICE, "k", cursor=first.next_cursor, limit=3)
        assert second.keys == ("k25", "k3", "k4") and second.next_cursor is not None
        last = store.list_keys_page(ALICE, "k", cursor=second.next_cursor, limit=2)
        assert (last.keys, last.next_cursor) == (("k5", "k6"), None)
        assert store.list_keys_page(ALICE, "k", cursor="a", limit=1).keys == ("k0",)
        assert store.list_keys_page(ALICE, "k", cursor="l", limit=1).keys == ()

    @pytest.mark.parametrize(
        ("cursor", "limit", "error"),
        [
            ("", 1, InvalidKey),
            ("a\x00", 1, InvalidKey),
            (None, 0, Unknown),
            (None, -1, Unknown),
            (None, PAGE_LIMIT_MAX + 1, TooLarge),
        ],
    )
    def test_a_page_that_is_none(
        self, store: PagedKvStore, cursor: str | None, limit: int, error: type[HostError]
    ) -> None:
        with pytest.raises(error):
            store.list_keys_page(ALICE, "", cursor=cursor, limit=limit)

    @pytest.mark.row("C8")
    def test_a_listing_has_1024_keys_and_not_one_more(self, store: PagedKvStore) -> None:
        keys = [f"k{n:04}" for n in range(CAPSULE_LIST_KEYS_MAX)]
        with ThreadPoolExecutor(32) as threads:
            list(threads.map(lambda key: store.set(ALICE, key, b""), keys))
        assert store.list_keys(ALICE) == keys
        store.set(ALICE, "l", b"")
        assert store.list_keys_with_prefix(ALICE, "k") == keys
        for listing in (store.list_keys, lambda of: store.list_keys_with_prefix(of, "")):
            with pytest.raises(TooLarge, match="list_keys_page"):
                listing(ALICE)
        assert store.clear_prefix(ALICE, "k") == CAPSULE_LIST_KEYS_MAX

    @pytest.mark.row("C15")
    def test_compare_and_swap(self, store: PagedKvStore) -> None:
        assert store.compare_and_swap(ALICE, "k", b"", b"x") is False  # an empty value is not a missing one
        assert store.compare_and_swap(ALICE, "k", None, b"") is True
        assert store.compare_and_swap(ALICE, "k", None, b"x") is False
        assert store.compare_and_swap(ALICE, "k", b"x", b"y") is False
        assert store.get(ALICE, "k") == b""
        assert store.compare_and_swap(ALICE, "k", b"", b"x") is True
        store.delete(ALICE, "k")
        assert store.compare_and_swap(ALICE, "k", b"x", b"y") is False
        assert store.compare_and_swap(ALICE, "k", None, b"again") is True
        assert store.get(BOB, "k") is None

    @pytest.mark.row("C15")
    def test_of_many_swappers_exactly_one_wins(self, store: PagedKvStore) -> None:
        for expected in (None, b"first"):
            values = [b"first"] * 16 if expected is None else [b"%d" % n for n in range(16)]
            with ThreadPoolExecutor(16) as threads:
                won = list(threads.map(partial(store.compare_and_swap, ALICE, "state", expected), values))
            assert won.count(True) == 1
            assert store.get(ALICE, "state") == values[won.index(True)]

    @pytest.mark.row("C10")
    @pytest.mark.row("C11")
    def test_the_quota_counts_keys_and_values_and_lets_shrink(self, store: PagedKvStore) -> None:
        store.set(ALICE, "é", b"12345")  # 2 bytes of key
        self.set_quota(store, ALICE, 8)
        store.set(ALICE, "é", b"123456")
        with pytest.raises(Quota) as caught:
            store.set(ALICE, "é", b"1234567")
        assert (caught.value.code, caught.value.retryable) == ("quota", False)
        with pytest.raises(Quota):
            store.compare_and_swap(ALICE, "k", None, b"")
        assert store.compare_and_swap(ALICE, "k", b"other", bytes(100)) is False  # the race is lost first
        assert store.get(ALICE, "é") == b"123456"
        self.set_quota(store, ALICE, 1)
        store.set(ALICE, "é", b"123")  # below the usage: shrinking is always allowed
        assert store.delete(ALICE, "é") is True
        with pytest.raises(Quota):
            store.set(ALICE, "k", b"1")
        store.set(ALICE, "k", b"")
        store.set(BOB, "k", bytes(100))
        assert store.clear_namespace(ALICE) == 1
