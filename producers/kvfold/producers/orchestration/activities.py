"""The dispatch of activities: attempts on threads, their leases, their time-outs and heartbeats."""

from __future__ import annotations

import threading
from concurrent.futures import Executor
from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog

from kvfold.producers.orchestration import messages
from kvfold.producers.orchestration.activity import InstanceReader, failed, run_activity
from kvfold.producers.orchestration.observing import ActivityOutcome, Observer
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.store import Append, DueTask, WorkStore, task_lease
from kvfold.producers.orchestration.tracing import TracedWork, Traces
from kvfold.schemas.errors import KvfoldError
from kvfold.schemas.orchestration import ActivityCompleted, ActivityFailed

__all__ = ["Activities"]

_logger: Final = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Attempt:
    """An attempt whose function runs. `is_given_up`: the log was told that it failed, whatever the function does yet."""

    task: DueTask
    traced: TracedWork
    began_s: float
    beat_s: float
    is_given_up: bool = False

    def beat(self) -> None:
        """A sign of life."""
        self.beat_s = monotonic()

    def overdue(self) -> str | None:
        """Why it is to be given up; None if it is not."""
        now_s = monotonic()
        attempt_ms, heartbeat_ms = self.task.data.get("attempt_ms"), self.task.data.get("heartbeat_ms")
        if attempt_ms is not None and now_s - self.began_s > attempt_ms / 1000:
            return f"the attempt took longer than {attempt_ms} ms"
        if heartbeat_ms is not None and now_s - self.beat_s > heartbeat_ms / 1000:
            return f"the attempt gave no heartbeat for {heartbeat_ms} ms"
        return None


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
        # By lease; None until the attempt's thread has begun with it.
        self._attempts: dict[str, _Attempt | None] = {}
        self.stopping = threading.Event()

    def step(self, limit: int) -> int:
        """Begins at most `limit` activities, fewer if that many run already; gives how many."""
        free = min(limit, self._limit - self.running)
        tasks = self._store.due_activities(self._registry.activities.keys(), free) if free > 0 else ()
        for task in tasks:
            with self._lock:
                self._attempts[task_lease(task)] = None
            self._executor.submit(self._run, task)
        return len(tasks)

    @property
    def running(self) -> int:
        """How many run now."""
        return len(self._attempts)

    def renew(self) -> None:
        """Keeps the leases of those that run and are not given up: the worker's own heartbeat."""
        with self._lock:
            leases = [
                lease
                for lease, attempt in self._attempts.items()
                if attempt is None or not attempt.is_given_up
            ]
        if leases:
            self._store.renew(leases)

    def expire(self) -> int:
        """Fails the attempts that take too long, or are silent for too long; gives how many.

        A thread cannot be stopped from outside: the function goes on, and what it gives in the end counts no more.
        """
        with self._lock:
            late = [
                (attempt, reason)
                for attempt in self._attempts.values()
                if attempt is not None
                and not attempt.is_given_up
                and (reason := attempt.overdue()) is not None
            ]
            for attempt, _ in late:
                attempt.is_given_up = True
        for attempt, reason in late:
            self._end(attempt, failed(attempt.task, reason))
        return len(late)

    def _run(self, task: DueTask) -> None:
        lease = task_lease(task)
        try:
            self._attempt(task, lease)
        except Exception:
            # A mistake of ours: it is tried again when its lease has run out.
            _logger.exception("activity broken", activity=task.name, instance_id=task.instance_id)
            self._forget(lease)
        else:
            self._forget(lease)
            self._store.release([lease])

    def _attempt(self, task: DueTask, lease: str) -> None:
        traced = self._traces.activity(task)
        now_s = monotonic()
        attempt = _Attempt(task, traced, began_s=now_s, beat_s=now_s)
        self._observer.activity_began(task)
        with self._lock:
            self._attempts[lease] = attempt
        with traced.current():
            ended = run_activity(
                self._registry.activities[task.name], task, self._client, self.stopping, attempt.beat
            )
        with self._lock:
            is_late, attempt.is_given_up = attempt.is_given_up, True
        if not is_late:
            self._end(attempt, ended)

    def _end(self, attempt: _Attempt, ended: ActivityCompleted | ActivityFailed) -> None:
        task, traced = attempt.task, attempt.traced
        seconds = monotonic() - attempt.began_s
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

    def _forget(self, lease: str) -> None:
        with self._lock:
            self._attempts.pop(lease, None)
