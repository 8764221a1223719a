"""What orchestration code meets: failures of what it awaits, its cancellation, and its own mistakes."""

from __future__ import annotations

from kvfold.schemas.errors import KvfoldError

__all__ = [
    "ActivityError",
    "ChildError",
    "ContinueAsNewSignal",
    "ForeignAwaitError",
    "NondeterminismError",
    "OrchestrationCancelledError",
    "OrchestrationError",
    "StoredValueError",
]


class OrchestrationError(KvfoldError):
    """Base of what the runtime raises into orchestration code."""


class ActivityError(OrchestrationError):
    """An activity failed for good: its last attempt, or one that is not retryable. The message is the activity's."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message, code="activity-failed")
        self.name = name


class ChildError(OrchestrationError):
    """A child orchestration failed, or could not be started. The message is the child's."""

    def __init__(self, instance_id: str, message: str) -> None:
        super().__init__(message, code="child-failed")
        self.instance_id = instance_id


class OrchestrationCancelledError(OrchestrationError):
    """Someone asked to cancel the instance. Code may tidy up and end, or go on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or "the orchestration was cancelled", code="cancelled")


class StoredValueError(OrchestrationError):
    """A stored value is not of the type that was asked for (rows O4, O7)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="stored-value")


class NondeterminismError(OrchestrationError):
    """The code did something else than its history says. Fails the instance; `expected` is what the history has."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(
            f"nondeterminism: the history has {expected}, the code did {found}", code="nondeterminism"
        )
        self.expected = expected
        self.found = found


class ForeignAwaitError(OrchestrationError):
    """The code awaited something that is not the runtime's: no replay could give the same answer."""

    def __init__(self, awaited: object) -> None:
        super().__init__(
            f"an orchestration awaits only what its context gives (activities, timers, events, children, when_all, "
            f"when_any), not {type(awaited).__name__}: put anything else into an activity",
            code="foreign-await",
        )


class ContinueAsNewSignal(BaseException):
    """Ends the execution and begins the next. Not an `Exception`: code that catches those must not swallow it."""

    def __init__(self, input: object) -> None:
        super().__init__("continue as new")
        self.input = input
