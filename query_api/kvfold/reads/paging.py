"""Keyset paging: where a page begins and ends in byte order, and what the next one goes on from.

A page is read live. Its cursor is the last key that was given, so deleting that key, or writing others around it,
neither repeats nor loses a key that stayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kvfold.reads.as_of import VISITED_MAX
from kvfold.reads.query import Rows
from kvfold.schemas.limits import DEPLOYMENT_KEY_BYTES_MAX
from kvfold.schemas.names import prefix_range_end

__all__ = ["page_range", "past_page"]

_ABOVE_ALL_KEYS: Final = "\U0010ffff" * (DEPLOYMENT_KEY_BYTES_MAX // 4 + 1)
"""Above every key in byte order: longer than any key can be, of the highest character there is."""


def page_range(prefix: str, cursor: str | None) -> tuple[str, str]:
    """The keys of a page: from the first text up to, not including, the second.

    A bound for "after the cursor" is the cursor with U+0001 behind it, the smallest text above it: NUL is in no key.

    Example: prefix `a`, cursor `ab` gives `("ab\\x01", "b")`.
    """
    start = prefix if cursor is None else max(prefix, cursor + "\x01")
    return start, prefix_range_end(prefix) or _ABOVE_ALL_KEYS


def past_page(rows: Rows, limit: int) -> tuple[Sequence[tuple[Any, ...]], str | None]:
    """The rows of a page of the past, and its cursor.

    `rows` are of a walk over keys: column 2 is the key, column 3 None where it was not there then, the last column how
    many keys were looked at. The walk ends after `limit + 1` that were there, or after `VISITED_MAX`.
    """
    found = [row for row in rows if row[2] is not None and row[3] is not None]
    if len(found) > limit:
        return found[:limit], found[limit - 1][2]
    last = rows[-1]
    is_cut = last[2] is not None and last[-1] >= VISITED_MAX
    return found, last[2] if is_cut else None
