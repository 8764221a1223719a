"""`Worker`: runs the orchestrations and activities of a registry until it is stopped.

Any number of workers, on any machines, share the work. Each loop does its steps one after another, at once when
something was done, else when a projector has committed or its interval is over. While log or Postgres is away the loops
wait and try again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import structlog

from kvfold.producers.orchestration.activities import Activities
from kvfold.producers.orchestration.client import OrchestrationClient
from kvfold.producers.orchestration.delivery import Messages, Timers
from kvfold.producers.orchestration.observing import Observer
from kvfold.producers.orchestration.postgres_store import PostgresWorkStore, work_pool
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.tracing import Traces
from kvfold.producers.orchestration.turns import Turns
from kvfold.producers.orchestration.wake_ups import WakeUps
from kvfold.producers.outcomes import Decided
from kvfold.producers.producer import Producer
from kvfold.schemas.errors import KvfoldError
from kvfold.schemas.mutation import Mutation

__all__ = ["Worker", "WorkerSettings"]

_log = structlog.get_logger(__name__)

_TURNS_MAX: Final = 100
_MESSAGES_MAX: Final = 200
_POLL_S: Final = 0.5
_TIMERS_POLL_S: Final = 0.1
_RETRY_S: Final = 0.5
_OUTCOME_TIMEOUT_S: Final = 8.0
_CONNECTIONS: Final = 6


@dataclass(frozen=True)
class WorkerSettings:
    """How a worker works.

    - `name`: who executes, as the projection shows it; another one for each process.
    - `activities_max`: how many activities run at the same time.
    - `lease_s`: for how long work is leased; an activity's lease is renewed while it runs.
    - `live_max`: how many executions stay in memory between their turns.
    """

    name: str
    activities_max: int = 32
    lease_s: float = 30.0
    live_max: int = 1_000


class Worker:
    """The loops of a worker, one thread each, and the threads of its activities."""

    def __init__(
        self,
        registry: Registry,
        producer: Producer,
        client: OrchestrationClient,
        dsn: str,
        settings: WorkerSettings,
        observer: Observer,
        traces: Traces | None = None,
    ) -> None:
        traces = traces or Traces()
        self._producer = producer
        self._settings = settings
        self._stopping = threading.Event()
        self._wake_ups = WakeUps(dsn)
        self._pool = work_pool(dsn, size_max=_CONNECTIONS + settings.activities_max)
        self._executor = ThreadPoolExecutor(settings.activities_max, thread_name_prefix="activity")
        store = PostgresWorkStore(self._pool, worker=settings.name, lease_s=settings.lease_s)
        self._turns = Turns(
            registry,
            store,
            self._append,
            worker=settings.name,
            observer=observer,
            traces=traces,
            live_max=settings.live_max,
        )
        self._activities = Activities(
            registry,
            store,
            self._append,
            client=client,
            executor=self._executor,
            limit=settings.activities_max,
            observer=observer,
            traces=traces,
        )
        self._timers = Timers(store, self._append, observer=observer)
        self._messages = Messages(store, self._append, observer=observer, traces=traces)
        self._threads = [
            self._loop("turns", lambda: self._turns.step(_TURNS_MAX), _POLL_S),
            self._loop("activities", lambda: self._activities.step(settings.activities_max), _POLL_S),
            self._loop("timers", lambda: self._timers.step(_MESSAGES_MAX), _TIMERS_POLL_S),
            self._loop("time-outs", self._activities.expire, _TIMERS_POLL_S),
            self._loop("messages", lambda: self._messages.step(_MESSAGES_MAX), _POLL_S),
            threading.Thread(target=self._keep_leases, name="worker-leases", daemon=True),
        ]

    def start(self) -> None:
        """Begins to work. Postgres may be away."""
        self._pool.open()
        self._wake_ups.start()
        for thread in self._threads:
            thread.start()
        _log.info("worker started", worker=self._settings.name)

    def stop(self) -> None:
        """Takes nothing new, ends what is under way, and waits for it; activities that ask are told to end early."""
        self._stopping.set()
        self._activities.stopping.set()
        self._wake_ups.close()
        for thread in self._threads:
            thread.join()
        self._executor.shutdown(wait=True)
        self._turns.close()
        self._pool.close()
        _log.info("worker stopped", worker=self._settings.name)

    def _append(self, mutation: Mutation) -> Future[Decided]:
        return self._producer.submit(mutation, timeout_s=_OUTCOME_TIMEOUT_S).outcome

    def _loop(self, what: str, step: Callable[[], int], interval_s: float) -> threading.Thread:
        def run() -> None:
            while not self._stopping.is_set():
                count = self._wake_ups.count
                try:
                    done = step()
                except KvfoldError as error:
                    _log.warning("work interrupted", work=what, code=error.code, reason=str(error))
                    self._stopping.wait(_RETRY_S)
                    continue
                except Exception:
                    # A mistake of ours: it is told, and the loop goes on.
                    _log.exception("work broken", work=what)
                    self._stopping.wait(_RETRY_S)
                    continue
                if done == 0:
                    self._wake_ups.wait(count, interval_s)

        return threading.Thread(target=run, name=f"worker-{what}", daemon=True)

    def _keep_leases(self) -> None:
        while not self._stopping.wait(self._settings.lease_s / 3) or self._activities.running:
            try:
                self._activities.renew()
            except KvfoldError as error:
                _log.warning("leases not renewed", code=error.code)
