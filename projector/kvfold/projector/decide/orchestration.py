"""Decisions about orchestration instances (000, "Size limits", "Pruning behavior"; rows O12 to O14, O16, O17)."""

from __future__ import annotations

from collections.abc import Iterable

from kvfold.projector.decide.state import OrchestrationState
from kvfold.schemas.bodies import (
    Body,
    Event,
    ExecutionsPrunedV2,
    InstanceDeleted,
    KeyValueCleared,
    KeyValuesCleared,
    KeyValueSet,
    OrchestrationEvents,
    Started,
)
from kvfold.schemas.form import Formed, rejected
from kvfold.schemas.limits import ORCHESTRATION_KV_KEYS_MAX, ORCHESTRATION_KV_VALUE_BYTES_MAX
from kvfold.schemas.names import utf8_length
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = ["decide_orchestration", "pruned_executions"]


def decide_orchestration(formed: Formed, state: OrchestrationState) -> Decision:
    """The outcome of a valid orchestration mutation against its instance's state."""
    body = formed.body
    if isinstance(body, Started):
        if state.instance is not None:
            return _conflict("already-exists")
        return Decision(DecisionStatus.APPLIED)
    if state.instance is None:
        return _conflict("unknown-instance")
    match body:
        case OrchestrationEvents():
            return _decide_events(body, state)
        case ExecutionsPrunedV2():
            current = state.instance.execution_id
            if current < body.before or current in body.execution_ids:
                return _conflict("current-execution")
            removed = len(pruned_executions(body, state.executions))
            return Decision(DecisionStatus.APPLIED, removed=removed)
        case InstanceDeleted():
            if body.incarnation not in (None, state.instance.incarnation):
                return _conflict("wrong-incarnation")
            return Decision(DecisionStatus.APPLIED, removed=1)
        case Body() | None:
            raise AssertionError(f"no decision for {formed.mutation.type}")


def pruned_executions(body: ExecutionsPrunedV2, executions: Iterable[int]) -> frozenset[int]:
    """Which of these executions the record means."""
    named = frozenset(body.execution_ids)
    return frozenset(number for number in executions if number < body.before or number in named)


def _decide_events(body: OrchestrationEvents, state: OrchestrationState) -> Decision:
    instance = state.instance
    assert instance is not None
    if instance.mode != "external":
        return _conflict("wrong-mode")
    if body.incarnation not in (None, instance.incarnation):
        return _conflict("wrong-incarnation")
    if instance.status != "Running":
        return _conflict("finished")
    if body.execution_id != instance.execution_id:
        return _conflict("wrong-execution")
    return _limits(body.events, state) or Decision(DecisionStatus.APPLIED)


def _limits(events: tuple[Event, ...], state: OrchestrationState) -> Decision | None:
    """Row O17: the key count at the end of the record, checked first; then every value that was set in it."""
    keys = set(state.kv)
    for event in events:
        match event:
            case KeyValueSet():
                keys.add(event.key)
            case KeyValueCleared():
                keys.discard(event.key)
            case KeyValuesCleared():
                keys.clear()
            case _:
                pass
    if len(keys) > ORCHESTRATION_KV_KEYS_MAX:
        return rejected("limit", f"KV key count ({len(keys)}) exceeds limit ({ORCHESTRATION_KV_KEYS_MAX})")
    for event in events:
        if isinstance(event, KeyValueSet):
            size = utf8_length(event.value)
            if size > ORCHESTRATION_KV_VALUE_BYTES_MAX:
                limit = ORCHESTRATION_KV_VALUE_BYTES_MAX
                detail = f"KV value for key '{event.key}' ({size} bytes) exceeds limit ({limit} bytes)"
                return rejected("limit", detail)
    return None


def _conflict(code: str) -> Decision:
    return Decision(DecisionStatus.CONFLICT, code)
