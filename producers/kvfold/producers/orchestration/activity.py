"""Activities: the part of an orchestration that touches the world. Tried at least once, at the times that the log says."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvfold.producers.orchestration.store import DueTask
from kvfold.schemas.errors import InvalidError, KvfoldError
from kvfold.schemas.orchestration import ActivityCompleted, ActivityFailed
from kvfold.schemas.strict_json import decode_json, encode_json
from kvfold.schemas.turn_limits import data_problem, fitting_error

__all__ = ["ActivityContext", "InstanceReader", "PermanentError", "run_activity"]


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

    @property
    def stopping(self) -> bool:
        """The worker is to stop: an activity that can end early, and fail, should. It is tried again elsewhere."""
        return self._stopping.is_set()


def run_activity(
    function: Any, task: DueTask, client: InstanceReader, stopping: threading.Event
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
    )
    attempt_ms = task.data.get("attempt_ms")
    try:
        result = function(context, task.data.get("input"))
        if inspect.isawaitable(result):
            result = asyncio.run(_within(result, attempt_ms))
        data = decode_json(encode_json(result))
    except TimeoutError:
        return failed(task, f"the attempt took longer than {attempt_ms} ms")
    except PermanentError as error:
        return failed(task, str(error), retryable=False)
    except (InvalidError, TypeError) as error:
        return failed(task, f"{type(error).__name__}: {error}", retryable=not isinstance(error, InvalidError))
    except Exception as error:
        text = str(error) if isinstance(error, KvfoldError) or str(error) else type(error).__name__
        return failed(task, text)
    problem = data_problem("activity result", data)
    if problem is not None:
        return failed(task, problem, retryable=False)
    return ActivityCompleted.model_construct(**_place(task), result=data)


def failed(task: DueTask, error: str, *, retryable: bool = True) -> ActivityFailed:
    """The failure of an attempt, with as much of its text as fits."""
    return ActivityFailed.model_construct(**_place(task), error=fitting_error(error), retryable=retryable)


async def _within(awaitable: Any, attempt_ms: int | None) -> Any:
    return await asyncio.wait_for(awaitable, None if attempt_ms is None else attempt_ms / 1000)


def _place(task: DueTask) -> dict[str, Any]:
    return {
        "incarnation": task.incarnation,
        "execution_id": task.execution_id,
        "event_id": task.event_id,
        "attempt": task.attempt,
    }
