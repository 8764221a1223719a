"""Positions and their text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import INT64_MAX
from kvfold.schemas.position import Position, format_positions, parse_positions

__all__: list[str] = []

_positions = st.builds(Position, st.integers(0, 999_999), st.integers(-1, INT64_MAX))


@given(_positions)
def test_the_text_round_trips(position: Position) -> None:
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "3", "3:", ":1", "-1:0", "3:-2", "+3:1", "3:+1", " 3:1", "3:1 ", "03:1", "3:01", "3:1:2"),
        *("3:-0", "3:1\n", "٣:1", "3:1e3", "1000000:0", f"0:{INT64_MAX + 1}", "0:" + "9" * 5_000, "\ud800"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        Position.parse(text)
    assert caught.value.code == "malformed-position"
    assert str(caught.value).isascii()


@given(st.text(max_size=12))
def test_parsing_is_total(text: str) -> None:
    with contextlib.suppress(InvalidError):
        assert str(Position.parse(text)) == text


@given(st.dictionaries(st.integers(0, 999_999), st.integers(-1, INT64_MAX), min_size=1))
def test_lists_are_sorted_and_round_trip(positions: dict[int, int]) -> None:
    text = format_positions(positions)
    assert parse_positions(text) == positions
    assert [int(part.split(":")[0]) for part in text.split(",")] == sorted(positions)


def test_lists_by_example() -> None:
    assert format_positions({3: 1042, 0: 12}) == "0:12,3:1042"
    assert format_positions([Position(3, 1042), Position(0, 12)]) == "0:12,3:1042"
    assert parse_positions("3:1042, 0:12") == {0: 12, 3: 1042}


@pytest.mark.parametrize(
    "text", ["", ",", "0:1,", "0:1,0:2", "0:1;1:2", ",".join(f"{n}:0" for n in range(10_001))]
)
def test_lists_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        parse_positions(text)


def test_positions_compare_in_one_partition_by_offset() -> None:
    assert Position(1, 9) < Position(1, 10) < Position(2, 0)
