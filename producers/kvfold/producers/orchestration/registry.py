"""What an application registers: orchestrations and activities by name.

```
registry = Registry()

@registry.orchestration
async def order(ctx, input):
    ctx.set_value("state", "charging")
    return await ctx.schedule_activity("charge", input["amount"])

@registry.activity
def charge(ctx, amount):
    return {"charged": amount}
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kvfold.producers.orchestration.context import GET_VALUE_ACTIVITY, GET_VALUES_ACTIVITY
from kvfold.producers.orchestration.execution import OrchestrationFunction
from kvfold.producers.orchestration.system_activities import get_value, get_values
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.names import check_orchestration_name

__all__ = ["ActivityFunction", "Registry"]

ActivityFunction = Callable[[Any, Any], Any]
"""A function or coroutine function of an `ActivityContext` and the input; gives a JSON value."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Registry:
    """Orchestrations and activities by name; the system activities are in it from the start."""

    def __init__(self) -> None:
        self.orchestrations: dict[str, OrchestrationFunction] = {}
        self.activities: dict[str, ActivityFunction] = {
            GET_VALUE_ACTIVITY: get_value,
            GET_VALUES_ACTIVITY: get_values,
        }

    def orchestration(self, function: _F, *, name: str | None = None) -> _F:
        """Registers an `async def` under its own name or another.

        Raises:
            InvalidError: the name is taken, or no name.
        """
        self._put(self.orchestrations, name or function.__name__, function)
        return function

    def activity(self, function: _F, *, name: str | None = None) -> _F:
        """Registers a function or an `async def` under its own name or another; raises as `orchestration`."""
        self._put(self.activities, name or function.__name__, function)
        return function

    def _put(self, table: dict[str, Any], name: str, function: Any) -> None:
        problem = check_orchestration_name("the name", name)
        if problem is not None:
            raise InvalidError(problem, code="malformed-name")
        if name in table:
            raise InvalidError(f"{name!r} is registered already", code="already-registered")
        table[name] = function
