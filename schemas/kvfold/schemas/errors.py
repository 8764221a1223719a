"""The errors of kvfold: one root; the branches say whose fault it is and whether to try again.

Codes are stable and meet users in decisions, in problem documents and in the SDK. Where a code is fixed by a
document (capsule codes by `kv@1.0.0`), it is spelt exactly as there.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ConfigurationError",
    "ConflictError",
    "GoneError",
    "InvalidError",
    "KvfoldError",
    "LogDivergedError",
    "LogMisconfiguredError",
    "LogUnavailableError",
    "NotUpToPositionError",
    "OutcomeUnknownError",
    "PartitionPausedError",
    "RejectedError",
    "StoreUnavailableError",
    "UnavailableError",
]


class KvfoldError(Exception):
    """Root of every error that kvfold raises on purpose.

    `code` is the stable name of what went wrong; `retryable` says whether the same call may succeed later.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class InvalidError(KvfoldError):
    """The caller's input is wrong; nothing was appended. The message says what is accepted."""


class ConflictError(KvfoldError):
    """A precondition did not hold when the record was decided. `version` is the current one, None if absent."""

    def __init__(self, message: str, *, code: str = "version-conflict", version: int | None = None) -> None:
        super().__init__(message, code=code)
        self.version = version


class RejectedError(KvfoldError):
    """The fold refused the record (limit, quota, reused id, …); the log keeps it, the state is unchanged."""


class ConfigurationError(KvfoldError):
    """A setting is wrong. The message names the variable and what is accepted, never a secret's value."""

    def __init__(self, message: str, *, code: str = "configuration") -> None:
        super().__init__(message, code=code)


class LogMisconfiguredError(ConfigurationError):
    """The topic or the embedded log is not as kvfold needs it; the message says how to mend it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="log-misconfigured")


class LogDivergedError(KvfoldError):
    """The log is not the one that was folded: it was made anew, truncated, or trimmed past the stored offset.

    `code` is `log-diverged` or `offset-out-of-range`, `partitions` the ones concerned. An operator has to decide;
    nothing jumps by itself.
    """

    def __init__(self, message: str, *, code: str = "log-diverged", partitions: tuple[int, ...] = ()) -> None:
        super().__init__(message, code=code)
        self.partitions = partitions


class GoneError(KvfoldError):
    """What was asked for was trimmed by retention."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="gone")


class UnavailableError(KvfoldError):
    """A server is away or late; the same call may succeed later."""

    retryable = True


class LogUnavailableError(UnavailableError):
    """The log did not acknowledge the append in time.

    The record may or may not be in the log: repeat the mutation with the same id.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, code="log-unavailable")


class StoreUnavailableError(UnavailableError):
    """Postgres cannot be reached or does not answer."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="store-unavailable")


class OutcomeUnknownError(UnavailableError):
    """Appended, and not decided within the time given. Repeat with the same id, or ask by position.

    `position` is the record's place as text, `mutation_id` its id.
    """

    def __init__(self, message: str, *, mutation_id: str, position: str | None) -> None:
        super().__init__(message, code="outcome-unknown")
        self.mutation_id = mutation_id
        self.position = position


class PartitionPausedError(UnavailableError):
    """The projector of the partition stopped with a reason that an operator has to mend."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="partition-paused")


class NotUpToPositionError(UnavailableError):
    """The serving projection did not reach the demanded position in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="not-up-to-position")
