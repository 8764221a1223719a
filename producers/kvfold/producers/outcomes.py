"""Outcomes: what was decided about a record, as producers see it, and the wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from kvfold.reads.decisions import DecisionView
from kvfold.schemas.errors import (
    ConflictError,
    GoneError,
    NotUpToPositionError,
    OutcomeUnknownError,
    RejectedError,
    StoreUnavailableError,
)
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.position import Position

__all__ = ["Decided", "OutcomeWaiter", "applied", "passed_on", "unsettled", "watch_outcome"]


@dataclass(frozen=True, slots=True)
class Decided:
    """The outcome of a mutation, and the position of the record that it was decided at.

    For a repeat, both are the first record's (row X4); `repeated_at` is then where the repeat stands, else None.
    """

    mutation_id: str
    decision: Decision
    position: Position
    repeated_at: Position | None = None


class OutcomeWaiter(Protocol):
    """The part of `kvfold.reads.waiting.Waiter` that producers use."""

    def decision(self, position: Position, timeout_s: float) -> Future[DecisionView]:
        """The decision on the record at `position`; for a repeat the first decision, with the first position.

        The future fails with `NotUpToPositionError` after `timeout_s`, with `PartitionPausedError` at once.
        """
        ...

    def position_reached(self, positions: Mapping[int, int], timeout_s: float) -> Future[None]:
        """Done when the serving generation covers each offset (by partition).

        The future fails with `NotUpToPositionError` after `timeout_s`, with `PartitionPausedError` at once.
        """
        ...


def watch_outcome(
    waiter: OutcomeWaiter | None, mutation_id: str, position: Position, timeout_s: float
) -> Future[Decided]:
    """The outcome of the record at `position`, as a future that cannot be cancelled.

    It fails with `OutcomeUnknownError` when nothing was decided in time, nobody waits here, or Postgres is away; and
    with `PartitionPausedError`. The record is in the log in each of these cases.
    """
    outcome: Future[Decided] = unsettled()
    if waiter is None:
        outcome.set_exception(_unknown(mutation_id, position, "this producer does not wait for outcomes"))
        return outcome

    def found(done: Future[DecisionView]) -> None:
        error = done.exception()
        match error:
            case None:
                outcome.set_result(_decided(mutation_id, position, done.result()))
            case NotUpToPositionError() | GoneError() | StoreUnavailableError():
                unknown = _unknown(mutation_id, position, str(error))
                unknown.__cause__ = error
                outcome.set_exception(unknown)
            case _:
                outcome.set_exception(error)

    waiter.decision(position, timeout_s).add_done_callback(found)
    return outcome


def unsettled() -> Future[Any]:
    """A future that is on its way and cannot be cancelled: whoever settles it need not ask first."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def passed_on(source: Future[Decided], target: Future[Decided]) -> None:
    """Settles `target` as the settled `source`."""
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())


def _decided(mutation_id: str, position: Position, found: DecisionView) -> Decided:
    repeated_at = None if found.position == position else position
    return Decided(mutation_id, found.decision, found.position, repeated_at)


def _unknown(mutation_id: str, position: Position, why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"mutation {mutation_id} is appended at {position}, and its outcome is not known ({why})",
        mutation_id=mutation_id,
        position=str(position),
    )


def applied(decided: Decided) -> Decision:
    """The decision of a mutation that was applied.

    Raises:
        ConflictError: with the decision's code and the current version, None if the key is absent.
        RejectedError: with the decision's code (`quota`, `limit`, `id-reused`, …).
    """
    decision = decided.decision
    message = decision.detail or f"the mutation at {decided.position} was not applied: {decision.code}"
    match decision.status:
        case DecisionStatus.APPLIED:
            return decision
        case DecisionStatus.CONFLICT:
            assert decision.code is not None
            raise ConflictError(message, code=decision.code, version=decision.version or None)
        case DecisionStatus.REJECTED:
            assert decision.code is not None
            raise RejectedError(message, code=decision.code)
        case DecisionStatus.PENDING:
            raise AssertionError("a waiter never answers with what is not decided")
