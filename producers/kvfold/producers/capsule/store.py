"""`KvStore`: the nine operations under every capsule (002, "The KvStore Trait"; row C3), and pages beside them."""

from __future__ import annotations

from typing import Protocol

from kvfold.reads.capsule import KeyPage

__all__ = ["KeyPage", "KvStore", "PagedKvStore"]


class KvStore(Protocol):
    """Keys and bytes in namespaces `{principal}:capsule:{capsule_id}`. Safe for several threads.

    Every call looks at its arguments before anything else, the namespace first, then key or prefix, then the value, and
    raises `InvalidKey` or `TooLarge` with nothing changed: the rules are those of the log's door (rows C1, C6, C7).
    Every call may raise `Unavailable`, and `Unknown` for what no other code names.
    """

    def get(self, namespace: str, key: str) -> bytes | None:
        """The value; None if the key is missing, which an empty value is not."""
        ...

    def set(self, namespace: str, key: str, value: bytes) -> None:
        """Sets a key whatever it holds. Raises `Quota`; shrinking is always allowed."""
        ...

    def delete(self, namespace: str, key: str) -> bool:
        """Removes a key; False if there was none."""
        ...

    def exists(self, namespace: str, key: str) -> bool:
        """Whether the key is there, also with an empty value."""
        ...

    def list_keys(self, namespace: str) -> list[str]:
        """Every key in byte order. Raises `TooLarge` above 1,024 of them."""
        ...

    def list_keys_with_prefix(self, namespace: str, prefix: str) -> list[str]:
        """Every key that starts with `prefix` (empty: all), in byte order. Raises `TooLarge` above 1,024 of them."""
        ...

    def compare_and_swap(self, namespace: str, key: str, expected: bytes | None, new: bytes) -> bool:
        """Sets a key iff it holds exactly `expected` (None: iff it is missing). False for a lost race, never retried.

        Raises `Quota` where the condition holds and the value would pass the quota.
        """
        ...

    def clear_namespace(self, namespace: str) -> int:
        """Removes every key, all at once; gives how many there were."""
        ...

    def clear_prefix(self, namespace: str, prefix: str) -> int:
        """Removes every key that starts with `prefix` (empty: all), all at once; gives how many there were."""
        ...


class PagedKvStore(KvStore, Protocol):
    """A store that also lists by pages: what a `CapsuleHost` needs, and what every store of kvfold is."""

    def list_keys_page(self, namespace: str, prefix: str, *, cursor: str | None, limit: int) -> KeyPage:
        """Up to `limit` (1 to 1,024) keys that start with `prefix`, in byte order, after `cursor` (row C9).

        The cursor is the last key of the page before, so writes between pages neither repeat nor lose a key that
        stayed.
        """
        ...
