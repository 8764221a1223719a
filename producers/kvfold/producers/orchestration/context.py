"""`OrchestrationContext`: all that orchestration code may use of the world (rows O1 to O7, O9, O26, O27).

Every call either reads what the history gives (`now`, `get_value`) or is an action, which becomes an event of the
history. Code that uses nothing else does the same in every replay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn, TypeVar
from uuid import UUID, uuid5

from pydantic import TypeAdapter, ValidationError

from kvfold.producers.orchestration.errors import (
    ContinueAsNewSignal,
    StoredValueError,
)
from kvfold.producers.orchestration.futures import AllOf, AnyOf, DurableFuture, EventFuture, MappedFuture
from kvfold.producers.orchestration.observing import Observer
from kvfold.producers.orchestration.stored_values import first_problem, typed_value
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.names import check_orchestration_key, check_orchestration_name
from kvfold.schemas.orchestration import (
    ActivityScheduled,
    ChildScheduled,
    CustomStatusUpdated,
    KeyValueCleared,
    KeyValuesCleared,
    KeyValueSet,
    RetryPolicy,
    TimerCreated,
    TurnEvent,
)
from kvfold.schemas.strict_json import decode_json, encode_json

__all__ = ["GET_VALUES_ACTIVITY", "GET_VALUE_ACTIVITY", "OrchestrationContext"]

T = TypeVar("T")

GET_VALUE_ACTIVITY: Final = "__duroxide_syscall:get_kv_value"
"""The system activity that reads a value of another instance (row O7)."""
GET_VALUES_ACTIVITY: Final = "__kvfold_syscall:get_kv_values"
"""The system activity that reads several at once (row O26)."""

_GUIDS: Final = UUID("2f1d6a52-6f1b-5c7e-9d0a-3c5b1f0a7e11")


class OrchestrationContext:
    """One execution of an instance, seen from its code. Made by the runtime; not for use outside the orchestration."""

    def __init__(
        self,
        *,
        instance_id: str,
        incarnation: int,
        execution_id: int,
        kv: Mapping[str, str],
        now_ms: int,
        observer: Observer,
    ) -> None:
        self.instance_id: Final = instance_id
        self.execution_id: Final = execution_id
        self.is_replaying = True
        self._incarnation = incarnation
        self._kv = dict(kv)
        self._now_ms = now_ms
        self._observer = observer
        self._names_given = 0
        self._actions: list[tuple[TurnEvent, DurableFuture[Any] | None]] = []

    # --- keys and values ---

    def set_value(self, key: str, value: str) -> None:
        """Sets a key of this instance (row O1). At most 10 keys at a turn's end, 16,384 bytes a value.

        Raises:
            InvalidError: `invalid-key`, or a value that is no text or has no UTF-8 form. Nothing is recorded.
        """
        _check_key(key)
        _check_text("the value", value)
        self._act(KeyValueSet(kind="KeyValueSet", key=key, value=value))
        self._kv[key] = value
        if not self.is_replaying:
            self._observer.value_set(self, key, value)

    def set_value_typed(self, key: str, value: Any) -> None:
        """Sets a key to the JSON of a value (row O2): anything that pydantic can serialise.

        Raises:
            StoredValueError: it cannot be serialised. Nothing is recorded.
        """
        try:
            text = TypeAdapter(type(value)).dump_json(value).decode()
        except Exception as error:
            raise StoredValueError(
                f"a value of type {type(value).__name__} cannot be stored as JSON"
            ) from error
        self.set_value(key, text)

    def get_value(self, key: str) -> str | None:
        """This instance's value as of here (row O3): no event, no I/O. An empty text is a value."""
        _check_key(key)
        if not self.is_replaying:
            self._observer.value_read(self, key, found=key in self._kv)
        return self._kv.get(key)

    def get_value_typed(self, key: str, type_: type[T]) -> T | None:
        """As `get_value`, from JSON (row O4).

        Raises:
            StoredValueError: what is stored is not of this type.
        """
        text = self.get_value(key)
        return None if text is None else typed_value(text, type_, f"the value of {key!r}")

    def clear_value(self, key: str) -> None:
        """Removes a key; recorded also where it is absent (row O5)."""
        _check_key(key)
        self._act(KeyValueCleared(kind="KeyValueCleared", key=key))
        self._kv.pop(key, None)
        if not self.is_replaying:
            self._observer.value_cleared(self, key)

    def clear_all_values(self) -> None:
        """Removes every key of this instance (row O6)."""
        self._act(KeyValuesCleared(kind="KeyValuesCleared"))
        self._kv.clear()
        if not self.is_replaying:
            self._observer.values_cleared(self)

    def get_value_from_instance(self, instance_id: str, key: str) -> DurableFuture[str | None]:
        """Another instance's value at the time when it is read (row O7); None for an unknown instance or key."""
        if not self.is_replaying:
            self._observer.remote_read(self)
        text = encode_json({"instance_id": instance_id, "key": key}).decode()
        return MappedFuture(self.schedule_activity(GET_VALUE_ACTIVITY, text), _remote_value)

    def get_value_from_instance_typed(
        self, instance_id: str, key: str, type_: type[T]
    ) -> DurableFuture[T | None]:
        """As `get_value_from_instance`, from JSON."""
        return MappedFuture(
            self.get_value_from_instance(instance_id, key), lambda text: _remote_typed(text, type_)
        )

    def get_values_from_instance(
        self, instance_id: str, keys: Sequence[str]
    ) -> DurableFuture[dict[str, str | None]]:
        """Several values of another instance, read together (row O26)."""
        if not self.is_replaying:
            self._observer.remote_read(self)
        text = encode_json({"instance_id": instance_id, "keys": list(keys)}).decode()
        return MappedFuture(self.schedule_activity(GET_VALUES_ACTIVITY, text), _remote_values)

    # --- what takes time ---

    def schedule_activity(
        self,
        name: str,
        input: Any = None,
        *,
        retry: RetryPolicy | None = None,
        attempt_timeout: timedelta | None = None,
        heartbeat_timeout: timedelta | None = None,
    ) -> DurableFuture[Any]:
        """Asks for an activity. The future gives its result, or raises `ActivityError` when it has failed for good."""
        _check_name("the activity's name", name)
        event = ActivityScheduled(
            kind="ActivityScheduled",
            name=name,
            input=_json("the activity's input", input),
            retry=retry,
            attempt_ms=_milliseconds("attempt_timeout", attempt_timeout),
            heartbeat_ms=_milliseconds("heartbeat_timeout", heartbeat_timeout),
        )
        return self._ask(event)

    def timer(self, delay: timedelta) -> DurableFuture[None]:
        """Done when this much time has passed since `now()`; never early."""
        milliseconds = max(0, -(-delay // timedelta(milliseconds=1)))
        return self._ask(TimerCreated(kind="TimerCreated", due_ms=self._now_ms + milliseconds))

    def wait_for_event(self, name: str) -> DurableFuture[Any]:
        """The next raised event of this name: its data. Events wait in order until some code waits for them."""
        _check_name("the event's name", name)
        return EventFuture(name)

    def sub_orchestration(
        self, name: str, input: Any = None, *, instance_id: str | None = None
    ) -> DurableFuture[Any]:
        """Starts a child. The future gives its output, or raises `ChildError`; an id that is taken is a failure.

        Without an id the child is `{instance}::{execution}.{number}`.
        """
        _check_name("the orchestration's name", name)
        if instance_id is None:
            self._names_given += 1
            instance_id = f"{self.instance_id}::{self.execution_id}.{self._names_given}"
        _check_name("the child's id", instance_id)
        data = _json("the child's input", input)
        return self._ask(
            ChildScheduled(kind="ChildScheduled", instance_id=instance_id, name=name, input=data)
        )

    def when_all(self, *futures: DurableFuture[Any]) -> DurableFuture[list[Any]]:
        """All of them: the answers in this order. Once all are done, the first failure in this order is raised."""
        return AllOf(futures)

    def when_any(self, *futures: DurableFuture[Any]) -> DurableFuture[tuple[int, Any]]:
        """The first of them: its index and answer. The others go on, and can be awaited later."""
        if not futures:
            raise InvalidError("when_any of nothing would never be done", code="invalid-argument")
        return AnyOf(futures)

    # --- the rest of the world ---

    def now(self) -> datetime:
        """The recorded time: that of the newest message which the code has been given."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def new_guid(self) -> UUID:
        """An id that is the same in every replay, and no other call's."""
        self._names_given += 1
        name = f"{self.instance_id}\n{self._incarnation}\n{self.execution_id}\n{self._names_given}"
        return uuid5(_GUIDS, name)

    def set_custom_status(self, status: str | None) -> None:
        """Sets the text that readers see as the instance's status; it stays over continue-as-new."""
        if status is not None:
            _check_text("the status", status)
        self._act(CustomStatusUpdated(kind="CustomStatusUpdated", status=status))

    def continue_as_new(self, input: Any = None) -> NoReturn:
        """Ends this execution and begins the next with this input; keys and waiting events stay."""
        raise ContinueAsNewSignal(_json("the input", input))

    def log(self, event: str, **fields: Any) -> None:
        """Logs once: nothing during a replay. `event` is a constant, its data go into fields."""
        if not self.is_replaying:
            self._observer.logged(self, event, fields)

    # --- the runtime's ---

    def take_actions(self) -> list[tuple[TurnEvent, DurableFuture[Any] | None]]:
        """The actions since the last call."""
        taken, self._actions = self._actions, []
        return taken

    def advance_to(self, time_ms: int) -> None:
        """Recorded time goes on, and never back."""
        self._now_ms = max(self._now_ms, time_ms)

    @property
    def values(self) -> Mapping[str, str]:
        """Every key as of here."""
        return self._kv

    def _act(self, event: TurnEvent) -> None:
        self._actions.append((event, None))

    def _ask(self, event: TurnEvent) -> DurableFuture[Any]:
        future = DurableFuture[Any]()
        self._actions.append((event, future))
        return future


def _remote_value(text: Any) -> str | None:
    try:
        value = json.loads(text)
    except (TypeError, ValueError) as error:
        raise StoredValueError(f"Deserialization error: {error}") from error
    if value is not None and not isinstance(value, str):
        raise StoredValueError(f"Deserialization error: a text or null is due, not {type(value).__name__}")
    return value


def _remote_values(text: Any) -> dict[str, str | None]:
    try:
        return TypeAdapter(dict[str, str | None]).validate_json(text)
    except (TypeError, ValidationError) as error:
        raise StoredValueError(f"Deserialization error: {error}") from error


def _remote_typed(text: str | None, type_: type[T]) -> T | None:
    if text is None:
        return None
    try:
        return TypeAdapter(type_).validate_json(text)
    except ValidationError as error:
        raise StoredValueError(f"Typed deserialization error: {first_problem(error)}") from error


def _check_key(key: str) -> None:
    problem = check_orchestration_key(key) if isinstance(key, str) else "a key is a text"
    if problem is not None:
        raise InvalidError(problem, code="invalid-key")


def _check_name(what: str, name: str) -> None:
    problem = check_orchestration_name(what, name) if isinstance(name, str) else f"{what} is a text"
    if problem is not None:
        raise InvalidError(problem, code="malformed-name")


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidError(f"{what} is a text, not {type(text).__name__}", code="invalid-argument")
    if "\x00" in text:
        raise InvalidError(f"{what} holds NUL: it is not accepted", code="invalid-argument")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidError(
            f"{what} holds a lone surrogate: it has no UTF-8 form", code="invalid-argument"
        ) from None


def _json(what: str, value: Any) -> Any:
    """A value as the log gives it back: lists for tuples, texts for keys."""
    try:
        return decode_json(encode_json(value))
    except (TypeError, ValueError, InvalidError) as error:
        raise InvalidError(f"{what} is no JSON value: {error}", code="invalid-argument") from error


def _milliseconds(what: str, time: timedelta | None) -> int | None:
    if time is None:
        return None
    milliseconds = time // timedelta(milliseconds=1)
    if milliseconds < 1:
        raise InvalidError(f"{what} is at least a millisecond", code="invalid-argument")
    return milliseconds
