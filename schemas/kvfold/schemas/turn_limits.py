"""The limits of what one run of an orchestration did (000, "Size limits"; rows O17, O18), for the worker and the fold.

The worker judges a turn before it appends it, the fold again. Each function gives the first offence, whose text is
what the instance fails with; None if there is none. Part of format level 1: they never change for turns in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvfold.schemas.limits import (
    ORCHESTRATION_CHILDREN_MAX,
    ORCHESTRATION_DATA_BYTES_MAX,
    ORCHESTRATION_ERROR_BYTES_MAX,
    ORCHESTRATION_HISTORY_EVENTS_MAX,
    ORCHESTRATION_KV_KEYS_MAX,
    ORCHESTRATION_KV_VALUE_BYTES_MAX,
    ORCHESTRATION_STATUS_BYTES_MAX,
)
from kvfold.schemas.names import check_orchestration_name, utf8_length
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
    TimerCreated,
    Turn,
    TurnEvent,
    TurnFailed,
)
from kvfold.schemas.strict_json import encode_json

__all__ = [
    "KeyCountExceeded",
    "ValueTooLarge",
    "data_problem",
    "error_problem",
    "fitting_error",
    "key_value_violation",
    "turn_problem",
]


@dataclass(frozen=True, slots=True)
class KeyCountExceeded:
    """An instance would have more keys than it may."""

    key_count: int

    def __str__(self) -> str:
        return f"KV key count ({self.key_count}) exceeds limit ({ORCHESTRATION_KV_KEYS_MAX})"


@dataclass(frozen=True, slots=True)
class ValueTooLarge:
    """A value has more bytes than it may."""

    key: str
    value_bytes: int

    def __str__(self) -> str:
        limit = ORCHESTRATION_KV_VALUE_BYTES_MAX
        return f"KV value for key '{self.key}' ({self.value_bytes} bytes) exceeds limit ({limit} bytes)"


def key_value_violation(
    events: Sequence[Event | TurnEvent], keys: Iterable[str]
) -> KeyCountExceeded | ValueTooLarge | None:
    """Row O17: the key count of the whole instance at the end, checked first; then every value that was set.

    `keys` are the instance's before.
    """
    live = set(keys)
    for event in events:
        match event:
            case KeyValueSet():
                live.add(event.key)
            case KeyValueCleared():
                live.discard(event.key)
            case KeyValuesCleared():
                live.clear()
            case _:
                pass
    if len(live) > ORCHESTRATION_KV_KEYS_MAX:
        return KeyCountExceeded(len(live))
    for event in events:
        if isinstance(event, KeyValueSet):
            size = utf8_length(event.value)
            if size > ORCHESTRATION_KV_VALUE_BYTES_MAX:
                return ValueTooLarge(event.key, size)
    return None


def turn_problem(turn: Turn, keys: Iterable[str], *, children: int) -> str | None:
    """Every limit of a turn: keys and values, then sizes and names in order, then children and the history's length.

    `keys` are the instance's before the turn, `children` how many children it has asked for before.
    """
    violation = key_value_violation(turn.events, keys)
    if violation is not None:
        return str(violation)
    for event in turn.events:
        problem = _event_problem(event)
        if problem is not None:
            return problem
    children += sum(1 for event in turn.events if isinstance(event, ChildScheduled))
    if children > ORCHESTRATION_CHILDREN_MAX:
        return f"child count ({children}) exceeds limit ({ORCHESTRATION_CHILDREN_MAX})"
    length = turn.history_length + len(turn.consumed) + len(turn.events)
    if length > ORCHESTRATION_HISTORY_EVENTS_MAX and not _ends_execution(turn):
        return f"history length ({length}) exceeds limit ({ORCHESTRATION_HISTORY_EVENTS_MAX} events)"
    return None


def data_problem(what: str, data: Any) -> str | None:
    """The size of a JSON value, as it is stored."""
    return _size_problem(what, len(encode_json(data)), ORCHESTRATION_DATA_BYTES_MAX)


def error_problem(text: str) -> str | None:
    """The size of an error's text."""
    return _size_problem("error", utf8_length(text), ORCHESTRATION_ERROR_BYTES_MAX)


def fitting_error(text: str) -> str:
    """As much of an error's text as is accepted: NUL and what has no UTF-8 form are replaced, the end is cut off."""
    raw = text.replace("\x00", "\ufffd").encode("utf-8", "replace")
    return raw[:ORCHESTRATION_ERROR_BYTES_MAX].decode("utf-8", "ignore")


def _event_problem(event: TurnEvent) -> str | None:
    match event:
        case CustomStatusUpdated():
            size = 0 if event.status is None else utf8_length(event.status)
            return _size_problem("custom status", size, ORCHESTRATION_STATUS_BYTES_MAX)
        case ActivityScheduled():
            return check_orchestration_name("the activity's name", event.name) or data_problem(
                "activity input", event.input
            )
        case ChildScheduled():
            return (
                check_orchestration_name("the child's id", event.instance_id)
                or check_orchestration_name("the child's name", event.name)
                or data_problem("child input", event.input)
            )
        case OrchestrationCompleted():
            return data_problem("output", event.output)
        case OrchestrationContinuedAsNew():
            return data_problem("input", event.input)
        case TurnFailed():
            return error_problem(event.error)
        case TimerCreated() | KeyValueSet() | KeyValueCleared() | KeyValuesCleared():
            return None


def _ends_execution(turn: Turn) -> bool:
    return bool(turn.events) and isinstance(
        turn.events[-1], OrchestrationCompleted | TurnFailed | OrchestrationContinuedAsNew
    )


def _size_problem(what: str, size: int, limit: int) -> str | None:
    return None if size <= limit else f"{what} ({size} bytes) exceeds limit ({limit} bytes)"
