"""A world in which orchestrations run: a log and its fold in memory, a clock that is set, and the workers' own code.

```
world = World(registry)
world.start("order-1", "order", {"amount": 5})
world.run()
assert world.instance("order-1").status == "Completed"
```

An appended mutation is folded at once, so every outcome is there when it is asked for. `crash` lets the next append get
lost before or after it reached the log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from kvfold.producers.orchestration.activities import Activities
from kvfold.producers.orchestration.delivery import Messages, Timers
from kvfold.producers.orchestration.execution import RecordedEvent, WaitingMessage
from kvfold.producers.orchestration.observing import Observer
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.store import (
    DueTask,
    OutgoingMessage,
    RunnableInstance,
    message_lease,
    task_lease,
)
from kvfold.producers.orchestration.tracing import Traces
from kvfold.producers.orchestration.turns import Turns
from kvfold.producers.outcomes import Decided
from kvfold.projector.batch import project
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.needs import needs
from kvfold.projector.tables import (
    DecisionRow,
    Execution,
    HistoryEvent,
    InboxMessage,
    Instance,
    KvEntry,
    OutboxMessage,
    Queue,
    Task,
)
from kvfold.schemas.codec import encode
from kvfold.schemas.errors import OutcomeUnknownError
from kvfold.schemas.form import check_form
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.names import orchestration_scope
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.position import Position
from kvfold.schemas.record import Record
from support.mutations import mutation_id

__all__ = ["Crashed", "InlineExecutor", "World"]

START_MS = 1_700_000_000_000


class Crashed(BaseException):
    """The worker died here."""


class InlineExecutor(Executor):
    """Runs what it is given at once, on the same thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs it and gives what came of it."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class World:
    """One partition's log, its projection, and workers over it."""

    def __init__(
        self,
        registry: Registry,
        *,
        live_max: int = 1_000,
        observer: Observer | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.registry = registry
        self.observer = observer or Observer()
        self.traces = traces or Traces()
        self.projection = MemoryStore()
        self.log: list[Record] = []
        self.now_ms = START_MS
        self.live_max = live_max
        self.crash: str | None = None
        self.appended: list[Mutation] = []
        self.leases: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """A worker that knows nothing: its memory and its leases are gone."""
        self.leases.clear()
        self.turns = Turns(
            self.registry,
            self,
            self.append,
            worker="w1",
            observer=self.observer,
            traces=self.traces,
            live_max=self.live_max,
        )
        self.activities = Activities(
            self.registry,
            self,
            self.append,
            client=self,
            executor=InlineExecutor(),
            limit=1_000,
            observer=self.observer,
            traces=self.traces,
        )
        self.timers = Timers(self, self.append, observer=self.observer)
        self.messages = Messages(self, self.append, observer=self.observer, traces=self.traces)

    # --- the log ---

    def append(self, mutation: Mutation) -> Future[Decided]:
        """Appends and folds; the outcome is there at once."""
        crash, self.crash = self.crash, None
        if crash == "before append":
            raise Crashed
        decided = self.fold(mutation)
        if crash == "after append":
            raise Crashed
        future: Future[Decided] = Future()
        if crash == "outcome unknown":
            future.set_exception(
                OutcomeUnknownError(
                    "the answer was lost", mutation_id=decided.mutation_id, position=str(decided.position)
                )
            )
        else:
            future.set_result(decided)
        return future

    def fold(self, mutation: Mutation) -> Decided:
        """Appends and folds one mutation, a millisecond later than the one before."""
        if not mutation.id:
            mutation = replace(mutation, id=mutation_id())
        self.appended.append(mutation)
        new = encode(mutation)
        self.now_ms += 1
        record = Record(0, len(self.log), self.now_ms, new.key, new.headers, new.value)
        self.log.append(record)
        step = (record, check_form(record, 1))
        loaded = self.projection.load(0, needs([step]))
        batch = project([step], loaded, partition=0, offset_next=len(self.log))
        self.projection.commit(batch, epoch=0)
        row = batch.decisions[0]
        assert isinstance(row, DecisionRow)
        decision = Decision(DecisionStatus(row.status), row.code, row.version, row.removed, row.detail)
        return Decided(mutation.id, decision, Position(0, record.offset))

    def send(self, verb: str, instance_id: str, body: Mapping[str, Any]) -> Decision:
        """Appends an orchestration mutation from outside."""
        raw = json.dumps(body).encode()
        scope = orchestration_scope(instance_id)
        return self.fold(Mutation(f"kvfold.orchestration.{verb}.v1", scope, "", body=raw)).decision

    def start(self, instance_id: str, name: str, input: Any = None) -> Decision:
        """Starts an instance."""
        return self.send("started", instance_id, {"name": name, "input": input})

    def raise_event(self, instance_id: str, name: str, data: Any = None) -> Decision:
        """Raises an event."""
        return self.send("event-raised", instance_id, {"name": name, "data": data})

    # --- running ---

    def step(self) -> int:
        """One step of each kind of work; gives how much there was."""
        return (
            self.turns.step(100) + self.activities.step(100) + self.timers.step(100) + self.messages.step(100)
        )

    def run(self, *, steps_max: int = 10_000, replay_always: bool = False) -> None:
        """Works until nothing is left to do; time goes on to the next timer or attempt when that is all that is left."""
        for _ in range(steps_max):
            if replay_always:
                self.restart()
            if self.step() == 0 and not self.skip_time():
                return
        raise AssertionError(f"not at rest after {steps_max} steps")

    def run_with_crashes(self, chance: random.Random, *, share: float = 0.3) -> dict[str, int]:
        """As `run`; the worker dies at appends that are drawn. Gives how often it died where."""
        hits: dict[str, int] = {}
        for _ in range(100_000):
            if chance.random() < share:
                self.crash = chance.choice(["before append", "after append", "outcome unknown"])
            planned = self.crash
            try:
                done = self.step()
            except Crashed:
                done = 1
                self.restart()
            if planned is not None and self.crash is None:
                hits[planned] = hits.get(planned, 0) + 1
            self.crash = None
            if done == 0 and not self.skip_time():
                return hits
        raise AssertionError("not at rest")

    def skip_time(self) -> bool:
        """Goes on to the next time at which something is due; False if nothing is."""
        due = [task.due_ms for task in self._tasks() if task.kind != "child" and task.due_ms > self.now_ms]
        if not due:
            return False
        self.now_ms = min(due)
        return True

    # --- what there is ---

    def instance(self, instance_id: str) -> Instance:
        """The instance's row."""
        scope = orchestration_scope(instance_id)
        rows: list[Instance] = self.rows("orchestration_instance", Instance)
        (row,) = [row for row in rows if row.scope == scope]
        return row

    def output(self, instance_id: str) -> Any:
        """The output of an instance that has completed."""
        row = self.instance(instance_id)
        assert row.status == "Completed", (row.status, row.failure)
        return json.loads(row.output or "null")

    def events(self, instance_id: str) -> list[tuple[int, str, Any]]:
        """Execution, kind and data of every event, in order."""
        return [
            (row.execution_id, row.kind, json.loads(row.data))
            for row in self.rows("orchestration_event", HistoryEvent)
            if row.scope == orchestration_scope(instance_id)
        ]

    def rows(self, table: str, row_class: Any) -> list[Any]:
        """Every row of a table."""
        return [row_class(*row) for row in self.projection.rows(table)]

    # --- InstanceReader ---

    def get_value(self, instance_id: str, key: str) -> str | None:
        """The latest value."""
        return self.snapshot(instance_id).get(key)

    def snapshot(self, instance_id: str) -> Mapping[str, str]:
        """Every key with its value."""
        scope = orchestration_scope(instance_id)
        return {row.key: row.value for row in self.rows("orchestration_kv", KvEntry) if row.scope == scope}

    # --- WorkStore ---

    def runnable(self, names: Collection[str], limit: int) -> Sequence[RunnableInstance]:
        """As the port says."""
        queues = {row.scope: row for row in self.rows("orchestration_queue", Queue) if row.runnable}
        found: list[RunnableInstance] = []
        for row in self.rows("orchestration_instance", Instance):
            queue = queues.get(row.scope)
            if queue is None or row.name not in names or row.scope in self.leases or len(found) == limit:
                continue
            self.leases.add(row.scope)
            found.append(self._runnable(row, queue))
        return found

    def _runnable(self, row: Instance, queue: Queue) -> RunnableInstance:
        (execution,) = [
            found
            for found in self.rows("orchestration_execution", Execution)
            if (found.scope, found.execution_id) == (row.scope, row.execution_id)
        ]
        waiting = [
            WaitingMessage(found.record_offset, found.kind, json.loads(found.data), found.time_ms)
            for found in self.rows("orchestration_inbox", InboxMessage)
            if found.scope == row.scope
        ]
        return RunnableInstance(
            scope=row.scope,
            instance_id=row.scope[2:],
            incarnation=row.incarnation,
            execution_id=row.execution_id,
            history_length=row.history_length,
            name=row.name,
            input=json.loads(execution.input),
            kv=json.loads(execution.kv_seed),
            started_ms=execution.started_ms,
            children=queue.children,
            seen=queue.message_last,
            waiting=tuple(waiting),
        )

    def history(self, instance: RunnableInstance) -> Sequence[RecordedEvent] | None:
        """As the port says."""
        return [
            RecordedEvent(row.event_id, row.kind, json.loads(row.data), row.record_offset, row.time_ms)
            for row in self.rows("orchestration_event", HistoryEvent)
            if (row.scope, row.execution_id) == (instance.scope, instance.execution_id)
        ]

    def due_activities(self, names: Collection[str], limit: int) -> Sequence[DueTask]:
        """As the port says."""
        return self._due(
            [task for task in self._tasks() if task.kind == "activity" and task.name in names], limit
        )

    def due_timers(self, limit: int) -> Sequence[DueTask]:
        """As the port says."""
        return self._due([task for task in self._tasks() if task.kind == "timer"], limit)

    def _due(self, tasks: Sequence[DueTask], limit: int) -> Sequence[DueTask]:
        found = [task for task in tasks if task.due_ms <= self.now_ms and task_lease(task) not in self.leases]
        found = sorted(found, key=lambda task: task.due_ms)[:limit]
        self.leases.update(task_lease(task) for task in found)
        return found

    def _tasks(self) -> list[DueTask]:
        return [
            DueTask(
                row.scope,
                row.scope[2:],
                row.incarnation,
                row.execution_id,
                row.event_id,
                row.kind,
                row.name,
                json.loads(row.data),
                row.attempt,
                row.due_ms,
                row.record_offset,
            )
            for row in self.rows("orchestration_task", Task)
        ]

    def outgoing(self, limit: int) -> Sequence[OutgoingMessage]:
        """As the port says."""
        rows = sorted(
            self.rows("orchestration_outbox", OutboxMessage),
            key=lambda row: (row.scope, row.record_offset, row.event_id),
        )
        found = [
            OutgoingMessage(
                row.scope,
                row.scope[2:],
                row.incarnation,
                row.execution_id,
                row.event_id,
                row.kind,
                row.target,
                json.loads(row.data),
                row.record_offset,
            )
            for row in rows
            if message_lease(row.scope) not in self.leases
        ][:limit]
        self.leases.update(message_lease(message.scope) for message in found)
        return found

    def renew(self, leases: Sequence[str]) -> None:
        """As the port says."""

    def release(self, leases: Sequence[str]) -> None:
        """As the port says."""
        self.leases.difference_update(leases)
