"""The four kinds of work: turns, activities, timers, and messages between instances. Each `step` does what is there.

A step finds work that is leased to it, does it, appends what came of it, and waits for the outcomes. Nothing depends on
an outcome arriving: a step that dies leaves leases that run out, and whoever does the work again appends the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from time import monotonic
from typing import Final

import structlog

from kvfold.producers.orchestration import messages
from kvfold.producers.orchestration.activity import InstanceReader, run_activity
from kvfold.producers.orchestration.errors import NondeterminismError
from kvfold.producers.orchestration.execution import Begun, LiveExecution
from kvfold.producers.orchestration.observing import ActivityOutcome, Observer
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.store import (
    DueTask,
    OutgoingMessage,
    RunnableInstance,
    WorkStore,
    message_lease,
    task_lease,
)
from kvfold.producers.orchestration.tracing import TracedWork, Traces
from kvfold.producers.outcomes import Decided
from kvfold.schemas.errors import KvfoldError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.orchestration import ActivityCompleted, Turn, TurnFailed
from kvfold.schemas.outcome import DecisionStatus
from kvfold.schemas.turn_limits import fitting_error

__all__ = ["Activities", "Append", "Messages", "Timers", "Turns"]

Append = Callable[[Mutation], "Future[Decided]"]
"""Appends a mutation; the future is its outcome."""

_logger = structlog.get_logger(__name__)
_LIVE_MAX: Final = 1_000


class Turns:
    """Runs orchestration functions. Live executions stay in memory between their turns; the oldest give way."""

    def __init__(
        self,
        registry: Registry,
        store: WorkStore,
        append: Append,
        *,
        worker: str,
        observer: Observer,
        traces: Traces,
        live_max: int = _LIVE_MAX,
    ) -> None:
        self._registry = registry
        self._store = store
        self._append = append
        self._worker = worker
        self._observer = observer
        self._traces = traces
        self._live_max = live_max
        self._live: OrderedDict[str, LiveExecution] = OrderedDict()

    def step(self, limit: int) -> int:
        """Runs a turn of each of at most `limit` runnable instances; gives how many there were."""
        found = self._store.runnable(self._registry.orchestrations.keys(), limit)
        asked: list[tuple[RunnableInstance, TracedWork, Future[Decided]]] = []
        try:
            for instance in found:
                traced = self._traces.turn(instance)
                turn = self._turn(instance)
                if turn is None:
                    traced.end("conflict")
                    continue
                traced.consumed(turn.consumed)
                mutation = traced.stamped(messages.turn(instance.scope, turn))
                asked.append((instance, traced, self._append(mutation)))
            for instance, traced, outcome in asked:
                self._settle(instance, traced, outcome)
        finally:
            self._store.release([instance.scope for instance in found])
        return len(found)

    def close(self) -> None:
        """Drops every live execution."""
        while self._live:
            self._live.popitem()[1].close()

    def _turn(self, instance: RunnableInstance) -> Turn | None:
        try:
            live = self._live_execution(instance)
            if live is None:
                return None
            return live.run(instance.waiting, worker=self._worker, seen=instance.seen)
        except NondeterminismError as error:
            self._drop(instance.scope)
            return _nondeterministic(instance, self._worker, str(error))

    def _live_execution(self, instance: RunnableInstance) -> LiveExecution | None:
        """The execution in memory if it is this one and as far; else a replay of its history. None: it has moved on."""
        live = self._live.get(instance.scope)
        if live is not None and _is_at(live, instance):
            self._live.move_to_end(instance.scope)
            return live
        self._drop(instance.scope)
        history = self._store.history(instance) if instance.history_length else ()
        if history is None:
            return None
        begun = Begun(
            instance.instance_id,
            instance.incarnation,
            instance.execution_id,
            instance.input,
            instance.kv,
            instance.started_ms,
            instance.children,
        )
        live = LiveExecution(self._registry.orchestrations[instance.name], begun, self._observer)
        live.replay(history)
        self._live[instance.scope] = live
        while len(self._live) > self._live_max:
            self._live.popitem(last=False)[1].close()
        return live

    def _settle(self, instance: RunnableInstance, traced: TracedWork, outcome: Future[Decided]) -> None:
        try:
            decided = outcome.result()
        except KvfoldError as error:
            # In the log or not: whoever runs the instance next goes by what the log decided.
            self._drop(instance.scope)
            _logger.warning("turn outcome unknown", instance_id=instance.instance_id, code=error.code)
            self._tell(instance, traced, None)
            return
        decision = decided.decision
        self._tell(instance, traced, decision.status, decided.position.offset)
        if decision.status is not DecisionStatus.APPLIED:
            self._drop(instance.scope)
            _logger.info("turn dropped", instance_id=instance.instance_id, code=decision.code)
        elif (live := self._live.get(instance.scope)) is not None and live.has_ended:
            self._drop(instance.scope)

    def _tell(
        self,
        instance: RunnableInstance,
        traced: TracedWork,
        status: DecisionStatus | None,
        offset: int | None = None,
    ) -> None:
        traced.end("unknown" if status is None else status.value, offset)
        self._observer.turn_settled(instance, status)

    def _drop(self, scope: str) -> None:
        live = self._live.pop(scope, None)
        if live is not None:
            live.close()


class Activities:
    """Runs activities on an executor's threads."""

    def __init__(
        self,
        registry: Registry,
        store: WorkStore,
        append: Append,
        *,
        client: InstanceReader,
        executor: Executor,
        limit: int,
        observer: Observer,
        traces: Traces,
    ) -> None:
        self._registry = registry
        self._store = store
        self._append = append
        self._client = client
        self._executor = executor
        self._limit = limit
        self._observer = observer
        self._traces = traces
        self._lock = threading.Lock()
        self._running: dict[str, DueTask] = {}
        self.stopping = threading.Event()

    def step(self, limit: int) -> int:
        """Begins at most `limit` activities, fewer if that many run already; gives how many."""
        free = min(limit, self._limit - len(self._running))
        tasks = self._store.due_activities(self._registry.activities.keys(), free) if free > 0 else ()
        for task in tasks:
            with self._lock:
                self._running[task_lease(task)] = task
            self._executor.submit(self._run, task)
        return len(tasks)

    @property
    def running(self) -> int:
        """How many run now."""
        return len(self._running)

    def renew(self) -> None:
        """Keeps the leases of the running ones: the worker's heartbeat."""
        with self._lock:
            leases = list(self._running)
        if leases:
            self._store.renew(leases)

    def _run(self, task: DueTask) -> None:
        try:
            self._attempt(task)
        finally:
            with self._lock:
                self._running.pop(task_lease(task), None)
            self._store.release([task_lease(task)])

    def _attempt(self, task: DueTask) -> None:
        traced = self._traces.activity(task)
        self._observer.activity_began(task)
        began_s = monotonic()
        with traced.current():
            ended = run_activity(self._registry.activities[task.name], task, self._client, self.stopping)
        seconds = monotonic() - began_s
        outcome: ActivityOutcome = "completed" if isinstance(ended, ActivityCompleted) else "failed"
        offset: int | None = None
        try:
            appended = self._append(traced.stamped(messages.activity_ended(task, ended)))
            offset = appended.result().position.offset
        except KvfoldError as error:
            outcome = "unknown"
            _logger.warning("activity outcome unknown", activity=task.name, code=error.code)
        traced.end(outcome, offset)
        self._observer.activity_ended(task, outcome, seconds)


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


def _is_at(live: LiveExecution, instance: RunnableInstance) -> bool:
    begun = live.begun
    return (begun.incarnation, begun.execution_id, live.history_length) == (
        instance.incarnation,
        instance.execution_id,
        instance.history_length,
    )


def _nondeterministic(instance: RunnableInstance, worker: str, error: str) -> Turn:
    """A turn that does nothing but fail the instance (row O10)."""
    failed = TurnFailed(kind="OrchestrationFailed", error=fitting_error(error), reason="nondeterminism")
    return Turn.model_construct(
        incarnation=instance.incarnation,
        execution_id=instance.execution_id,
        history_length=instance.history_length,
        worker=worker,
        seen=instance.seen,
        consumed=(),
        events=(failed,),
    )
