"""Earlier executions are pruned under a running one: its replay reads what it read before (row O14)."""

from __future__ import annotations

from typing import Any

import pytest

from kvfold.producers.orchestration.context import OrchestrationContext
from kvfold.producers.orchestration.registry import Registry
from support.orchestration_world import World

__all__: list[str] = []


@pytest.mark.row("O14")
@pytest.mark.parametrize("keep_values", [False, True])
def test_a_prune_changes_nothing_for_the_replay_of_a_running_execution(keep_values: bool) -> None:
    registry = Registry()

    async def main(ctx: OrchestrationContext, execution: int) -> Any:
        seen = [ctx.get_value("early")]
        if execution == 1:
            ctx.set_value("early", "from execution 1")
            ctx.continue_as_new(2)
        await ctx.wait_for_event("pruned")
        seen.append(ctx.get_value("early"))
        return seen

    registry.orchestration(main)
    world = World(registry)
    world.start("i", "main", 1)
    world.run()
    assert (world.instance("i").execution_id, world.instance("i").status) == (2, "Running")
    pruned = {"execution_ids": [1], "keep_values": keep_values}
    assert world.send("executions-pruned", "i", pruned).removed == 1
    assert world.snapshot("i") == ({"early": "from execution 1"} if keep_values else {})
    world.raise_event("i", "pruned")
    world.run(replay_always=True)
    assert world.output("i") == ["from execution 1", "from execution 1"]
    assert {execution for execution, _, _ in world.events("i")} == {2}
