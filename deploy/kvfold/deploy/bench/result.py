"""What a bench gives: pure functions over rounds of figure and floor.

Figure and floor of a round are measured right after each other, so that a machine that is busy for a while slows both;
the ratio is the median of the rounds' ratios, not the ratio of the medians.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Result", "Round", "Spec", "in_series"]


@dataclass(frozen=True, slots=True)
class Spec:
    """A bench: its name, the unit of figure and floor, and the ratio figure / floor that is wanted.

    `more_is_better` says whether the target is the least that is good enough, or the most.
    """

    name: str
    unit: str
    target: float
    more_is_better: bool

    def target_text(self) -> str:
        """For people: `>= 0.60`."""
        return f"{'>=' if self.more_is_better else '<='} {self.target:.2f}"


@dataclass(frozen=True, slots=True)
class Round:
    """One figure with the floor measured beside it, both in the bench's unit and above zero."""

    figure: float
    floor: float

    @property
    def ratio(self) -> float:
        """Figure over floor."""
        return self.figure / self.floor


@dataclass(frozen=True, slots=True)
class Result:
    """A bench's outcome: medians over its rounds."""

    spec: Spec
    figure: float
    floor: float
    ratio: float

    @classmethod
    def of(cls, spec: Spec, rounds: Sequence[Round]) -> Result:
        """The medians of at least one round."""
        return cls(
            spec,
            figure=median(round_.figure for round_ in rounds),
            floor=median(round_.floor for round_ in rounds),
            ratio=median(round_.ratio for round_ in rounds),
        )

    def meets_target(self) -> bool:
        """Whether the ratio is good enough; equal is."""
        if self.spec.more_is_better:
            return self.ratio >= self.spec.target
        return self.ratio <= self.spec.target

    def line(self) -> dict[str, str | float]:
        """The object that `--json` prints (contract, "Commands")."""
        return {
            "bench": self.spec.name,
            "figure": round(self.figure, 3),
            "unit": self.spec.unit,
            "floor": round(self.floor, 3),
            "ratio": round(self.ratio, 3),
            "target": self.spec.target,
        }


def in_series(*rates: float) -> float:
    """The rate of steps that each take their turn on every item: 20,000/s and 20,000/s in series are 10,000/s."""
    return 1 / sum(1 / rate for rate in rates)
