"""The application of the orchestration benches: 5 values are set and 2 activities run, one after the other."""

from __future__ import annotations

from typing import Any

from kvfold.producers.orchestration.activity import ActivityContext
from kvfold.producers.orchestration.context import OrchestrationContext
from kvfold.producers.orchestration.registry import Registry

__all__ = ["registry"]

registry = Registry()


@registry.orchestration
async def work(ctx: OrchestrationContext, input: Any) -> Any:
    """Three turns: two of them end with an activity."""
    ctx.set_value("state", "first")
    ctx.set_value("input", str(input))
    first = await ctx.schedule_activity("step", input)
    ctx.set_value("state", "second")
    ctx.set_value("first", str(first))
    second = await ctx.schedule_activity("step", first)
    ctx.set_value("state", "done")
    return second


@registry.activity
def step(_: ActivityContext, input: int) -> int:
    """As good as nothing: what is measured is what kvfold adds."""
    return input + 1
