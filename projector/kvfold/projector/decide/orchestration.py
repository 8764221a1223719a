"""Decisions about orchestration instances (000, "Size limits", "Pruning behavior"; rows O12 to O18, O27)."""

from __future__ import annotations

from collections.abc import Iterable

from kvfold.projector.decide.state import OrchestrationState
from kvfold.projector.tables import Instance
from kvfold.schemas.body import Body
from kvfold.schemas.form import Formed, rejected
from kvfold.schemas.limits import ORCHESTRATION_EVENTS_WAITING_MAX
from kvfold.schemas.orchestration import (
    ActivityCompleted,
    ActivityFailed,
    CancelRequested,
    ChildCompleted,
    ChildFailed,
    Delivered,
    EventRaised,
    ExecutionsPrunedV2,
    InstanceDeleted,
    Message,
    OrchestrationEvents,
    Parent,
    Started,
    TimerFired,
    Turn,
)
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.strict_json import encode_json
from kvfold.schemas.turn_limits import key_value_violation, turn_problem

__all__ = ["decide_orchestration", "parent_text", "pruned_executions"]

_APPLIED = Decision(DecisionStatus.APPLIED)


def decide_orchestration(formed: Formed, state: OrchestrationState) -> Decision:
    """The outcome of a valid orchestration mutation against its instance's state."""
    body, instance = formed.body, state.instance
    if isinstance(body, Started):
        return _decide_start(body, state)
    if isinstance(body, Delivered):
        return _conflict("not-pending") if state.outgoing is None else _APPLIED
    if instance is None:
        return _conflict("unknown-instance")
    match body:
        case Turn():
            return _decide_turn(body, instance, state)
        case OrchestrationEvents():
            return _decide_events(body, instance, state)
        case ExecutionsPrunedV2():
            if instance.execution_id < body.before or instance.execution_id in body.execution_ids:
                return _conflict("current-execution")
            removed = len(pruned_executions(body, state.executions))
            return Decision(DecisionStatus.APPLIED, removed=removed)
        case InstanceDeleted():
            return _decide_deletion(body, instance, state)
        case _ if isinstance(body, Message):
            return _decide_message(body, instance, state)
        case Body() | None:
            raise AssertionError(f"no decision for {formed.mutation.type}")


def pruned_executions(body: ExecutionsPrunedV2, executions: Iterable[int]) -> frozenset[int]:
    """Which of these executions the record means."""
    named = frozenset(body.execution_ids)
    return frozenset(number for number in executions if number < body.before or number in named)


def parent_text(parent: Parent | None) -> str | None:
    """A parent as it is kept and compared: canonical JSON."""
    return None if parent is None else encode_json(parent.model_dump()).decode()


def _decide_start(body: Started, state: OrchestrationState) -> Decision:
    if state.instance is None:
        return _APPLIED
    # The same parent's event again, beyond the window of mutation ids: it has had its effect.
    parent = parent_text(body.parent)
    if parent is not None and state.queue is not None and state.queue.parent == parent:
        return _APPLIED
    return _conflict("already-exists")


def _decide_deletion(body: InstanceDeleted, instance: Instance, state: OrchestrationState) -> Decision:
    if body.incarnation not in (None, instance.incarnation):
        return _conflict("wrong-incarnation")
    if body.parent is not None and (state.queue is None or state.queue.parent != parent_text(body.parent)):
        return _conflict("wrong-parent")
    return Decision(DecisionStatus.APPLIED, removed=1)


def _decide_events(body: OrchestrationEvents, instance: Instance, state: OrchestrationState) -> Decision:
    if instance.mode != "external":
        return _conflict("wrong-mode")
    problem = _current(instance, body.incarnation, body.execution_id)
    if problem is not None:
        return problem
    violation = key_value_violation(body.events, state.kv)
    return _APPLIED if violation is None else rejected("limit", str(violation))


def _decide_turn(body: Turn, instance: Instance, state: OrchestrationState) -> Decision:
    """A turn that is current and over a limit is `rejected limit`, and fails its instance (row O18)."""
    if instance.mode != "runtime":
        return _conflict("wrong-mode")
    problem = _current(instance, body.incarnation, body.execution_id)
    if problem is not None:
        return problem
    if body.history_length != instance.history_length:
        return _conflict("stale-turn")
    if any(offset not in state.inbox for offset in body.consumed):
        return _conflict("unknown-message")
    assert state.queue is not None, "a runtime instance has a queue"
    detail = turn_problem(body, state.kv, children=state.queue.children)
    return _APPLIED if detail is None else rejected("limit", detail)


def _decide_message(body: Message, instance: Instance, state: OrchestrationState) -> Decision:
    if instance.mode != "runtime":
        return _conflict("wrong-mode")
    incarnation = None if isinstance(body, EventRaised) else body.incarnation
    execution_id = None if isinstance(body, EventRaised) else body.execution_id
    problem = _current(instance, incarnation, execution_id)
    if problem is not None:
        return problem
    assert state.queue is not None, "a runtime instance has a queue"
    match body:
        case EventRaised():
            if state.queue.events_waiting >= ORCHESTRATION_EVENTS_WAITING_MAX:
                detail = (
                    f"{ORCHESTRATION_EVENTS_WAITING_MAX} raised events wait already: no more are accepted"
                )
                return rejected("limit", detail)
            return _APPLIED
        case CancelRequested():
            return _APPLIED
        case ActivityCompleted() | ActivityFailed():
            task = state.task
            pending = task is not None and task.kind == "activity" and task.attempt == body.attempt
        case TimerFired():
            pending = state.task is not None and state.task.kind == "timer"
            if pending and state.task is not None and state.now_ms < state.task.due_ms:
                return _conflict("early")
        case ChildCompleted() | ChildFailed():
            pending = state.task is not None and state.task.kind == "child"
    return _APPLIED if pending else _conflict("not-pending")


def _current(instance: Instance, incarnation: int | None, execution_id: int | None) -> Decision | None:
    """The conflict of a mutation that means another incarnation or execution, or an instance that has ended."""
    if incarnation not in (None, instance.incarnation):
        return _conflict("wrong-incarnation")
    if instance.status != "Running":
        return _conflict("finished")
    if execution_id not in (None, instance.execution_id):
        return _conflict("wrong-execution")
    return None


def _conflict(code: str) -> Decision:
    return Decision(DecisionStatus.CONFLICT, code)
