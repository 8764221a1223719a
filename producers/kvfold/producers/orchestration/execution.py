"""One execution of an orchestration function: the stepper, the replay against its history, and the next turn.

A turn is a group of history events that one record wrote: first the messages that were given to the code, in the order
in which they were given, then what the code did. `replay` gives the recorded messages to the code again and compares
what it does with what it did; `run` gives it the messages that wait, and says what it did. Both step the same way:

```
resume the code until it awaits something that is not done
give it the next message: a recorded one, or the first waiting one that it can take
```

So a second run takes the same path as the first. The code is driven by hand: there is no event loop, and awaiting
anything that the context did not give is an error that says so. Pure but for what the observer does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from kvfold.producers.orchestration.context import OrchestrationContext
from kvfold.producers.orchestration.errors import (
    ActivityError,
    ChildError,
    ContinueAsNewSignal,
    ForeignAwaitError,
    NondeterminismError,
    OrchestrationCancelledError,
)
from kvfold.producers.orchestration.futures import DurableFuture
from kvfold.producers.orchestration.observing import Observer
from kvfold.schemas.errors import KvfoldError
from kvfold.schemas.orchestration import (
    MESSAGE_KINDS,
    TURN_EVENT_KINDS,
    OrchestrationCompleted,
    OrchestrationContinuedAsNew,
    Turn,
    TurnEvent,
    TurnFailed,
)
from kvfold.schemas.strict_json import decode_json, encode_json
from kvfold.schemas.turn_limits import (
    KeyCountExceeded,
    ValueTooLarge,
    fitting_error,
    key_value_violation,
    turn_problem,
)

__all__ = ["Begun", "LiveExecution", "OrchestrationFunction", "RecordedEvent", "WaitingMessage"]

OrchestrationFunction = Callable[[OrchestrationContext, Any], Awaitable[Any]]
"""`async def` of a context and the input."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What an execution starts from: all of it recorded. `kv` is the KV at its start (row O11)."""

    instance_id: str
    incarnation: int
    execution_id: int
    input: Any
    kv: Mapping[str, str]
    started_ms: int
    children: int = 0


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event of the history. Events of one `record_offset` are one turn."""

    event_id: int
    kind: str
    data: Mapping[str, Any]
    record_offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message of the inbox."""

    record_offset: int
    kind: str
    data: Mapping[str, Any]
    time_ms: int


class LiveExecution:
    """An execution in memory. `history_length` says how much of the history it has behind it."""

    def __init__(self, function: OrchestrationFunction, begun: Begun, observer: Observer) -> None:
        self.begun: Final = begun
        self.history_length = 0
        self._function = function
        self._observer = observer
        self._context = OrchestrationContext(
            instance_id=begun.instance_id,
            incarnation=begun.incarnation,
            execution_id=begun.execution_id,
            kv=begun.kv,
            now_ms=begun.started_ms,
            observer=observer,
        )
        self._coroutine: Coroutine[DurableFuture[Any], None, Any] | None = None
        self._awaited: DurableFuture[Any] | None = None
        self._asked: dict[int, tuple[TurnEvent, DurableFuture[Any]]] = {}
        self._end: TurnEvent | None = None
        self._problem: str | None = None
        self._violation: KeyCountExceeded | ValueTooLarge | None = None
        self._keys = tuple(begun.kv)
        self._children = begun.children

    @property
    def has_ended(self) -> bool:
        """Whether the code, or a limit, has ended this execution."""
        return self._end is not None or self._problem is not None

    def close(self) -> None:
        """Drops the code where it stands. What it does in its `finally` blocks then goes nowhere, and is not told."""
        self._context.is_replaying = True
        if self._coroutine is not None:
            with suppress(Exception):
                self._coroutine.close()

    # --- the history again ---

    def replay(self, history: Sequence[RecordedEvent]) -> None:
        """Gives the code its recorded messages, and compares what it does with what it did.

        Raises:
            NondeterminismError: it did something else.
        """
        position = 0
        while position < len(history):
            end = position
            while end < len(history) and history[end].record_offset == history[position].record_offset:
                end += 1
            self._replay_turn(history[position:end])
            position = end

    def _replay_turn(self, turn: Sequence[RecordedEvent]) -> None:
        self._context.is_replaying = True
        messages = [event for event in turn if event.kind in MESSAGE_KINDS]
        # Kinds of a newer version are skipped (row O24): this code cannot have done them.
        recorded = [event for event in turn if event.kind in TURN_EVENT_KINDS]
        self._begin()
        for event in messages:
            self._give(event.kind, event.data, event.time_ms)
        done = self._context.take_actions()
        if self._end is not None:
            done.append((self._end, None))
        for index, (action, future) in enumerate(done):
            if index >= len(recorded):
                raise NondeterminismError("nothing more in this turn", _described(_fields(action)))
            event = recorded[index]
            if _fields(action) != dict(event.data):
                raise NondeterminismError(
                    f"{_described(event.data)} (event {event.event_id})", _described(_fields(action))
                )
            if future is not None:
                self._asked[event.event_id] = (action, future)
        if len(recorded) > len(done):
            missing = recorded[len(done)]
            raise NondeterminismError(f"{_described(missing.data)} (event {missing.event_id})", "nothing")
        self.history_length += len(turn)
        self._keep()

    # --- the next turn ---

    def run(self, waiting: Sequence[WaitingMessage], *, worker: str, seen: int) -> Turn:
        """Gives the code what waits for it, as far as it takes it, and says what it did.

        The turn is judged by the limits: one that is over them is the failure that the fold would make of it.
        """
        context = self._context
        context.is_replaying = False
        self._begin()
        left = list(waiting)
        consumed: list[int] = []
        while self._end is None:
            message = next((message for message in left if self._takes(message)), None)
            if message is None:
                break
            left.remove(message)
            consumed.append(message.record_offset)
            self._give(message.kind, message.data, message.time_ms)
        actions = context.take_actions()
        events = [action for action, _ in actions]
        if self._end is not None:
            events.append(self._end)
        turn = Turn.model_construct(
            incarnation=self.begun.incarnation,
            execution_id=self.begun.execution_id,
            history_length=self.history_length,
            worker=worker,
            seen=seen,
            consumed=tuple(consumed),
            events=tuple(events),
        )
        self._problem = turn_problem(turn, self._keys, children=self._children)
        if self._problem is not None:
            self._violation = key_value_violation(events, self._keys)
            failed = TurnFailed(kind="OrchestrationFailed", error=self._problem, reason="limit")
            return turn.model_copy(update={"events": (failed,)})
        first = self.history_length + len(consumed) + 1
        for number, (action, future) in enumerate(actions, first):
            if future is not None:
                self._asked[number] = (action, future)
        self.history_length += len(consumed) + len(events)
        self._children += sum(1 for event in events if event.kind == "ChildScheduled")
        self._keep()
        return turn

    def applied(self) -> None:
        """The log took the turn that ran last: only now is the observer told of it, as another worker may be first."""
        if self._violation is not None:
            self._observer.limit_exceeded(self._context, self._violation)
        elif self._problem is None:
            self._observer.turn_ran(self._context)

    def _keep(self) -> None:
        self._keys = tuple(self._context.values)

    # --- stepping ---

    def _begin(self) -> None:
        if self._coroutine is not None or self._end is not None:
            return
        try:
            made = self._function(self._context, self.begun.input)
            if not isinstance(made, Coroutine):
                raise ForeignAwaitError(made)
            self._coroutine = made
        except BaseException as error:  # also what would end the worker's thread
            self._end = _failure(error)
            return
        self._resume(None)

    def _takes(self, message: WaitingMessage) -> bool:
        """Every message but a raised event that nobody awaits now: it keeps its place in the inbox."""
        if message.kind != "EventRaised":
            return True
        if self._awaited is None:
            return False
        return any(future.name == message.data["name"] for future in self._awaited.pending_events())

    def _give(self, kind: str, data: Mapping[str, Any], time_ms: int) -> None:
        self._context.advance_to(time_ms)
        if self._end is not None:
            return
        thrown: BaseException | None = None
        match kind:
            case "EventRaised":
                self._give_event(data)
            case "CancelRequested":
                thrown = OrchestrationCancelledError(data.get("reason", ""))
            case _:
                self._answer(kind, data)
        if thrown is not None or (self._awaited is not None and self._awaited.done):
            self._resume(thrown)

    def _give_event(self, data: Mapping[str, Any]) -> None:
        assert self._awaited is not None, "a raised event is given to code that awaits it"
        for future in self._awaited.pending_events():
            if future.name == data["name"]:
                future.settle(data.get("data"))
                return
        raise NondeterminismError(
            f"EventRaised {data['name']!r} taken by the code", "no wait for it at this point"
        )

    def _answer(self, kind: str, data: Mapping[str, Any]) -> None:
        asked = self._asked.pop(data["event_id"], None)
        if asked is None:
            raise NondeterminismError(f"{kind} for event {data['event_id']}", "nothing that it could answer")
        action, future = asked
        match kind:
            case "ActivityCompleted":
                future.settle(data.get("result"))
            case "ChildCompleted":
                future.settle(data.get("output"))
            case "TimerFired":
                future.settle(None)
            case "ActivityFailed":
                future.fail(ActivityError(getattr(action, "name", ""), data["error"]))
            case "ChildFailed":
                future.fail(ChildError(getattr(action, "instance_id", ""), data["error"]))

    def _resume(self, thrown: BaseException | None) -> None:
        """Runs the code until it awaits something that is not done, or ends."""
        coroutine = self._coroutine
        assert coroutine is not None
        try:
            while True:
                awaited: Any = coroutine.send(None) if thrown is None else coroutine.throw(thrown)
                thrown = None
                if not isinstance(awaited, DurableFuture):
                    thrown = ForeignAwaitError(awaited)
                elif not awaited.done:
                    self._awaited = awaited
                    return
        except StopIteration as stop:
            self._end = _completion(stop.value)
        except ContinueAsNewSignal as signal:
            self._end = OrchestrationContinuedAsNew(kind="OrchestrationContinuedAsNew", input=signal.input)
        except NondeterminismError:
            raise
        except BaseException as error:
            self._end = _failure(error)
        self._awaited = None


def _completion(output: Any) -> TurnEvent:
    try:
        data = decode_json(encode_json(output))
    except (TypeError, ValueError, KvfoldError) as error:
        return _failed(f"the output is no JSON value: {error}")
    return OrchestrationCompleted(kind="OrchestrationCompleted", output=data)


def _failure(error: BaseException) -> TurnEvent:
    if isinstance(error, OrchestrationCancelledError):
        return TurnFailed(kind="OrchestrationFailed", error=str(error), reason="cancelled")
    return _failed(str(error) or type(error).__name__)


def _failed(text: str) -> TurnEvent:
    """A failure with as much of its text as fits: an error never keeps an instance from ending."""
    return TurnFailed(kind="OrchestrationFailed", error=fitting_error(text))


def _fields(action: TurnEvent) -> dict[str, Any]:
    """An action as its history event has it."""
    return action.model_dump()


def _described(data: Mapping[str, Any]) -> str:
    """An event for people: kind, name or key; of a value only its length and a short hash."""
    parts = [str(data.get("kind"))]
    for field in ("name", "key", "instance_id", "due_ms", "reason"):
        if data.get(field) not in (None, ""):
            parts.append(f"{field}={data[field]!r}")
    for field in ("value", "input", "output", "status", "error"):
        if data.get(field) is not None:
            raw = encode_json(data[field])
            parts.append(f"{field}=<{len(raw)} bytes, {hashlib.sha256(raw).hexdigest()[:8]}>")
    return " ".join(parts)
