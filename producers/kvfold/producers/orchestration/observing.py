"""What is told of a running orchestration: to logs, metrics and traces. Nothing is told during a replay (row O21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kvfold.producers.orchestration.context import OrchestrationContext

__all__ = ["Observer", "SilentObserver"]


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


class SilentObserver:
    """Tells nobody."""

    def value_set(self, context: OrchestrationContext, key: str, value: str) -> None:
        """Nothing."""

    def value_read(self, context: OrchestrationContext, key: str, *, found: bool) -> None:
        """Nothing."""

    def value_cleared(self, context: OrchestrationContext, key: str) -> None:
        """Nothing."""

    def values_cleared(self, context: OrchestrationContext) -> None:
        """Nothing."""

    def remote_read(self, context: OrchestrationContext) -> None:
        """Nothing."""

    def logged(self, context: OrchestrationContext, event: str, fields: Mapping[str, Any]) -> None:
        """Nothing."""
