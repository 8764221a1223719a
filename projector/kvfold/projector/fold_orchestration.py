"""The fold of orchestrations: instances, their history and keys, and the messages between them. Pure, as `fold`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvfold.projector.changes import Changes, RangeRemoval
from kvfold.projector.decide.orchestration import parent_text, pruned_executions
from kvfold.projector.decide.state import OrchestrationState, Place
from kvfold.projector.fold_history import HistoryFold
from kvfold.projector.tables import (
    Execution,
    InboxMessage,
    Instance,
    KvEntry,
    OutboxMessage,
    Queue,
    Row,
    Task,
)
from kvfold.schemas.form import Formed
from kvfold.schemas.orchestration import (
    ActivityFailed,
    Delivered,
    EventRaised,
    ExecutionsPrunedV2,
    InstanceDeleted,
    Message,
    OrchestrationEvents,
    RetryPolicy,
    Started,
    Turn,
    TurnFailed,
)
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.strict_json import decode_json, encode_json

__all__ = ["fold_orchestration"]

_OF_INSTANCE: Final = (
    "orchestration_event",
    "orchestration_execution",
    "orchestration_kv",
    "orchestration_queue",
    "orchestration_inbox",
    "orchestration_task",
    "orchestration_child",
    "orchestration_instance",
)


def fold_orchestration(
    state: OrchestrationState, formed: Formed, decision: Decision, place: Place
) -> Changes:
    """The changes of an orchestration mutation that has an effect."""
    scope, body = formed.mutation.scope, formed.body
    match body:
        case Started():
            return Changes() if state.instance is not None else _start(formed, body, place)
        case Turn():
            if decision.status is DecisionStatus.REJECTED:
                body = _failing(body, decision)
            return HistoryFold(formed, state, place, body.worker, body.events, turn=body).changes()
        case OrchestrationEvents():
            worker = formed.mutation.actor or formed.mutation.source
            return HistoryFold(formed, state, place, worker, body.events).changes()
        case ExecutionsPrunedV2():
            pruned = tuple(sorted(pruned_executions(body, state.executions)))
            rows = ("orchestration_event", "orchestration_execution")
            ranges = tuple(RangeRemoval(table, scope, execution_ids=pruned) for table in rows if pruned)
            # Keys go by what the record means, also of executions whose rows went before (row O14).
            stale = () if body.keep_values else _written_by(state.kv, body)
            return Changes(removals=tuple(("orchestration_kv", (scope, key)) for key in stale), ranges=ranges)
        case InstanceDeleted():
            return _delete(state, place)
        case Delivered():
            assert state.outgoing is not None
            return Changes(removals=(("orchestration_outbox", state.outgoing[:5]),))
        case _ if isinstance(body, Message):
            return _receive(body, state, place)
        case _:
            raise AssertionError(f"no fold for {formed.mutation.type}")


def _failing(turn: Turn, decision: Decision) -> Turn:
    """What is kept of a current turn over a limit: what it consumed, and the failure with the rejection's text."""
    assert decision.detail is not None
    failed = TurnFailed(kind="OrchestrationFailed", error=decision.detail, reason="limit")
    return turn.model_copy(update={"events": (failed,)})


def _written_by(kv: Mapping[str, KvEntry], body: ExecutionsPrunedV2) -> tuple[str, ...]:
    writers = pruned_executions(body, {row.execution_id for row in kv.values()})
    return tuple(sorted(key for key, row in kv.items() if row.execution_id in writers))


def _start(formed: Formed, body: Started, place: Place) -> Changes:
    mutation = formed.mutation
    text = encode_json(body.input).decode()
    instance = Instance(
        scope=mutation.scope,
        incarnation=place.offset,
        execution_id=1,
        mode=body.mode,
        name=body.name,
        status="Running",
        input=text,
        output=None,
        failure=None,
        custom_status=None,
        worker=None,
        history_length=0,
        created_ms=place.time_ms,
        updated_ms=place.time_ms,
        updated_at=place.offset,
    )
    execution = Execution(mutation.scope, 1, "Running", text, None, None, "{}", place.time_ms, None)
    puts: list[tuple[str, Row]] = [
        ("orchestration_instance", instance),
        ("orchestration_execution", execution),
    ]
    if body.mode == "runtime":
        queue = Queue(mutation.scope, True, place.offset, 0, 0, parent_text(body.parent))
        puts.append(("orchestration_queue", queue))
    return Changes(puts=tuple(puts))


def _delete(state: OrchestrationState, place: Place) -> Changes:
    """Everything of the instance goes; its children follow by messages, which outlive it (row O16)."""
    instance = state.instance
    assert instance is not None
    cascade = tuple(
        (
            "orchestration_outbox",
            OutboxMessage(
                instance.scope,
                instance.incarnation,
                child.execution_id,
                child.event_id,
                "delete",
                child.child,
                "{}",
                place.offset,
                place.time_ms,
            ),
        )
        for child in state.children
    )
    return Changes(puts=cascade, ranges=tuple(RangeRemoval(table, instance.scope) for table in _OF_INSTANCE))


def _receive(body: Message, state: OrchestrationState, place: Place) -> Changes:
    """A message enters the inbox, and what it answers is no longer awaited; or a failed activity is tried again."""
    queue, instance = state.queue, state.instance
    assert queue is not None and instance is not None
    if isinstance(body, ActivityFailed):
        assert state.task is not None
        again = _next_attempt(state.task, body, place)
        if again is not None:
            return Changes(puts=(("orchestration_task", again),))
    raised = 1 if isinstance(body, EventRaised) else 0
    kind, data = _history_event(body)
    message = InboxMessage(instance.scope, place.offset, kind, data, place.time_ms)
    updated = queue._replace(
        runnable=True, message_last=place.offset, events_waiting=queue.events_waiting + raised
    )
    answered = state.task
    return Changes(
        puts=(("orchestration_inbox", message), ("orchestration_queue", updated)),
        removals=() if answered is None else (("orchestration_task", answered[:3]),),
    )


def _next_attempt(task: Task, failed: ActivityFailed, place: Place) -> Task | None:
    """The task's next attempt, if its policy has one left and it is due in time."""
    retry = decode_json(task.data.encode())["retry"]
    if retry is None or not failed.retryable:
        return None
    policy = RetryPolicy.model_validate(retry)
    if task.attempt >= policy.attempts_max:
        return None
    delay_ms = min(policy.delay_ms * policy.factor ** (task.attempt - 1), policy.delay_ms_max)
    due_ms = place.time_ms + delay_ms
    if policy.total_ms is not None and due_ms > task.scheduled_ms + policy.total_ms:
        return None
    return task._replace(attempt=task.attempt + 1, due_ms=due_ms, record_offset=place.offset)


def _history_event(body: Message) -> tuple[str, str]:
    """Kind and canonical JSON of the history event that a message becomes when a turn consumes it."""
    kind = type(body).__name__
    data = body.model_dump(exclude={"incarnation", "execution_id"})
    return kind, encode_json({"kind": kind} | data).decode()
