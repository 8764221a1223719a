"""The producer: appends a mutation, says where it stands, and what was decided about it.

A conflict and a rejection are outcomes, so they are values (`Decided`); exceptions are for what is wrong before the
append, and for servers that are away. A caller that lost an answer submits the same mutation with the same id again
and gets the first outcome (row X4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Final
from uuid import UUID

from uuid6 import uuid7

from kvfold.log.port import Appended as LogAppended
from kvfold.log.port import Log
from kvfold.producers.doors import Admitted, Sealer, admit
from kvfold.producers.errors import AppendUnacknowledgedError
from kvfold.producers.outcomes import Decided, OutcomeWaiter, passed_on, unsettled, watch_outcome
from kvfold.producers.trace_context import traceparent_of
from kvfold.schemas.errors import InvalidError, KvfoldError, LogUnavailableError, NotUpToPositionError
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.position import Position

__all__ = ["APPEND_TIMEOUT_S", "Appended", "Producer", "Submitted"]

APPEND_TIMEOUT_S: Final = 10.0
"""How long `append` waits for the log when the caller names no time."""

_UNSTAMPED: Final = Mutation("", "", "").source


@dataclass(frozen=True, slots=True)
class Submitted:
    """A mutation on its way: both futures fail with the errors of `Producer.append` and `Producer.execute`.

    Neither can be cancelled: what was handed to the log cannot be called back.
    """

    mutation_id: str
    scope: str
    position: Future[Position]
    outcome: Future[Decided]


@dataclass(frozen=True, slots=True)
class Appended:
    """A mutation that the log acknowledged: its place, and its outcome when it is decided."""

    mutation_id: str
    scope: str
    position: Position
    outcome: Future[Decided]


class Producer:
    """Appends mutations to a log; safe to use from several threads.

    - `waiter` tells outcomes; without one, outcomes fail with `OutcomeUnknownError` (append-only services).
    - `source` is the CloudEvents source of mutations that name none.
    - `new_id` and `now` give ids (UUIDv7) and the informational time; no decision depends on either.
    - `allow_system` is for operators' commands alone.
    - `secrets` seals the values of secret namespaces; without it they are refused.

    Raises at first use, not when made: `LogUnavailableError` where the log does not say how many partitions it has.
    """

    def __init__(
        self,
        log: Log,
        waiter: OutcomeWaiter | None = None,
        *,
        source: str,
        new_id: Callable[[], UUID] = uuid7,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        allow_system: bool = False,
        secrets: Sealer | None = None,
    ) -> None:
        self._log = log
        self._waiter = waiter
        self._source = source
        self._new_id = new_id
        self._now = now
        self._allow_system = allow_system
        self._secrets = secrets
        self._lock = threading.Lock()
        self._acknowledged: dict[int, int] = {}
        self._partition_count: int | None = None

    # --- writing ---

    def submit(self, mutation: Mutation, *, timeout_s: float = OPEN_WAIT_SECONDS_MAX) -> Submitted:
        """Hands a mutation to the log and returns at once; the outcome may take `timeout_s` from the acknowledgement.

        Raises:
            InvalidError, UnavailableError: refused at the door (`doors.admit`); nothing was appended.
            LogUnavailableError: only at the very first use, see the class.
        """
        mutation_id, position = self.send(mutation)
        outcome: Future[Decided] = unsettled()

        def acknowledged(done: Future[Position]) -> None:
            error = done.exception()
            if error is not None:
                outcome.set_exception(error)
            else:
                decided = self.outcome_of(mutation_id, done.result(), timeout_s=timeout_s)
                decided.add_done_callback(lambda source: passed_on(source, outcome))

        position.add_done_callback(acknowledged)
        return Submitted(mutation_id, mutation.scope, position, outcome)

    def append(
        self,
        mutation: Mutation,
        *,
        timeout_s: float = APPEND_TIMEOUT_S,
        outcome_timeout_s: float = OPEN_WAIT_SECONDS_MAX,
    ) -> Appended:
        """Appends and returns when the log has acknowledged: the record is durable.

        Raises:
            InvalidError, UnavailableError: refused at the door; nothing was appended.
            AppendUnacknowledgedError: no acknowledgement in time; repeat with its `mutation_id`.
        """
        submitted = self.submit(mutation, timeout_s=outcome_timeout_s)
        position = _acknowledged(submitted.mutation_id, mutation.scope, submitted.position, timeout_s)
        return Appended(submitted.mutation_id, submitted.scope, position, submitted.outcome)

    def execute(self, mutation: Mutation, timeout_s: float = OPEN_WAIT_SECONDS_MAX) -> Decided:
        """Appends, and waits for the decision; a conflict or a rejection is returned, not raised.

        `timeout_s` is for both together.

        Raises:
            InvalidError, UnavailableError: refused at the door; nothing was appended.
            AppendUnacknowledgedError: no acknowledgement in time; repeat with its `mutation_id`.
            OutcomeUnknownError: appended at its `position`, and not decided in time.
            PartitionPausedError: appended; the projector of its partition waits for an operator.
        """
        deadline = monotonic() + timeout_s
        mutation_id, pending = self.send(mutation)
        position = _acknowledged(mutation_id, mutation.scope, pending, timeout_s)
        remaining_s = max(0.0, deadline - monotonic())
        return self.outcome_of(mutation_id, position, timeout_s=remaining_s).result()

    def send(self, mutation: Mutation) -> tuple[str, Future[Position]]:
        """Hands a mutation to the log without waiting for an outcome: its id, and the future of its place.

        Raises:
            InvalidError, UnavailableError, LogUnavailableError: as `submit`.
        """
        admitted = admit(
            self.stamped(mutation),
            self.partition_count(),
            allow_system=self._allow_system,
            secrets=self._secrets,
        )
        position: Future[Position] = unsettled()
        try:
            appended = self._log.append(admitted.partition, admitted.record)
        except LogUnavailableError as error:  # closed, or closing
            raise _unacknowledged(admitted.mutation.id, admitted.mutation.scope, error) from error
        appended.add_done_callback(lambda done: self._settle(admitted, done, position))
        return admitted.mutation.id, position

    def outcome_of(self, mutation_id: str, position: Position, *, timeout_s: float) -> Future[Decided]:
        """The outcome of a record that was acknowledged at `position`; a future that cannot be cancelled.

        It fails with `OutcomeUnknownError` after `timeout_s`, and with `PartitionPausedError`.
        """
        return watch_outcome(self._waiter, mutation_id, position, timeout_s)

    # --- what is known ---

    def acknowledged(self, partition: int) -> int | None:
        """The highest offset of the partition that the log acknowledged to this producer; None if there is none.

        A read that waits for it sees every write of this producer (row X5).
        """
        with self._lock:
            return self._acknowledged.get(partition)

    def covered(self, partition: int, offset: int, *, timeout_s: float) -> Future[None]:
        """Done when the serving projection covers `offset` of the partition.

        It fails with `NotUpToPositionError` after `timeout_s` (at once without a waiter), and with
        `PartitionPausedError` at once.
        """
        if self._waiter is None:
            future: Future[None] = unsettled()
            future.set_exception(NotUpToPositionError("this producer does not wait for the projection"))
            return future
        return self._waiter.position_reached({partition: offset}, timeout_s)

    def partition_of(self, scope: str) -> int:
        """The partition that a scope lives in. Raises as `partition_count`."""
        return partition_of(scope.encode(), self.partition_count())

    def partition_count(self) -> int:
        """The log's partition count, asked once: it never changes while the log is the same.

        Raises:
            LogUnavailableError: the log does not answer.
            LogMisconfiguredError: it does not exist or is not as kvfold needs it.
        """
        if self._partition_count is None:
            self._partition_count = self._log.describe().partition_count
        return self._partition_count

    @property
    def is_connected(self) -> bool:
        """False until `partition_count` has been answered: until then, `submit` may block."""
        return self._partition_count is not None

    def new_id(self) -> str:
        """A new mutation id: a UUIDv7."""
        return str(self._new_id())

    def stamped(self, mutation: Mutation) -> Mutation:
        """The mutation with an id, a source, a time and the caller's trace context, each where it had none."""
        time = self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return replace(
            mutation,
            id=mutation.id or self.new_id(),
            source=self._source if mutation.source == _UNSTAMPED else mutation.source,
            time=mutation.time or time,
            traceparent=mutation.traceparent or traceparent_of(),
        )

    def _settle(self, admitted: Admitted, done: Future[LogAppended], position: Future[Position]) -> None:
        """Passes the log's answer on; the position counts as acknowledged before anybody can see it."""
        error = done.exception()
        if error is None:
            appended = done.result()
            with self._lock:
                highest = self._acknowledged.get(appended.partition, -1)
                self._acknowledged[appended.partition] = max(highest, appended.offset)
            position.set_result(Position(appended.partition, appended.offset))
        elif isinstance(error, InvalidError) or not isinstance(error, KvfoldError):
            position.set_exception(error)
        else:
            unacknowledged = _unacknowledged(admitted.mutation.id, admitted.mutation.scope, error)
            unacknowledged.__cause__ = error
            position.set_exception(unacknowledged)


def _acknowledged(mutation_id: str, scope: str, pending: Future[Position], timeout_s: float) -> Position:
    try:
        return pending.result(timeout_s)
    except FutureTimeoutError as error:
        raise _unacknowledged(mutation_id, scope, error) from error


def _unacknowledged(mutation_id: str, scope: str, cause: BaseException) -> AppendUnacknowledgedError:
    why = str(cause) or "no answer in time"
    return AppendUnacknowledgedError(
        f"the log did not acknowledge mutation {mutation_id} ({why}): repeat it with the same id",
        mutation_id=mutation_id,
        scope=scope,
    )
