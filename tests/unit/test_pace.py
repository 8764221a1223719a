"""The pace of a replay: even slices, and nothing saved up."""

from __future__ import annotations

import pytest

from kvfold.projector.pace import Pace


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_spent_is_waited_for() -> None:
    clock = Clock()
    pace = Pace(100.0, clock=clock)
    assert pace.spend(50) == pytest.approx(0.5)
    clock.now += 0.5
    assert pace.spend(25) == pytest.approx(0.25)
    # Not waited for: the debt grows.
    assert pace.spend(25) == pytest.approx(0.5)


def test_what_was_not_used_is_not_saved_up() -> None:
    clock = Clock()
    pace = Pace(100.0, clock=clock)
    clock.now += 3_600.0
    assert pace.spend(50) == pytest.approx(0.5)


@pytest.mark.parametrize(("rate", "records"), [(1.0, 1), (3.0, 1), (100.0, 25), (1e9, 250_000_000)])
def test_a_slice_is_a_quarter_of_a_second(rate: float, records: int) -> None:
    assert Pace(rate).slice_records == records
