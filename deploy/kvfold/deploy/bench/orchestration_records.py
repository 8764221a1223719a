"""The floor of the orchestration benches: the records that a worker would append, by plain calls of the SDK.

What each of the six records says is found out once, by a run in memory; only offsets differ from instance to instance.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Final

from kvfold.deploy.bench.orchestration_app import registry
from kvfold.producers.mutations import orchestration_started
from kvfold.producers.orchestration import messages
from kvfold.producers.orchestration.execution import Begun, LiveExecution, WaitingMessage
from kvfold.producers.orchestration.observing import Observer
from kvfold.producers.orchestration.store import DueTask
from kvfold.producers.outcomes import Decided, applied, unsettled
from kvfold.producers.producer import Producer
from kvfold.schemas.errors import UnavailableError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.names import orchestration_scope
from kvfold.schemas.orchestration import ActivityCompleted, ActivityScheduled, Turn

__all__ = ["Chains", "turns"]

_WORKER: Final = "floor"


def turns() -> list[Turn]:
    """The turns of one instance, as a worker would append them; each but the last ends with an activity."""
    begun = Begun("floor", 0, 1, 1, {}, 0)
    live = LiveExecution(registry.orchestrations["work"], begun, Observer())
    found = [live.run((), worker=_WORKER, seen=0)]
    while not live.has_ended:
        event_id = live.history_length
        answer = WaitingMessage(0, "ActivityCompleted", {"event_id": event_id, "result": event_id}, 0)
        found.append(live.run((answer,), worker=_WORKER, seen=0))
    return found


class Chains:
    """Appends the records of instances: each record when the one before it is decided, several instances at a time."""

    def __init__(self, producer: Producer, *, timeout_s: float) -> None:
        self._producer = producer
        self._timeout_s = timeout_s
        self._turns = turns()
        self._numbers = itertools.count(1)

    def run(self, count: int, in_flight: int) -> list[float]:
        """Appends so many instances with so many in flight; the seconds that each took.

        Raises:
            ConflictError, RejectedError: a record was not applied.
            UnavailableError: nothing was decided for too long.
        """
        times: list[float] = []
        flying: dict[Future[None], float] = {}
        left = count
        while left or flying:
            while left and len(flying) < in_flight:
                flying[self._begin()] = time.perf_counter()
                left -= 1
            done, _ = wait(flying, self._timeout_s, FIRST_COMPLETED)
            if not done:
                raise UnavailableError(
                    f"nothing was decided for {self._timeout_s:.0f} s", code="bench-failed"
                )
            for ended in done:
                ended.result()
                times.append(time.perf_counter() - flying.pop(ended))
        return times

    def _begin(self) -> Future[None]:
        """Appends the first record of an instance; the future is settled when its last one is decided."""
        scope = orchestration_scope(f"floor-{next(self._numbers)}")
        end: Future[None] = unsettled()
        steps = self._records(scope)

        def go_on(mutation: Mutation) -> None:
            self._producer.submit(mutation).outcome.add_done_callback(decided)

        def decided(outcome: Future[Decided]) -> None:
            try:
                found = outcome.result()
                applied(found)
                go_on(steps.send(found.position.offset))
            except StopIteration:
                end.set_result(None)
            except Exception as error:
                end.set_exception(error)

        go_on(next(steps))
        return end

    def _records(self, scope: str) -> Generator[Mutation, int, None]:
        """Gives each record of an instance, and is sent the offset that it got."""
        incarnation = newest = yield orchestration_started(scope, "work", 1, mode="runtime")
        consumed: tuple[int, ...] = ()
        for turn in self._turns:
            place = {"incarnation": incarnation, "seen": newest, "consumed": consumed}
            yield messages.turn(scope, turn.model_copy(update=place))
            if isinstance(turn.events[-1], ActivityScheduled):
                newest = yield _completion(scope, incarnation, _length(turn))
                consumed = (newest,)


def _length(turn: Turn) -> int:
    """How long the history is after a turn, and so the number of its last event."""
    return turn.history_length + len(turn.consumed) + len(turn.events)


def _completion(scope: str, incarnation: int, event_id: int) -> Mutation:
    task = DueTask(scope, "", incarnation, 1, event_id, "activity", "step", {}, 1, 0, 0)
    done = ActivityCompleted(
        incarnation=incarnation, execution_id=1, event_id=event_id, attempt=1, result=event_id
    )
    return messages.activity_ended(task, done)
