"""Timers, and messages between instances. Each `step` does what is there.

A step finds work that is leased to it, does it, appends what came of it, and waits for the outcomes. Nothing depends on
an outcome arriving: a step that dies leaves leases that run out, and whoever does the work again appends the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

import structlog

from kvfold.producers.orchestration import messages
from kvfold.producers.orchestration.observing import Observer
from kvfold.producers.orchestration.store import Append, OutgoingMessage, WorkStore, message_lease, task_lease
from kvfold.producers.orchestration.tracing import Traces
from kvfold.producers.outcomes import Decided
from kvfold.schemas.errors import KvfoldError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import DecisionStatus

__all__ = ["Messages", "Timers"]

_logger: Final = structlog.get_logger(__name__)


class Timers:
    """Fires timers whose time has come by the store's clock; the fold refuses one that is early by the log's."""

    def __init__(self, store: WorkStore, append: Append, *, observer: Observer) -> None:
        self._store = store
        self._append = append
        self._observer = observer

    def step(self, limit: int) -> int:
        """Fires at most `limit` timers; gives how many there were."""
        tasks = self._store.due_timers(limit)
        try:
            for task, outcome in [(task, self._append(messages.timer_fired(task))) for task in tasks]:
                if _settled(outcome) is not None:
                    self._observer.timer_settled(task)
        finally:
            self._store.release([task_lease(task) for task in tasks])
        return len(tasks)


class Messages:
    """The relay: delivers outboxes, each sender's in order, each message with the id that it has for ever."""

    def __init__(self, store: WorkStore, append: Append, *, observer: Observer, traces: Traces) -> None:
        self._store = store
        self._append = append
        self._observer = observer
        self._traces = traces

    def step(self, limit: int) -> int:
        """Delivers at most `limit` messages; gives how many there were."""
        found = self._store.outgoing(limit)
        try:
            by_sender: OrderedDict[str, list[OutgoingMessage]] = OrderedDict()
            for message in found:
                by_sender.setdefault(message.scope, []).append(message)
            while by_sender:
                first = [queue.pop(0) for queue in by_sender.values()]
                by_sender = OrderedDict((scope, queue) for scope, queue in by_sender.items() if queue)
                for message in self._deliver(first):
                    # What comes after a message that is not delivered waits for it.
                    by_sender.pop(message.scope, None)
        finally:
            self._store.release(sorted({message_lease(message.scope) for message in found}))
        return len(found)

    def _deliver(self, batch: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
        """Appends them and then that they were delivered; gives those whose outcome is not known."""
        unknown: list[OutgoingMessage] = []
        closing: list[tuple[OutgoingMessage, Future[Decided]]] = []
        for message, outcome in [(message, self._append(self._delivery(message))) for message in batch]:
            decided = _settled(outcome)
            if decided is None:
                unknown.append(message)
                continue
            decision = decided.decision
            if message.kind == "start" and decision.status is not DecisionStatus.APPLIED:
                why = f"the child was not started: {decision.code}"
                told = _settled(self._append(messages.refusal(message, why)))
                if told is None:
                    unknown.append(message)
                    continue
            closing.append((message, self._append(messages.delivered(message))))
        for message, outcome in closing:
            if _settled(outcome) is None:
                unknown.append(message)
            else:
                self._observer.message_delivered(message)
        return unknown

    def _delivery(self, message: OutgoingMessage) -> Mutation:
        return messages.delivery(message, self._traces.sent_by(message))


def _settled(outcome: Future[Decided]) -> Decided | None:
    """The outcome; None if it is not known, which a later step finds out."""
    try:
        return outcome.result()
    except KvfoldError as error:
        _logger.warning("message outcome unknown", code=error.code)
        return None
