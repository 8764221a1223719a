"""The JSON bodies of orchestration mutations, and the events that they hold.

Two kinds of instance write history. An `external` one appends `orchestration.events`. A `runtime` one is run by
kvfold's workers, which append turns; whatever reaches it from outside (completions, timers, raised events, a cancel)
is a message that waits in its inbox until a turn consumes it. A turn names what it consumed by inbox offset and never
repeats its data: the fold makes the history event from the message.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field

from kvfold.schemas.body import EVENTS_MAX, Body, Count, Number

__all__ = [
    "EVENT_KINDS",
    "MESSAGE_KINDS",
    "TURN_EVENT_KINDS",
    "ActivityCompleted",
    "ActivityFailed",
    "ActivityScheduled",
    "Answer",
    "CancelRequested",
    "ChildCompleted",
    "ChildFailed",
    "ChildScheduled",
    "CustomStatusUpdated",
    "Delivered",
    "Event",
    "EventRaised",
    "ExecutionsPruned",
    "ExecutionsPrunedV2",
    "FailureReason",
    "InstanceDeleted",
    "KeyValueCleared",
    "KeyValueSet",
    "KeyValuesCleared",
    "Message",
    "OrchestrationCompleted",
    "OrchestrationContinuedAsNew",
    "OrchestrationEvents",
    "OrchestrationFailed",
    "Parent",
    "RetryPolicy",
    "Started",
    "TimerCreated",
    "TimerFired",
    "Turn",
    "TurnEvent",
    "TurnFailed",
]

_Milliseconds = Annotated[int, Field(ge=1, le=10 * 365 * 24 * 3_600_000)]


class Parent(Body):
    """The history event (of the parent) that asked for a child orchestration."""

    instance_id: str
    incarnation: Count
    execution_id: Number
    event_id: Number


class Started(Body):
    """`orchestration.started`: makes an instance. `input` is any JSON value.

    `runtime` instances are run by kvfold's workers; `external` ones belong to a service with an orchestrator of its own
    and accept `orchestration.events`.
    """

    name: str
    input: Any = None
    mode: Literal["runtime", "external"] = "runtime"
    parent: Parent | None = None


class KeyValueSet(Body):
    """A key was set (row O1); recorded even where the value is unchanged."""

    kind: Literal["KeyValueSet"]
    key: str
    value: str


class KeyValueCleared(Body):
    """A key was removed (row O5); recorded even where it was absent."""

    kind: Literal["KeyValueCleared"]
    key: str


class KeyValuesCleared(Body):
    """Every key of the instance was removed (row O6)."""

    kind: Literal["KeyValuesCleared"]


class CustomStatusUpdated(Body):
    """The instance's custom status is now this text; null clears it."""

    kind: Literal["CustomStatusUpdated"]
    status: str | None


class OrchestrationCompleted(Body):
    """The instance ended well. Ends the record's list."""

    kind: Literal["OrchestrationCompleted"]
    output: Any = None


class OrchestrationFailed(Body):
    """The instance ended with an error. Ends the record's list."""

    kind: Literal["OrchestrationFailed"]
    error: str


class OrchestrationContinuedAsNew(Body):
    """The execution ended and the next one begins with this input (row O13). Ends the record's list."""

    kind: Literal["OrchestrationContinuedAsNew"]
    input: Any = None


Event = Annotated[
    KeyValueSet
    | KeyValueCleared
    | KeyValuesCleared
    | CustomStatusUpdated
    | OrchestrationCompleted
    | OrchestrationFailed
    | OrchestrationContinuedAsNew,
    Field(discriminator="kind"),
]
EVENT_KINDS: Final = frozenset(
    {
        "KeyValueSet",
        "KeyValueCleared",
        "KeyValuesCleared",
        "CustomStatusUpdated",
        "OrchestrationCompleted",
        "OrchestrationFailed",
        "OrchestrationContinuedAsNew",
    }
)
"""Inner event kinds of `orchestration.events` at format level 1."""


class OrchestrationEvents(Body):
    """`orchestration.events`: what an `external` instance did, in order; all of it applies or nothing."""

    execution_id: Number
    incarnation: Count | None = None
    events: Annotated[tuple[Event, ...], Field(min_length=1, max_length=EVENTS_MAX, strict=False)]


class RetryPolicy(Body):
    """How often an activity is tried, and how long it waits in between.

    The wait before attempt n + 1 is `delay_ms * factor ** (n - 1)`, at most `delay_ms_max`. No attempt is due later
    than `total_ms` after the activity was scheduled, where that is given. The fold computes all of it.
    """

    attempts_max: Annotated[int, Field(ge=1, le=1_000)]
    delay_ms: Annotated[int, Field(ge=0, le=24 * 3_600_000)] = 0
    factor: Annotated[int, Field(ge=1, le=100)] = 1
    delay_ms_max: Annotated[int, Field(ge=0, le=30 * 24 * 3_600_000)] = 24 * 3_600_000
    total_ms: _Milliseconds | None = None


class ActivityScheduled(Body):
    """The turn asks for an activity. `attempt_ms` bounds one attempt, `heartbeat_ms` the silence of a running one."""

    kind: Literal["ActivityScheduled"]
    name: str
    input: Any = None
    retry: RetryPolicy | None = None
    attempt_ms: _Milliseconds | None = None
    heartbeat_ms: _Milliseconds | None = None


class TimerCreated(Body):
    """The turn asks to be woken when effective time has reached `due_ms` (since 1970)."""

    kind: Literal["TimerCreated"]
    due_ms: Count


class ChildScheduled(Body):
    """The turn asks for a child orchestration."""

    kind: Literal["ChildScheduled"]
    instance_id: str
    name: str
    input: Any = None


FailureReason = Literal["application", "cancelled", "limit", "nondeterminism"]
"""Whose failure it is: of the code, of who cancelled it, of the limits, of code that changed under its history."""


class TurnFailed(Body):
    """A `runtime` instance ended with an error. `reason` says whose it is. Ends the turn's list."""

    kind: Literal["OrchestrationFailed"]
    error: str
    reason: FailureReason = "application"


TurnEvent = Annotated[
    KeyValueSet
    | KeyValueCleared
    | KeyValuesCleared
    | CustomStatusUpdated
    | ActivityScheduled
    | TimerCreated
    | ChildScheduled
    | OrchestrationCompleted
    | TurnFailed
    | OrchestrationContinuedAsNew,
    Field(discriminator="kind"),
]
TURN_EVENT_KINDS: Final = EVENT_KINDS | {"ActivityScheduled", "TimerCreated", "ChildScheduled"}
"""Inner event kinds of `orchestration.turn` at format level 1."""


class Turn(Body):
    """`orchestration.turn`: what one run of an orchestration function did; all of it applies or nothing.

    - `incarnation`, `execution_id`, `history_length`: the precondition; a turn that ran against another history is a
      conflict, which is how the log decides who executes an instance.
    - `consumed`: inbox offsets in the order in which the code was given them; they precede `events` in the history.
    - `seen`: the offset of the newest message that was there when the turn ran; a newer one calls for another turn.
    - The history number of `events[i]` is `history_length + len(consumed) + i + 1`.
    """

    incarnation: Count
    execution_id: Number
    history_length: Count
    worker: str
    seen: Count
    consumed: Annotated[tuple[Count, ...], Field(max_length=EVENTS_MAX, strict=False)] = ()
    events: Annotated[tuple[TurnEvent, ...], Field(max_length=EVENTS_MAX, strict=False)] = ()


class Answer(Body):
    """What answers something that a turn asked for: `event_id` is the history number of the event that asked."""

    incarnation: Count
    execution_id: Number
    event_id: Number


class ActivityCompleted(Answer):
    """`orchestration.activity-completed`: refused unless that attempt is pending."""

    attempt: Number
    result: Any = None


class ActivityFailed(Answer):
    """`orchestration.activity-failed`: another attempt is due if the policy has one left and it is `retryable`."""

    attempt: Number
    error: str
    retryable: bool = True


class TimerFired(Answer):
    """`orchestration.timer-fired`: `early` unless effective time has reached the timer's."""


class ChildCompleted(Answer):
    """`orchestration.child-completed`, in the parent's scope."""

    output: Any = None


class ChildFailed(Answer):
    """`orchestration.child-failed`, in the parent's scope: the child failed, or could not be started."""

    error: str


class EventRaised(Body):
    """`orchestration.event-raised`: waits in the inbox until the code waits for an event of this name."""

    name: str
    data: Any = None


class CancelRequested(Body):
    """`orchestration.cancel-requested`: of this incarnation and execution, or, without them, of the current ones."""

    incarnation: Count | None = None
    execution_id: Number | None = None
    reason: str = ""


class Delivered(Body):
    """`orchestration.delivered`, in the sender's scope: the message has had its effect and leaves the outbox."""

    incarnation: Count
    execution_id: Number
    event_id: Number
    kind: Literal["start", "completed", "failed", "delete"]


class ExecutionsPruned(Body):
    """`orchestration.executions-pruned`: exactly these executions; with `keep_values` their keys stay (row O14)."""

    execution_ids: Annotated[tuple[Number, ...], Field(min_length=1, max_length=EVENTS_MAX, strict=False)]
    keep_values: bool = False


class ExecutionsPrunedV2(Body):
    """`orchestration.executions-pruned`, version 2: also every execution below `before`, without naming each."""

    before: Number
    execution_ids: Annotated[tuple[Number, ...], Field(max_length=EVENTS_MAX, strict=False)] = ()
    keep_values: bool = False


class InstanceDeleted(Body):
    """`orchestration.instance-deleted`: only that incarnation, only that parent's child, where they are given."""

    incarnation: Count | None = None
    parent: Parent | None = None


Message = (
    ActivityCompleted
    | ActivityFailed
    | TimerFired
    | ChildCompleted
    | ChildFailed
    | EventRaised
    | CancelRequested
)
"""What waits in an inbox."""
MESSAGE_KINDS: Final = frozenset(model.__name__ for model in get_args(Message))
"""The kinds of the history events that messages become."""
