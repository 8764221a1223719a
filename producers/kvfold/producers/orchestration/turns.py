"""Turns: running orchestration functions as far as what waits for them goes, and appending what they did."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import structlog

from kvfold.producers.orchestration import messages
from kvfold.producers.orchestration.errors import NondeterminismError
from kvfold.producers.orchestration.execution import Begun, LiveExecution
from kvfold.producers.orchestration.observing import Observer
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.store import Append, RunnableInstance, WorkStore
from kvfold.producers.orchestration.tracing import TracedWork, Traces
from kvfold.producers.outcomes import Decided
from kvfold.schemas.errors import InvalidError, KvfoldError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.orchestration import FailureReason, Turn, TurnFailed
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.turn_limits import fitting_error

__all__ = ["Turns"]

_logger: Final = structlog.get_logger(__name__)
_LIVE_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Asked:
    """A turn that was appended. `live` is what ran it; None where what was appended is not its turn."""

    outcome: Future[Decided]
    live: LiveExecution | None


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
        asked: list[tuple[RunnableInstance, TracedWork, _Asked]] = []
        broken: set[str] = set()
        try:
            for instance in found:
                traced = self._traces.turn(instance)
                try:
                    ran = self._run(instance, traced)
                except KvfoldError:
                    raise
                except Exception:
                    # A mistake of ours: the others go on, and this one is tried again when its lease has run out.
                    _logger.exception("turn broken", instance_id=instance.instance_id)
                    self._drop(instance.scope)
                    broken.add(instance.scope)
                    continue
                if ran is None:
                    traced.end("conflict")
                else:
                    asked.append((instance, traced, ran))
            for instance, traced, ran in asked:
                self._settle(instance, traced, ran)
        finally:
            self._store.release([instance.scope for instance in found if instance.scope not in broken])
        self._observer.live_counted(len(self._live))
        return len(found)

    def close(self) -> None:
        """Drops every live execution."""
        while self._live:
            self._live.popitem()[1].close()

    def _run(self, instance: RunnableInstance, traced: TracedWork) -> _Asked | None:
        """Runs and appends a turn; None where the instance has moved on."""
        turn = self._turn(instance)
        if turn is None:
            return None
        traced.consumed(turn.consumed)
        # Taken here: by the time the turn is decided, others may have pushed it out of memory.
        live = self._live.get(instance.scope)
        try:
            return _Asked(self._append(traced.stamped(messages.turn(instance.scope, turn))), live)
        except InvalidError as error:
            mutation = self._unacceptable(instance, error.code, str(error))
            return _Asked(self._append(traced.stamped(mutation)), None)

    def _turn(self, instance: RunnableInstance) -> Turn | None:
        try:
            live = self._live_execution(instance)
            if live is None:
                return None
            return live.run(instance.waiting, worker=self._worker, seen=instance.seen)
        except NondeterminismError as error:
            self._drop(instance.scope)
            return self._failing(instance, str(error), "nondeterminism")

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

    def _settle(self, instance: RunnableInstance, traced: TracedWork, asked: _Asked) -> None:
        live = asked.live
        try:
            decided = asked.outcome.result()
            if _was_refused(decided.decision):
                live = None
                decision = decided.decision
                mutation = self._unacceptable(instance, decision.code or "", decision.detail or "")
                decided = self._append(traced.stamped(mutation)).result()
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
        elif live is not None:
            live.applied()
            if live.has_ended:
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

    def _unacceptable(self, instance: RunnableInstance, code: str, detail: str) -> Mutation:
        """What is appended instead of a turn that no log accepts: running it again would give the same."""
        self._drop(instance.scope)
        _logger.error("turn not accepted, failing orchestration", instance_id=instance.instance_id, code=code)
        failing = self._failing(instance, f"the turn is not accepted: {detail} ({code})", "limit")
        return messages.turn(instance.scope, failing)

    def _failing(self, instance: RunnableInstance, error: str, reason: FailureReason) -> Turn:
        """A turn that does nothing but fail the instance (rows O10, O18)."""
        failed = TurnFailed(kind="OrchestrationFailed", error=fitting_error(error), reason=reason)
        return Turn.model_construct(
            incarnation=instance.incarnation,
            execution_id=instance.execution_id,
            history_length=instance.history_length,
            worker=self._worker,
            seen=instance.seen,
            consumed=(),
            events=(failed,),
        )


def _was_refused(decision: Decision) -> bool:
    """Whether a turn was rejected and changed nothing. Over a limit, the fold has failed the instance itself."""
    return decision.status is DecisionStatus.REJECTED and decision.code != "limit"


def _is_at(live: LiveExecution, instance: RunnableInstance) -> bool:
    begun = live.begun
    return (begun.incarnation, begun.execution_id, live.history_length) == (
        instance.incarnation,
        instance.execution_id,
        instance.history_length,
    )
