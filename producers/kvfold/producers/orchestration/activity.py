"""Activities: the part of an orchestration that touches the world. Tried at least once, at the times that the log says."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvfold.producers.orchestration.store import DueTask
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.orchestration import ActivityCompleted, ActivityFailed
from kvfold.schemas.strict_json import decode_json, encode_json
from kvfold.schemas.turn_limits import data_problem, fitting_error

__all__ = ["ActivityContext", "InstanceReader", "PermanentError", "failed", "run_activity"]


class PermanentError(Exception):
    """Raised by an activity that would only fail again: no further attempt is made."""


class InstanceReader(Protocol):
    """The part of `OrchestrationClient` that activities read with (row O25): ordinary reads, which leave no event."""

    def get_value(self, instance_id: str, key: str) -> str | None:
        """The latest value; None if the instance or the key is unknown."""
        ...

    def snapshot(self, instance_id: str) -> Mapping[str, str]:
        """Every key with its value; empty if the instance is unknown."""
        ...


@dataclass(frozen=True)
class ActivityContext:
    """What an activity knows of itself. `attempt` counts from 1; the four ids and it make a key for idempotency."""

    instance_id: str
    incarnation: int
    execution_id: int
    event_id: int
    name: str
    attempt: int
    client: InstanceReader
    _stopping: threading.Event = field(default_factory=threading.Event)
    _beat: Callable[[], None] = lambda: None

    @property
    def stopping(self) -> bool:
        """The worker is to stop: an activity that can end early, and fail, should. It is tried again elsewhere."""
        return self._stopping.is_set()

    def heartbeat(self) -> None:
        """A sign of life: an attempt with a `heartbeat_timeout` that is silent for longer has failed."""
        self._beat()


def run_activity(
    function: Any,
    task: DueTask,
    client: InstanceReader,
    stopping: threading.Event,
    beat: Callable[[], None] = lambda: None,
) -> ActivityCompleted | ActivityFailed:
    """Runs one attempt, and says how it ended. Never raises on what the function does."""
    context = ActivityContext(
        task.instance_id,
        task.incarnation,
        task.execution_id,
        task.event_id,
        task.name,
        task.attempt,
        client,
        stopping,
        beat,
    )
    try:
        result = function(context, task.data.get("input"))
        if inspect.isawaitable(result):
            result = asyncio.run(_within(result, task.data.get("attempt_ms")))
        data = decode_json(encode_json(result))
    except PermanentError as error:
        return failed(task, str(error), retryable=False)
    except (InvalidError, TypeError) as error:
        return failed(task, f"{type(error).__name__}: {error}", retryable=not isinstance(error, InvalidError))
    except BaseException as error:  # also what would end the thread: SystemExit, a cancelled task
        return failed(task, str(error) or type(error).__name__)
    problem = data_problem("activity result", data)
    if problem is not None:
        return failed(task, problem, retryable=False)
    return ActivityCompleted.model_construct(**_place(task), result=data)


def failed(task: DueTask, error: str, *, retryable: bool = True) -> ActivityFailed:
    """The failure of an attempt, with as much of its text as fits."""
    return ActivityFailed.model_construct(**_place(task), error=fitting_error(error), retryable=retryable)


async def _within(awaitable: Awaitable[Any], attempt_ms: int | None) -> Any:
    """Cancels the coroutine when its time is over; a time-out of its own is its own failure."""
    limit = asyncio.timeout(None if attempt_ms is None else attempt_ms / 1000)
    try:
        async with limit:
            return await awaitable
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"the attempt took longer than {attempt_ms} ms") from error
        raise


def _place(task: DueTask) -> dict[str, Any]:
    return {
        "incarnation": task.incarnation,
        "execution_id": task.execution_id,
        "event_id": task.event_id,
        "attempt": task.attempt,
    }
