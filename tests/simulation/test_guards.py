"""With any single guard taken away, the simulation finds it: the proof that the checkers see something."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.guards import GUARDS, Guard, found_by
from simulation.test_simulation import SEEDS
from simulation.world import World

__all__: list[str] = []

_README = Path(__file__).parent / "README.md"


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name.replace(" ", "-"))
def test_a_missing_guard_is_found(guard: Guard) -> None:
    assert guard.seed < SEEDS
    with pytest.raises((AssertionError, KeyError)) as caught:
        guard.world(guard.seed).run()
    assert found_by(caught.value) == guard.found_by, caught.value
    # With the guard in its place the same world is sound.
    World(guard.seed).run()


def test_the_table_in_the_readme_is_this_one() -> None:
    lines = _README.read_text("utf-8").splitlines()
    table = lines[lines.index("| guard taken away | found by | seed |") + 2 :]
    assert table == [f"| {guard.name} | {guard.found_by} | {guard.seed} |" for guard in GUARDS]
