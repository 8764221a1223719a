"""The events of one record, applied in order to an instance: a turn's, or those of an `external` instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvfold.projector.changes import Changes
from kvfold.projector.decide.state import OrchestrationState, Place
from kvfold.projector.tables import (
    Child,
    Execution,
    HistoryEvent,
    Instance,
    KvEntry,
    OutboxMessage,
    Row,
    Task,
)
from kvfold.schemas.form import Formed
from kvfold.schemas.names import orchestration_scope
from kvfold.schemas.orchestration import (
    ActivityScheduled,
    ChildScheduled,
    CustomStatusUpdated,
    Event,
    KeyValueCleared,
    KeyValuesCleared,
    KeyValueSet,
    OrchestrationCompleted,
    OrchestrationContinuedAsNew,
    OrchestrationFailed,
    TimerCreated,
    Turn,
    TurnEvent,
    TurnFailed,
)
from kvfold.schemas.strict_json import decode_json, encode_json

__all__ = ["HistoryFold"]


@dataclass(slots=True)
class HistoryFold:
    """One record's events. Mutable while it runs; what it gives is a value."""

    formed: Formed
    state: OrchestrationState
    place: Place
    worker: str
    events: Sequence[Event | TurnEvent]
    turn: Turn | None = None
    _kv: dict[str, KvEntry] = field(default_factory=dict)
    _instance_changes: dict[str, Any] = field(default_factory=dict)
    _execution_end: dict[str, Any] | None = None
    _next_input: str | None = None
    _puts: list[tuple[str, Row]] = field(default_factory=list)
    _tasks: list[Task] = field(default_factory=list)
    _children: int = 0

    def changes(self) -> Changes:
        """What the record changes."""
        instance = self.state.instance
        assert instance is not None and instance.status == "Running"
        assert instance.mode == ("external" if self.turn is None else "runtime")
        self._kv = dict(self.state.kv)
        consumed = () if self.turn is None else self.turn.consumed
        first = instance.history_length + len(consumed) + 1
        for number, event in enumerate(self.events, first):
            self._apply(event, number, instance)
        changes: dict[str, Any] = {
            "worker": self.worker,
            "history_length": instance.history_length + len(consumed) + len(self.events),
            "updated_ms": self.place.time_ms,
            "updated_at": self.place.offset,
        }
        updated = instance._replace(**(changes | self._instance_changes))
        puts: list[tuple[str, Row]] = [("orchestration_instance", updated)]
        puts += [
            ("orchestration_kv", row)
            for key, row in sorted(self._kv.items())
            if self.state.kv.get(key) is not row
        ]
        gone = sorted(set(self.state.kv) - set(self._kv))
        removals: list[tuple[str, Row]] = [("orchestration_kv", (instance.scope, key)) for key in gone]
        if self.turn is not None:
            removals += [("orchestration_inbox", (instance.scope, offset)) for offset in consumed]
            puts += self._tasks_and_queue(self.turn)
        return Changes(
            puts=tuple(puts + self._executions(instance) + self._puts),
            removals=tuple(removals),
            additions=tuple(("orchestration_event", row) for row in self._history(instance)),
            sweeps=self._sweeps(),
        )

    def _apply(self, event: Event | TurnEvent, number: int, instance: Instance) -> None:
        match event:
            case KeyValueSet():
                self._kv[event.key] = KvEntry(
                    instance.scope,
                    event.key,
                    event.value,
                    instance.execution_id,
                    self.formed.mutation.actor,
                    self.place.offset,
                    self.place.time_ms,
                )
            case KeyValueCleared():
                self._kv.pop(event.key, None)
            case KeyValuesCleared():
                self._kv.clear()
            case CustomStatusUpdated():
                self._instance_changes["custom_status"] = event.status
            case ActivityScheduled():
                self._await(instance, number, "activity", event.name, event, self.place.time_ms)
            case TimerCreated():
                self._await(instance, number, "timer", "", event, event.due_ms)
            case ChildScheduled():
                self._await(instance, number, "child", event.name, event, self.place.time_ms)
                self._start_child(instance, number, event)
            case OrchestrationCompleted():
                output = encode_json(event.output).decode()
                self._end(status="Completed", output=output)
                self._tell_parent(instance, number, "completed", {"output": event.output})
            case OrchestrationFailed() | TurnFailed():
                self._end(status="Failed", failure=event.error)
                self._tell_parent(instance, number, "failed", {"error": event.error})
            case OrchestrationContinuedAsNew():
                self._next_input = encode_json(event.input).decode()
                self._execution_end = {"status": "ContinuedAsNew"}
                self._instance_changes |= {
                    "execution_id": instance.execution_id + 1,
                    "input": self._next_input,
                    "history_length": 0,
                }

    def _await(
        self, instance: Instance, number: int, kind: str, name: str, event: TurnEvent, due_ms: int
    ) -> None:
        self._tasks.append(
            Task(
                scope=instance.scope,
                execution_id=instance.execution_id,
                event_id=number,
                incarnation=instance.incarnation,
                kind=kind,
                name=name,
                data=encode_json(event.model_dump()).decode(),
                attempt=1,
                due_ms=due_ms,
                scheduled_ms=self.place.time_ms,
                record_offset=self.place.offset,
            )
        )

    def _start_child(self, instance: Instance, number: int, event: ChildScheduled) -> None:
        target = orchestration_scope(event.instance_id)
        self._children += 1
        self._puts.append(
            ("orchestration_child", Child(instance.scope, instance.execution_id, number, target))
        )
        self._send(instance, number, "start", target, {"name": event.name, "input": event.input})

    def _tell_parent(self, instance: Instance, number: int, kind: str, data: dict[str, Any]) -> None:
        queue = self.state.queue
        if queue is not None and queue.parent is not None:
            parent = decode_json(queue.parent.encode())
            target = orchestration_scope(parent["instance_id"])
            answer = {name: parent[name] for name in ("incarnation", "execution_id", "event_id")}
            self._send(instance, number, kind, target, answer | data)

    def _send(self, instance: Instance, number: int, kind: str, target: str, data: dict[str, Any]) -> None:
        message = OutboxMessage(
            scope=instance.scope,
            incarnation=instance.incarnation,
            execution_id=instance.execution_id,
            event_id=number,
            kind=kind,
            target=target,
            data=encode_json(data).decode(),
            record_offset=self.place.offset,
            time_ms=self.place.time_ms,
        )
        self._puts.append(("orchestration_outbox", message))

    def _end(self, **changes: Any) -> None:
        self._execution_end = changes
        self._instance_changes |= changes

    def _tasks_and_queue(self, turn: Turn) -> list[tuple[str, Row]]:
        """What is awaited now, none of it after the execution's end; and whether the instance can go on at once."""
        queue = self.state.queue
        assert queue is not None
        consumed = [self.state.inbox[offset] for offset in turn.consumed]
        waiting = queue.events_waiting - sum(1 for message in consumed if message.kind == "EventRaised")
        runnable = queue.message_last > turn.seen or self._next_input is not None
        if self._has_ended():
            runnable, waiting = False, 0
        updated = queue._replace(
            runnable=runnable, events_waiting=waiting, children=queue.children + self._children
        )
        rows: list[tuple[str, Row]] = [("orchestration_queue", updated)]
        if self._execution_end is None:
            rows += [("orchestration_task", task) for task in self._tasks]
        return rows

    def _has_ended(self) -> bool:
        return self._execution_end is not None and self._next_input is None

    def _sweeps(self) -> tuple[str, ...]:
        """An execution's end drops what it awaits; the instance's end also what waits for it."""
        if self.turn is None or self._execution_end is None:
            return ()
        return ("orchestration_task", "orchestration_inbox") if self._has_ended() else ("orchestration_task",)

    def _executions(self, instance: Instance) -> list[tuple[str, Row]]:
        """Rows of the execution that ended and of the one that began, where the record's last event says so."""
        if self._execution_end is None:
            return []
        current = self.state.execution
        assert current is not None and current.execution_id == instance.execution_id
        ended = current._replace(ended_ms=self.place.time_ms, **self._execution_end)
        rows: list[tuple[str, Row]] = [("orchestration_execution", ended)]
        if self._next_input is not None:
            # The seed of execution n+1 is what is live after its continue-as-new.
            seed = encode_json({key: row.value for key, row in self._kv.items()}).decode()
            begun = Execution(
                current.scope,
                current.execution_id + 1,
                "Running",
                self._next_input,
                None,
                None,
                seed,
                self.place.time_ms,
                None,
            )
            rows.append(("orchestration_execution", begun))
        return rows

    def _history(self, instance: Instance) -> list[HistoryEvent]:
        """First what the turn consumed, each with its own time, then what it did."""
        happened: list[tuple[str, str, int]] = []
        if self.turn is not None:
            consumed = (self.state.inbox[offset] for offset in self.turn.consumed)
            happened += [(message.kind, message.data, message.time_ms) for message in consumed]
        happened += [
            (event.kind, encode_json(event.model_dump()).decode(), self.place.time_ms)
            for event in self.events
        ]
        return [
            HistoryEvent(
                instance.scope,
                instance.execution_id,
                instance.history_length + number,
                kind,
                data,
                self.place.offset,
                time_ms,
            )
            for number, (kind, data, time_ms) in enumerate(happened, 1)
        ]
