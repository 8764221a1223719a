"""The simulation over its seeds. A failing seed is repeated with: pytest tests/simulation -k "seed-17"."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation.faults import Fault
from simulation.world import World

__all__: list[str] = []

SEEDS = 200
_GROUP = 20


@pytest.mark.row("X2")
@pytest.mark.row("X3")
@pytest.mark.parametrize("begin", range(0, SEEDS, _GROUP), ids=lambda begin: f"seeds-{begin}")
def test_every_seed_ends_as_the_log_says(begin: int) -> None:
    for seed in range(begin, begin + _GROUP):
        try:
            World(seed).run()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def test_every_fault_happens() -> None:
    """A fault that never strikes proves nothing."""
    happened: Counter[Fault] = Counter()
    for seed in range(20):
        world = World(seed)
        world.run()
        happened += world.faults
    assert {fault for fault in Fault if happened[fault] < 3} == set(), happened


def test_a_seed_is_one_run() -> None:
    one, two = World(3), World(3)
    one.run()
    two.run()
    assert one.server.commits == two.server.commits
    assert one.faults == two.faults
    assert one.server.store.shared.tables == two.server.store.shared.tables
