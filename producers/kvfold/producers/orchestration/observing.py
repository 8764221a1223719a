"""What is told of a running orchestration: to logs, metrics and traces. Nothing is told during a replay (row O21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import structlog

if TYPE_CHECKING:
    from kvfold.producers.orchestration.context import OrchestrationContext

__all__ = ["LoggingObserver", "Observer"]

_kv = structlog.get_logger("duroxide::kv")
_runtime = structlog.get_logger("duroxide::runtime")


class Observer(Protocol):
    """Told of each operation once, when it happens first."""

    def value_set(self, context: OrchestrationContext, key: str, value: str) -> None:
        """A key was set."""
        ...

    def value_read(self, context: OrchestrationContext, key: str, *, found: bool) -> None:
        """A key was read."""
        ...

    def value_cleared(self, context: OrchestrationContext, key: str) -> None:
        """A key was removed."""
        ...

    def values_cleared(self, context: OrchestrationContext) -> None:
        """Every key was removed."""
        ...

    def remote_read(self, context: OrchestrationContext) -> None:
        """A value of another instance was asked for."""
        ...

    def logged(self, context: OrchestrationContext, event: str, fields: Mapping[str, Any]) -> None:
        """The code logged."""
        ...


class LoggingObserver:
    """Tells the log: the names and fields of row O21. No value is ever logged, only its length."""

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
        _runtime.info(event, instance_id=context.instance_id, execution_id=context.execution_id, **fields)
