"""Pages as ranges of bytes (kine#562): `_` and `%` are themselves, and a cursor need not exist."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvfold.reads.paging import page_range

KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)


def in_page(key: str, prefix: str, cursor: str | None) -> bool:
    start, end = (bound.encode() for bound in page_range(prefix, cursor))
    return start <= key.encode() < end


@given(KEYS, KEYS, st.none() | KEYS)
def test_a_page_holds_just_what_begins_with_the_prefix_and_follows_the_cursor(
    key: str, prefix: str, cursor: str | None
) -> None:
    expected = key.startswith(prefix) and (cursor is None or key.encode() > cursor.encode())
    assert in_page(key, prefix, cursor) == expected


def test_the_highest_keys() -> None:
    assert in_page("\U0010ffff" * 256, "", None)
    assert in_page("\U0010ffff" * 256, "\U0010ffff", "\U0010ffff")
