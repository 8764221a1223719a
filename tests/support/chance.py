"""A source of chance that is the same on every Python: SplitMix64, behind the interface of `random.Random`."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

__all__ = ["Chance"]

_MASK = (1 << 64) - 1
_T = TypeVar("_T")


class Chance(Random):
    """Draws from a seed. Only the methods below are used, so nothing depends on the standard library's algorithms."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._state = seed & _MASK

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """An integer from `start` up to, not including, `stop`; one argument is `stop`."""
        low, high = (0, start) if stop is None else (start, stop)
        assert step == 1 and high > low
        return low + self._next() % (high - low)

    def choice(self, seq: Sequence[_T]) -> _T:  # type: ignore[override]
        """One of the sequence's items."""
        return seq[self.randrange(len(seq))]

    def one_in(self, number: int) -> bool:
        """True once in `number` times on average."""
        return self.randrange(number) == 0
