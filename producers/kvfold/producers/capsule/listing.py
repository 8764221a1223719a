"""Listing a whole namespace by one page: the same for every store (row C8)."""

from __future__ import annotations

from kvfold.producers.capsule.errors import TooLarge
from kvfold.producers.capsule.store import PagedKvStore
from kvfold.schemas.limits import CAPSULE_LIST_KEYS_MAX

__all__ = ["WholeListing"]


class WholeListing:
    """The part of a `PagedKvStore` that its pages give."""

    def list_keys(self: PagedKvStore, namespace: str) -> list[str]:
        """See `KvStore`."""
        return self.list_keys_with_prefix(namespace, "")

    def list_keys_with_prefix(self: PagedKvStore, namespace: str, prefix: str) -> list[str]:
        """See `KvStore`."""
        page = self.list_keys_page(namespace, prefix, cursor=None, limit=CAPSULE_LIST_KEYS_MAX)
        if page.next_cursor is not None:
            raise TooLarge(
                f"more than {CAPSULE_LIST_KEYS_MAX} keys match: list them page by page (list_keys_page)"
            )
        return list(page.keys)
