"""Outcomes: what was decided about a record, as producers see it, and the wait for it."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, Protocol

from kvfold.schemas.errors import (
    NotUpToPositionError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from kvfold.schemas.outcome import Decision
from kvfold.schemas.position import Position

__all__ = ["Decided", "DecisionFound", "OutcomeWaiter", "passed_on", "unsettled", "watch_outcome"]


@dataclass(frozen=True, slots=True)
class Decided:
    """The outcome of a mutation, and the position of the record that it was decided at.

    For a repeat, both are the first record's (row X4); `repeated_at` is then where the repeat stands, else None.
    """

    mutation_id: str
    decision: Decision
    position: Position
    repeated_at: Position | None = None


class DecisionFound(Protocol):
    """What a waiter finds out about a record; the read model `DecisionView` has this shape.

    `position` is where it was decided: for a repeat, the first record's.
    """

    @property
    def position(self) -> Position: ...
    @property
    def decision(self) -> Decision: ...


class OutcomeWaiter(Protocol):
    """The part of `kvfold.reads.waiting.Waiter` that producers use."""

    def decision(self, position: Position, timeout_s: float) -> Future[Any]:
        """The decision about the record at `position`; fails with `NotUpToPositionError` after `timeout_s`."""
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

    def found(done: Future[Any]) -> None:
        try:
            outcome.set_result(_decided(mutation_id, position, done.result()))
        except (NotUpToPositionError, StoreUnavailableError, FutureTimeoutError) as error:
            unknown = _unknown(mutation_id, position, str(error) or "not decided in time")
            unknown.__cause__ = error
            outcome.set_exception(unknown)
        except BaseException as error:
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


def _decided(mutation_id: str, position: Position, found: DecisionFound) -> Decided:
    repeated_at = None if found.position == position else position
    return Decided(mutation_id, found.decision, found.position, repeated_at)


def _unknown(mutation_id: str, position: Position, why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"mutation {mutation_id} is appended at {position}, and its outcome is not known ({why})",
        mutation_id=mutation_id,
        position=str(position),
    )
