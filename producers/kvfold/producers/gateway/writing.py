"""One write from a coroutine: append, wait for the decision, all within a fixed time. No thread waits meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from kvfold.producers.errors import AppendUnacknowledgedError
from kvfold.producers.outcomes import Decided
from kvfold.producers.producer import Producer
from kvfold.schemas.errors import LogUnavailableError, OutcomeUnknownError, UnavailableError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.position import Position

__all__ = ["Sent", "Undecided", "Written", "connect", "send", "write"]

_WAITER_ALLOWANCE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Sent:
    """A mutation that the log acknowledged, and that nobody waited for."""

    mutation_id: str
    position: Position


@dataclass(frozen=True, slots=True)
class Undecided:
    """A write whose outcome is not known: not acknowledged (no position), not decided in time, or paused.

    Repeating the mutation with the same id is safe in each case.
    """

    mutation_id: str
    position: Position | None
    error: UnavailableError


Written = Decided | Undecided


async def connect(producer: Producer, *, timeout_s: float) -> UnavailableError | None:
    """Lets the producer ask the log how many partitions it has, the one call that may block; the error if it fails."""
    if producer.is_connected:
        return None
    try:
        await asyncio.wait_for(asyncio.to_thread(producer.partition_count), timeout_s)
    except TimeoutError:
        return LogUnavailableError("the log does not answer")
    except UnavailableError as error:
        return error
    return None


async def send(producer: Producer, mutation: Mutation, *, timeout_s: float) -> Sent | Undecided:
    """Appends within `timeout_s` and does not wait for the decision.

    Raises:
        InvalidError, UnavailableError: refused at the door; nothing was appended.
    """
    deadline = _now() + timeout_s
    stamped = producer.stamped(mutation)
    failed = await connect(producer, timeout_s=timeout_s)
    if failed is not None:
        return Undecided(stamped.id, None, failed)
    try:
        mutation_id, pending = producer.send(stamped)
    except AppendUnacknowledgedError as error:
        return Undecided(stamped.id, None, error)
    try:
        position = await asyncio.wait_for(asyncio.wrap_future(pending), max(0.0, deadline - _now()))
    except TimeoutError:
        return Undecided(mutation_id, None, _unacknowledged(stamped))
    except UnavailableError as error:
        return Undecided(mutation_id, None, error)
    return Sent(mutation_id, position)


async def write(
    producer: Producer, mutation: Mutation, *, timeout_s: float, outcome_timeout_s: float | None = None
) -> Written:
    """Appends and waits for the decision, both within `timeout_s`; `outcome_timeout_s` gives the latter its own time.

    Raises:
        InvalidError, UnavailableError: refused at the door; nothing was appended.
    """
    deadline = _now() + timeout_s
    sent = await send(producer, mutation, timeout_s=timeout_s)
    if isinstance(sent, Undecided):
        return sent
    wait_s = max(0.0, deadline - _now()) if outcome_timeout_s is None else outcome_timeout_s
    outcome = producer.outcome_of(sent.mutation_id, sent.position, timeout_s=wait_s)
    try:
        # The waiter keeps the time itself; should it not, the caller still gets an answer in time.
        return await asyncio.wait_for(asyncio.wrap_future(outcome), wait_s + _WAITER_ALLOWANCE_S)
    except TimeoutError:
        return Undecided(sent.mutation_id, sent.position, _undecided(sent))
    except UnavailableError as error:
        return Undecided(sent.mutation_id, sent.position, error)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _undecided(sent: Sent) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"mutation {sent.mutation_id} is appended at {sent.position} and not decided yet",
        mutation_id=sent.mutation_id,
        position=str(sent.position),
    )


def _unacknowledged(mutation: Mutation) -> AppendUnacknowledgedError:
    return AppendUnacknowledgedError(
        f"the log did not acknowledge mutation {mutation.id} in time: repeat it with the same id",
        mutation_id=mutation.id,
        scope=mutation.scope,
    )
