"""A limit on how fast records are folded, so that a replay leaves a serving system its share of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["Pace"]

_SLICES_A_SECOND: Final = 4


class Pace:
    """At most so many records a second, in even slices of a quarter of a second. Belongs to one thread."""

    def __init__(self, records_per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        assert records_per_second > 0
        self._rate = records_per_second
        self._clock = clock
        self._free_at = clock()

    @property
    def slice_records(self) -> int:
        """How many records to take at once: at least one."""
        return max(1, int(self._rate / _SLICES_A_SECOND))

    def spend(self, records: int) -> float:
        """Takes note of records that are folded now; gives the seconds to wait before the next ones."""
        now = self._clock()
        # What was not used is not saved up: after a stall the rate stays what it is.
        self._free_at = max(self._free_at, now) + records / self._rate
        return self._free_at - now
