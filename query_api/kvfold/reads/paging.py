"""Keyset paging: where a page begins and ends in byte order, and what the next one goes on from.

A page is read live. Its cursor is the last key that was given, so deleting that key, or writing others around it,
neither repeats nor loses a key that stayed.
"""

from __future__ import annotations

from typing import Final

from kvfold.schemas.limits import DEPLOYMENT_KEY_BYTES_MAX
from kvfold.schemas.names import prefix_range_end

__all__ = ["page_range"]

_ABOVE_ALL_KEYS: Final = "\U0010ffff" * (DEPLOYMENT_KEY_BYTES_MAX // 4 + 1)
"""Above every key in byte order: longer than any key can be, of the highest character there is."""


def page_range(prefix: str, cursor: str | None) -> tuple[str, str]:
    """The keys of a page: from the first text up to, not including, the second.

    A bound for "after the cursor" is the cursor with U+0001 behind it, the smallest text above it: NUL is in no key.

    Example: prefix `a`, cursor `ab` gives `("ab\\x01", "b")`.
    """
    start = prefix if cursor is None else max(prefix, cursor + "\x01")
    return start, prefix_range_end(prefix) or _ABOVE_ALL_KEYS
