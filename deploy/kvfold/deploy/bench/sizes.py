"""How much each bench does: the full run ends within five minutes, the quick one within a minute and a half."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["FULL", "QUICK", "Sizes", "Tell"]

Tell = Callable[[str], None]
"""Takes a line about what is going on."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of one run; `_rounds` are how often figure and floor are measured in turn."""

    projector_mutations: int
    projector_rounds: int
    writes: int
    write_rounds: int
    read_keys: int
    reads: int
    read_rounds: int
    orchestrations: int
    orchestration_rounds: int


FULL: Final = Sizes(
    projector_mutations=60_000,
    projector_rounds=5,
    writes=300,
    write_rounds=5,
    read_keys=20_000,
    reads=20_000,
    read_rounds=5,
    orchestrations=2_000,
    orchestration_rounds=3,
)
QUICK: Final = Sizes(
    projector_mutations=20_000,
    projector_rounds=2,
    writes=100,
    write_rounds=2,
    read_keys=4_000,
    reads=4_000,
    read_rounds=2,
    orchestrations=400,
    orchestration_rounds=2,
)
