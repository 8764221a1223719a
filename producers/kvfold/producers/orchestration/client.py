"""Orchestration instances from outside (rows O8, O12 to O19): starting, `external` instances, and reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic, sleep
from typing import Any, Final, Literal

from kvfold.producers import mutations
from kvfold.producers.outcomes import applied
from kvfold.producers.producer import Producer
from kvfold.producers.reading import OwnWritesReader, QueryReader
from kvfold.reads.orchestration import InstanceView, instance, instance_kv, instance_value
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX
from kvfold.schemas.names import (
    check_orchestration_key,
    check_orchestration_name,
    orchestration_scope,
)
from kvfold.schemas.orchestration import Event

__all__ = ["OrchestrationClient"]

_WAIT_POLL_S: Final = 0.05


class OrchestrationClient:
    """Instances and their KV. Reads see this producer's writes. Safe for several threads.

    Every write waits for its decision and raises, besides what `Producer.execute` raises: `InvalidError`,
    `ConflictError` (`already-exists`, `unknown-instance`, `finished`, `wrong-execution`, …), `RejectedError` (`limit`).
    """

    def __init__(
        self,
        producer: Producer,
        reader: QueryReader,
        *,
        actor: str | None = None,
        timeout_s: float = OPEN_WAIT_SECONDS_MAX,
    ) -> None:
        self._producer = producer
        self._reads = OwnWritesReader(producer, reader, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._actor = actor

    # --- writes ---

    def start(
        self,
        instance_id: str,
        name: str,
        input: Any = None,
        *,
        mode: Literal["runtime", "external"] = "runtime",
    ) -> int:
        """Makes an instance and gives its incarnation; `input` is any JSON value.

        Workers run it (`kvfold worker`), unless its mode is `external`: then `append_events` tells what it did.

        Raises:
            ConflictError: `already-exists`.
        """
        scope = orchestration_scope(instance_id)
        mutation = mutations.orchestration_started(scope, name, input, mode=mode, actor=self._actor)
        decided = self._producer.execute(mutation, self._timeout_s)
        applied(decided)
        return decided.position.offset

    def append_events(
        self,
        instance_id: str,
        execution_id: int,
        events: Sequence[Event],
        *,
        incarnation: int | None = None,
    ) -> None:
        """Appends what an `external` instance did, all or nothing (rows O12, O17).

        Raises:
            ConflictError: unknown or finished instance, another execution or incarnation, a `runtime` instance.
            RejectedError: `limit`: over the key count or a value's size; the instance goes on.
        """
        mutation = mutations.orchestration_events(
            orchestration_scope(instance_id),
            execution_id,
            events,
            incarnation=incarnation,
            actor=self._actor,
        )
        applied(self._producer.execute(mutation, self._timeout_s))

    def raise_event(self, instance_id: str, name: str, data: Any = None) -> None:
        """Raises an event for a `runtime` instance; `data` is any JSON value. It waits until the code waits for it.

        Raises:
            ConflictError: `unknown-instance`, `finished`, `wrong-mode`.
            RejectedError: `limit`: the name, the data, or 10,000 events that wait already.
        """
        scope = orchestration_scope(instance_id)
        mutation = mutations.orchestration_event_raised(scope, name, data, actor=self._actor)
        applied(self._producer.execute(mutation, self._timeout_s))

    def cancel(self, instance_id: str, reason: str = "") -> None:
        """Asks a `runtime` instance to end; its code may tidy up first.

        Raises:
            ConflictError: `unknown-instance`, `finished`, `wrong-mode`.
        """
        scope = orchestration_scope(instance_id)
        mutation = mutations.orchestration_cancel_requested(scope, reason, actor=self._actor)
        applied(self._producer.execute(mutation, self._timeout_s))

    def prune(self, instance_id: str, execution_ids: Sequence[int], *, keep_values: bool = False) -> int:
        """Removes these executions with the keys that they wrote last (row O14); gives how many there were.

        Raises:
            ConflictError: `unknown-instance`, or `current-execution` where the current one is among them.
        """
        mutation = mutations.orchestration_executions_pruned(
            orchestration_scope(instance_id), execution_ids, keep_values=keep_values, actor=self._actor
        )
        removed = applied(self._producer.execute(mutation, self._timeout_s)).removed
        assert removed is not None
        return removed

    def prune_before(self, instance_id: str, execution_id: int, *, keep_values: bool = False) -> int:
        """As `prune`, of every execution below this one. Needs format level 2 (`kvfold format raise`).

        Raises:
            ConflictError: `unknown-instance`, or `current-execution` where the current one is below it.
            RejectedError: `unknown-type`: the log has format level 1.
        """
        mutation = mutations.orchestration_executions_pruned_before(
            orchestration_scope(instance_id), execution_id, keep_values=keep_values, actor=self._actor
        )
        removed = applied(self._producer.execute(mutation, self._timeout_s)).removed
        assert removed is not None
        return removed

    def delete_instance(self, instance_id: str, *, incarnation: int | None = None) -> None:
        """Removes the instance with all its rows (row O16); with `incarnation`, only if it is still that one.

        Raises:
            ConflictError: `unknown-instance`, `wrong-incarnation`.
        """
        mutation = mutations.orchestration_instance_deleted(
            orchestration_scope(instance_id), incarnation=incarnation, actor=self._actor
        )
        applied(self._producer.execute(mutation, self._timeout_s))

    # --- reads ---

    def get_value(self, instance_id: str, key: str) -> str | None:
        """The latest value (row O8); None if the instance or the key is unknown. An empty text is a value.

        Raises `InvalidError` for names, and what `OwnWritesReader.read` raises, as every read here.
        """
        scope = _scope(instance_id)
        problem = check_orchestration_key(key)
        if problem is not None:
            raise InvalidError(problem, code="invalid-key")
        found = self._reads.read(
            scope, lambda partition: instance_value(instance_id, key, partition=partition)
        )
        return None if found is None else found.value

    def snapshot(self, instance_id: str) -> Mapping[str, str]:
        """Every key with its value (row O19); empty if the instance is unknown."""
        scope = _scope(instance_id)
        found = self._reads.read(scope, lambda partition: instance_kv(instance_id, partition=partition))
        return {} if found is None else {key: entry.value for key, entry in found.items()}

    def instance(self, instance_id: str) -> InstanceView | None:
        """The instance with its KV and the execution that wrote each key last; None if it is unknown."""
        scope = _scope(instance_id)
        return self._reads.read(scope, lambda partition: instance(instance_id, partition=partition))

    def wait(self, instance_id: str, timeout_s: float) -> InstanceView | None:
        """The instance when it has ended, or as it is when the time is over; None if it is unknown."""
        deadline = monotonic() + timeout_s
        while True:
            view = self.instance(instance_id)
            left_s = deadline - monotonic()
            if view is None or view.status != "Running" or left_s <= 0:
                return view
            sleep(min(_WAIT_POLL_S, left_s))


def _scope(instance_id: str) -> str:
    problem = check_orchestration_name("the instance id", instance_id)
    if problem is not None:
        raise InvalidError(problem, code="malformed-name")
    return orchestration_scope(instance_id)
