"""What workers find in the projection, as a port. Adapters: `PostgresWorkStore`; a memory one in the tests.

Everything that is found is leased to this worker for a while. A lease only saves work: two workers with the same work
append the same, and the log decides. Leases stand outside the generations and may be lost at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from kvfold.producers.orchestration.execution import RecordedEvent, WaitingMessage
from kvfold.producers.outcomes import Decided
from kvfold.schemas.mutation import Mutation

__all__ = [
    "Append",
    "DueTask",
    "OutgoingMessage",
    "RunnableInstance",
    "WorkStore",
    "message_lease",
    "task_lease",
]

Append = Callable[[Mutation], "Future[Decided]"]
"""Appends a mutation; the future is its outcome. Raises `InvalidError` where it is refused, and nothing was appended."""


@dataclass(frozen=True, slots=True)
class RunnableInstance:
    """An instance that has something to do: its execution as it began, and what waits.

    `history` is asked for apart (`WorkStore.history`): a worker that has the execution in memory needs none of it.
    `seen` is the offset of the newest message that is in `waiting`, or was consumed before.
    """

    scope: str
    instance_id: str
    incarnation: int
    execution_id: int
    history_length: int
    name: str
    input: Any
    kv: Mapping[str, str]
    started_ms: int
    children: int
    seen: int
    waiting: tuple[WaitingMessage, ...]


@dataclass(frozen=True, slots=True)
class DueTask:
    """An activity that may begin now, or a timer whose time has come. `data` is the event that asked for it.

    `record_offset` is that of the turn that asked, or of the failed attempt that this one follows.
    """

    scope: str
    instance_id: str
    incarnation: int
    execution_id: int
    event_id: int
    kind: str
    name: str
    data: Mapping[str, Any]
    attempt: int
    due_ms: int
    record_offset: int


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to another scope; `kind` is `start`, `completed`, `failed` or `delete`.

    `record_offset` is that of the record that sent it.
    """

    scope: str
    instance_id: str
    incarnation: int
    execution_id: int
    event_id: int
    kind: str
    target: str
    data: Mapping[str, Any]
    record_offset: int


class WorkStore(Protocol):
    """One worker's view of the serving generation. Calls raise `StoreUnavailableError` while it is away."""

    def runnable(self, names: Collection[str], limit: int) -> Sequence[RunnableInstance]:
        """Runnable instances of these orchestrations that nobody has leased; leased from now on.

        Those that have waited longest come first.
        """
        ...

    def history(self, instance: RunnableInstance) -> Sequence[RecordedEvent] | None:
        """The history of the instance's execution, exactly `history_length` long; None if it is another one by now."""
        ...

    def due_activities(self, names: Collection[str], limit: int) -> Sequence[DueTask]:
        """Attempts of these activities that are due, those first that have been due longest; leased from now on."""
        ...

    def due_timers(self, limit: int) -> Sequence[DueTask]:
        """Timers that are due, those first that have been due longest; leased from now on."""
        ...

    def outgoing(self, limit: int) -> Sequence[OutgoingMessage]:
        """Messages that are not delivered: of each sender the first ones in order; leased from now on."""
        ...

    def renew(self, leases: Sequence[str]) -> None:
        """Keeps leases for another while; those that were lost stay lost."""
        ...

    def release(self, leases: Sequence[str]) -> None:
        """Gives leases back. An instance's lease is its scope."""
        ...


def task_lease(task: DueTask) -> str:
    """The lease of a task: another attempt is another lease."""
    return f"t\n{task.scope}\n{task.incarnation}\n{task.execution_id}\n{task.event_id}\n{task.attempt}"


def message_lease(scope: str) -> str:
    """The lease of a sender's outbox: one worker delivers it at a time, so that order is kept."""
    return f"m\n{scope}"
