"""What is told of running orchestrations: to logs and metrics. Nothing is told during a replay (row O21)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from kvfold.schemas.limits import ORCHESTRATION_KV_KEYS_MAX, ORCHESTRATION_KV_VALUE_BYTES_MAX
from kvfold.schemas.turn_limits import KeyCountExceeded, ValueTooLarge

if TYPE_CHECKING:
    from kvfold.producers.orchestration.context import OrchestrationContext
    from kvfold.producers.orchestration.store import DueTask, OutgoingMessage, RunnableInstance
    from kvfold.schemas.outcome import DecisionStatus

__all__ = ["ActivityOutcome", "LoggingObserver", "Observer", "Observers"]

ActivityOutcome = Literal["completed", "failed", "unknown"]
"""How an attempt ended; `unknown` where it is not known whether the log has its end."""

# A field, as the renderers show no logger's name.
_kv: Final = structlog.get_logger(target="duroxide::kv")
_runtime: Final = structlog.get_logger(target="duroxide::runtime")


class Observer:
    """Told of each thing once, when it happens first; tells nobody. Subclasses override what they tell.

    Called by the worker's threads: every method returns soon, and none raises.
    """

    # --- by the code of an orchestration ---

    def value_set(self, context: OrchestrationContext, key: str, value: str) -> None:
        """A key was set."""

    def value_read(self, context: OrchestrationContext, key: str, *, found: bool) -> None:
        """A key was read."""

    def value_cleared(self, context: OrchestrationContext, key: str) -> None:
        """A key was removed."""

    def values_cleared(self, context: OrchestrationContext) -> None:
        """Every key was removed."""

    def remote_read(self, context: OrchestrationContext) -> None:
        """A value of another instance was asked for."""

    def logged(self, context: OrchestrationContext, event: str, fields: Mapping[str, Any]) -> None:
        """The code logged."""

    # --- by the worker ---

    def turn_ran(self, context: OrchestrationContext) -> None:
        """A turn that is within the limits was applied; `context.values` are the keys after it."""

    def limit_exceeded(
        self, context: OrchestrationContext, violation: KeyCountExceeded | ValueTooLarge
    ) -> None:
        """A turn was refused for its keys and values, and its instance has failed (rows O17, O18).

        Told by the one worker whose turn the log took, however many ran it; by none if that one did not learn of it.
        """

    def turn_settled(self, instance: RunnableInstance, status: DecisionStatus | None) -> None:
        """A turn was decided; None where the worker did not learn how."""

    def live_counted(self, count: int) -> None:
        """How many executions the worker has in memory now."""

    def activity_began(self, task: DueTask) -> None:
        """An attempt began."""

    def activity_ended(self, task: DueTask, outcome: ActivityOutcome, seconds: float) -> None:
        """An attempt ended, after `seconds`."""

    def timer_settled(self, task: DueTask) -> None:
        """A timer was fired, and decided."""

    def message_delivered(self, message: OutgoingMessage) -> None:
        """A message to another instance has had its effect."""


class LoggingObserver(Observer):
    """Tells the log: targets, levels, names and fields of rows O21 and O28. No value is ever logged, only its length."""

    def value_set(self, context: OrchestrationContext, key: str, value: str) -> None:
        """`kv.set`."""
        _kv.info("kv.set", instance_id=context.instance_id, key=key, value_len=len(value.encode()))

    def value_read(self, context: OrchestrationContext, key: str, *, found: bool) -> None:
        """`kv.get`."""
        _kv.debug("kv.get", instance_id=context.instance_id, key=key, found=found)

    def value_cleared(self, context: OrchestrationContext, key: str) -> None:
        """`kv.clear_value`."""
        _kv.info("kv.clear_value", instance_id=context.instance_id, key=key)

    def values_cleared(self, context: OrchestrationContext) -> None:
        """`kv.clear`."""
        _kv.info("kv.clear", instance_id=context.instance_id)

    def remote_read(self, context: OrchestrationContext) -> None:
        """`kv.get_remote`."""
        _kv.debug("kv.get_remote", instance_id=context.instance_id)

    def logged(self, context: OrchestrationContext, event: str, fields: Mapping[str, Any]) -> None:
        """What the code logged, with the instance and its execution."""
        # One dictionary: a field of the code that is named like ours must not raise, as it would not in a replay.
        ours = {"instance_id": context.instance_id, "execution_id": context.execution_id}
        _runtime.info(event, **{**fields, **ours, "target": "duroxide::runtime"})

    def limit_exceeded(
        self, context: OrchestrationContext, violation: KeyCountExceeded | ValueTooLarge
    ) -> None:
        """A warning that says what is too large, and an error that says what comes of it."""
        fields: dict[str, Any] = {"instance_id": context.instance_id, "execution_id": context.execution_id}
        if isinstance(violation, KeyCountExceeded):
            what = "KV key count exceeds limit"
            fields |= {"key_count": violation.key_count, "max_keys": ORCHESTRATION_KV_KEYS_MAX}
        else:
            what = "KV value exceeds size limit"
            fields |= {
                "key": violation.key,
                "value_bytes": violation.value_bytes,
                "max_bytes": ORCHESTRATION_KV_VALUE_BYTES_MAX,
            }
        _runtime.warning(what, **fields)
        _runtime.error(f"{what}, failing orchestration", **fields)


class Observers(Observer):
    """Tells several, in order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)


def _telling_each(name: str) -> Callable[..., None]:
    def tell(self: Observers, *args: Any, **fields: Any) -> None:
        for observer in self._observers:
            getattr(observer, name)(*args, **fields)

    return tell


for _name in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Observers, _name, _telling_each(_name))
