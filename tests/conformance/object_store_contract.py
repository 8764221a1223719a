"""What every object store promises (003, "The model"; rows D1 to D5, D7), whichever tier and back end is behind it.

Versions are compared by order and equality only: the tiers begin them elsewhere.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import ClassVar
from uuid import uuid4

import pytest

from kvfold.producers.deployment import ConflictError, DeploymentValue, ObjectStore
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import DEPLOYMENT_KEY_BYTES_MAX, DEPLOYMENT_VALUE_BYTES_MAX, INT64_MAX

__all__ = ["ObjectStoreContract", "fresh_namespace"]

ODD_KEYS = (
    *(
        "a/b",
        "//",
        "/a/",
        "a//b",
        ".",
        "..",
        "a/./b",
        "../../x",
        "%2F",
        "%25",
        "%",
        "a+b",
        " a ",
        "?",
        "#",
        "a?key=b",
    ),
    *(
        "_",
        "*",
        "[a-z]",
        "a:b",
        ":",
        "a\\b",
        "\\*",
        "é",
        "e\u0301",
        "\U0001f600",
        "שלום",
        "\uffff",
        "key=1&b",
    ),
)
BAD_KEYS = (
    "",
    "a\x00b",
    "a\nb",
    "\x7f",
    "\ud800",
    "x" * (DEPLOYMENT_KEY_BYTES_MAX + 1),
    "é" * (DEPLOYMENT_KEY_BYTES_MAX // 2 + 1),
)
REFUSED_NAMESPACES = ("user_secrets_volatile", "user_volatile_secrets", "a_secrets_secrets_volatile_secrets")


class ObjectStoreContract:
    """Subclasses give the fixtures `store`, `other_store` (another deployment) and `namespace` (fresh, of each tier)."""

    WRITERS: ClassVar[int] = 100

    # --- the rules that clients rely on ---

    @pytest.mark.row("D7")
    def test_an_absent_read_is_a_miss(self, store: ObjectStore, namespace: str) -> None:
        assert store.get(namespace, "k") is None

    @pytest.mark.row("D2", "D3")
    def test_zero_creates_and_gives_a_positive_version(self, store: ObjectStore, namespace: str) -> None:
        version = store.put(namespace, "k", b"one", expected=0)
        assert version > 0
        assert store.get(namespace, "k") == DeploymentValue(b"one", version)

    def test_an_absent_expectation_creates(self, store: ObjectStore, namespace: str) -> None:
        version = store.put(namespace, "k", b"one")
        with pytest.raises(ConflictError) as caught:
            store.put(namespace, "k", b"two")
        assert caught.value.version == version

    def test_zero_over_an_existing_entry_conflicts(self, store: ObjectStore, namespace: str) -> None:
        version = store.put(namespace, "k", b"one", expected=0)
        with pytest.raises(ConflictError) as caught:
            store.put(namespace, "k", b"two", expected=0)
        assert (caught.value.code, caught.value.version) == ("version-conflict", version)
        assert store.get(namespace, "k") == DeploymentValue(b"one", version)

    @pytest.mark.row("D3")
    def test_a_stale_version_conflicts_and_the_current_one_succeeds_and_advances(
        self, store: ObjectStore, namespace: str
    ) -> None:
        first = store.put(namespace, "k", b"one", expected=0)
        second = store.put(namespace, "k", b"two", expected=first)
        assert second > first
        for stale in (first, second + 1, INT64_MAX):
            with pytest.raises(ConflictError) as caught:
                store.put(namespace, "k", b"three", expected=stale)
            assert caught.value.version == second
        third = store.put(namespace, "k", b"three", expected=second)
        assert third > second
        assert store.get(namespace, "k") == DeploymentValue(b"three", third)

    def test_a_version_of_an_absent_entry_conflicts(self, store: ObjectStore, namespace: str) -> None:
        for expected in (1, INT64_MAX):
            with pytest.raises(ConflictError) as caught:
                store.put(namespace, "k", b"one", expected=expected)
            assert caught.value.version is None
        assert store.get(namespace, "k") is None

    def test_deleting_what_is_absent_is_fine_at_any_version(self, store: ObjectStore, namespace: str) -> None:
        for expected in (0, 1, INT64_MAX):
            store.delete(namespace, "k", expected=expected)
        assert store.get(namespace, "k") is None

    def test_a_stale_delete_conflicts_and_removes_nothing(self, store: ObjectStore, namespace: str) -> None:
        first = store.put(namespace, "k", b"one", expected=0)
        second = store.put(namespace, "k", b"two", expected=first)
        with pytest.raises(ConflictError) as caught:
            store.delete(namespace, "k", expected=first)
        assert caught.value.version == second
        assert store.get(namespace, "k") == DeploymentValue(b"two", second)

    def test_a_delete_removes(self, store: ObjectStore, namespace: str) -> None:
        version = store.put(namespace, "a", b"", expected=0)
        store.put(namespace, "b", b"", expected=0)
        store.delete(namespace, "a", expected=version)
        store.delete(namespace, "b")
        assert store.get(namespace, "a") is store.get(namespace, "b") is None

    def test_an_empty_value_is_no_absent_one(self, store: ObjectStore, namespace: str) -> None:
        version = store.put(namespace, "k", b"", expected=0)
        assert store.get(namespace, "k") == DeploymentValue(b"", version)
        with pytest.raises(ConflictError):
            store.put(namespace, "k", b"", expected=0)
        version = store.put(namespace, "k", b"full", expected=version)
        assert store.put(namespace, "k", b"", expected=version) > version
        found = store.get(namespace, "k")
        assert found is not None and found.value == b""

    @pytest.mark.row("D2")
    def test_a_stale_writer_never_wins_over_a_key_that_was_made_again(
        self, store: ObjectStore, namespace: str
    ) -> None:
        given = [1, store.put(namespace, "k", b"one", expected=0)]
        for _ in range(3):
            store.delete(namespace, "k", expected=given[-1])
            given.append(store.put(namespace, "k", b"again", expected=0))
            assert given[-1] > max(given[:-1])
            for stale in given[:-1]:
                with pytest.raises(ConflictError):
                    store.put(namespace, "k", b"stale", expected=stale)
                with pytest.raises(ConflictError):
                    store.delete(namespace, "k", expected=stale)
            assert store.get(namespace, "k") == DeploymentValue(b"again", given[-1])

    def test_a_create_after_a_delete_succeeds_once(self, store: ObjectStore, namespace: str) -> None:
        store.put(namespace, "k", b"one", expected=0)
        store.delete(namespace, "k")
        store.put(namespace, "k", b"two", expected=0)
        with pytest.raises(ConflictError):
            store.put(namespace, "k", b"three", expected=0)

    # --- values and keys ---

    @pytest.mark.row("D4")
    def test_a_value_of_exactly_the_limit_passes_and_a_byte_more_does_not(
        self, store: ObjectStore, namespace: str
    ) -> None:
        value = bytes(range(256)) * (DEPLOYMENT_VALUE_BYTES_MAX // 256)
        version = store.put(namespace, "k", value, expected=0)
        with pytest.raises(InvalidError) as caught:
            store.put(namespace, "k", value + b"x", expected=version)
        assert caught.value.code == "too-large"
        found = store.get(namespace, "k")
        assert found is not None and found.version == version and found.value == value

    @pytest.mark.row("D5")
    def test_odd_keys_are_themselves(self, store: ObjectStore, namespace: str) -> None:
        keys = (*ODD_KEYS, "x" * DEPLOYMENT_KEY_BYTES_MAX)
        versions = {key: store.put(namespace, key, key.encode(), expected=0) for key in keys}
        for key, version in versions.items():
            assert store.get(namespace, key) == DeploymentValue(key.encode(), version)
            assert store.put(namespace, key, b"", expected=version) > version
        for key in keys:
            store.delete(namespace, key)
            assert store.get(namespace, key) is None

    def test_a_bad_key_is_refused_on_every_verb(self, store: ObjectStore, namespace: str) -> None:
        for key in BAD_KEYS:
            for call in (
                lambda key=key: store.get(namespace, key),
                lambda key=key: store.put(namespace, key, b""),
                lambda key=key: store.delete(namespace, key),
            ):
                with pytest.raises(InvalidError) as caught:
                    call()
                assert caught.value.code == "invalid-key", key[:10]

    @pytest.mark.row("D12")
    def test_a_bad_namespace_is_refused_on_every_verb(self, store: ObjectStore) -> None:
        bad = dict.fromkeys(REFUSED_NAMESPACES, "secret-and-volatile")
        bad |= dict.fromkeys(("", "a\x00", "\ud800", "x" * 129), "invalid-namespace")
        for namespace, code in bad.items():
            for call in (
                lambda name=namespace: store.get(name, "k"),
                lambda name=namespace: store.put(name, "k", b""),
                lambda name=namespace: store.delete(name, "k"),
                lambda name=namespace: store.list(name),
            ):
                with pytest.raises(InvalidError) as caught:
                    call()
                assert caught.value.code == code, namespace

    def test_a_malformed_version_is_refused(self, store: ObjectStore, namespace: str) -> None:
        for expected in (-1, INT64_MAX + 1):
            with pytest.raises(InvalidError) as caught:
                store.put(namespace, "k", b"", expected=expected)
            assert caught.value.code == "malformed-version"
            with pytest.raises(InvalidError):
                store.delete(namespace, "k", expected=expected)

    # --- lists ---

    def test_a_list_tells_version_and_size_in_byte_order(self, store: ObjectStore, listed: str) -> None:
        assert store.list(listed).objects == ()
        versions = {key: store.put(listed, key, key.encode(), expected=0) for key in ODD_KEYS}
        page = store.list(listed)
        assert [item.key for item in page.objects] == sorted(ODD_KEYS, key=str.encode)
        assert {item.key: item.version for item in page.objects} == versions
        assert {item.key: item.size for item in page.objects} == {key: len(key.encode()) for key in ODD_KEYS}
        assert all(item.updated_ms > 1_700_000_000_000 for item in page.objects)
        assert page.next_cursor is None

    def test_a_prefix_is_literal(self, store: ObjectStore, listed: str) -> None:
        keys = ("a*b", "a*", "ab", "axb", "a_b", "a%b", "a[b", "a\\b", "a?", "a:b", "b")
        for key in keys:
            store.put(listed, key, b"", expected=0)
        for prefix in ("a*", "a_", "a%", "a[", "a\\", "a?", "a:", "a", "", "c"):
            found = [item.key for item in store.list(listed, prefix=prefix).objects]
            assert found == sorted(key for key in keys if key.startswith(prefix)), prefix

    def test_pages_neither_repeat_nor_lose_a_key_that_stayed(self, store: ObjectStore, listed: str) -> None:
        keys = [f"k{number:02}" for number in range(23)]
        for key in keys:
            store.put(listed, key, b"", expected=0)
        first = store.list(listed, prefix="k", limit=5)
        assert [item.key for item in first.objects] == keys[:5] and first.next_cursor is not None
        store.delete(listed, first.next_cursor)
        store.put(listed, "k00a", b"", expected=0)
        found = [item.key for item in first.objects]
        cursor: str | None = first.next_cursor
        while cursor is not None:
            page = store.list(listed, prefix="k", cursor=cursor, limit=6)
            assert len(page.objects) <= 6
            found += [item.key for item in page.objects]
            cursor = page.next_cursor
        assert found == keys

    def test_a_list_whose_size_is_the_limit_has_no_further_page(
        self, store: ObjectStore, listed: str
    ) -> None:
        for key in "abc":
            store.put(listed, key, b"", expected=0)
        assert store.list(listed, limit=3).next_cursor is None
        assert store.list(listed, limit=2).next_cursor == "b"
        for limit in (0, -1, 1_025):
            with pytest.raises(InvalidError) as caught:
                store.list(listed, limit=limit)
            assert caught.value.code == "malformed-limit"

    @pytest.mark.row("D13")
    def test_secret_namespaces_are_never_listed(self, store: ObjectStore) -> None:
        with pytest.raises(InvalidError) as caught:
            store.list("user_secrets")
        assert caught.value.code == "invalid-namespace"

    # --- apart from each other ---

    @pytest.mark.row("D1")
    def test_deployments_are_apart(
        self, store: ObjectStore, other_store: ObjectStore, namespace: str
    ) -> None:
        version = store.put(namespace, "k", b"mine", expected=0)
        assert other_store.get(namespace, "k") is None
        other = other_store.put(namespace, "k", b"theirs", expected=0)
        other_store.delete(namespace, "k", expected=other)
        assert store.get(namespace, "k") == DeploymentValue(b"mine", version)

    @pytest.mark.row("D20")
    def test_namespaces_are_apart(self, store: ObjectStore, namespace: str) -> None:
        neighbour = f"n{namespace}"
        version = store.put(namespace, "k", b"mine", expected=0)
        assert store.get(neighbour, "k") is None
        store.put(neighbour, "k", b"theirs", expected=0)
        store.delete(neighbour, "k")
        assert store.get(namespace, "k") == DeploymentValue(b"mine", version)

    # --- at the same time ---

    @pytest.mark.row("D18")
    def test_concurrent_writers_have_one_winner_a_version(self, store: ObjectStore, namespace: str) -> None:
        """Each writer adds itself once, however often it loses; no version is given twice, and no win is lost."""
        first = store.put(namespace, "k", b"", expected=0)
        begin = Barrier(self.WRITERS)

        def add(number: int) -> int:
            begin.wait()
            expected, value = first, b""
            while True:
                try:
                    return store.put(namespace, "k", value + b"%d;" % number, expected=expected)
                except ConflictError as conflict:
                    found = store.get(namespace, "k")
                    assert found is not None and conflict.version is not None
                    assert expected < conflict.version <= found.version
                    expected, value = found.version, found.value

        with ThreadPoolExecutor(self.WRITERS) as pool:
            versions = list(pool.map(add, range(self.WRITERS)))
        found = store.get(namespace, "k")
        assert found is not None and found.version == max(versions)
        assert sorted(versions) == list(range(first + 1, first + 1 + self.WRITERS))
        assert sorted(map(int, found.value.split(b";")[:-1])) == list(range(self.WRITERS))

    @pytest.mark.row("D18")
    def test_of_concurrent_creators_one_wins(self, store: ObjectStore, namespace: str) -> None:
        begin = Barrier(self.WRITERS)

        def create(number: int) -> int | None:
            begin.wait()
            try:
                return store.put(namespace, "k", str(number).encode(), expected=0)
            except ConflictError:
                return None

        with ThreadPoolExecutor(self.WRITERS) as pool:
            results = list(pool.map(create, range(self.WRITERS)))
        [winner] = [number for number, version in enumerate(results) if version is not None]
        assert store.get(namespace, "k") == DeploymentValue(str(winner).encode(), results[winner] or 0)


def fresh_namespace(suffix: str) -> str:
    """A namespace that no other test uses, with this suffix."""
    return f"test-{uuid4().hex[:12]}{suffix}"
