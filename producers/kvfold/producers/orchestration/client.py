"""Orchestration instances from outside (rows O8, O12 to O19): starting, `external` instances, and reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from kvfold.producers import mutations
from kvfold.producers.orchestration.bulk_prune import BulkPruned, check_prefix, prune_many
from kvfold.producers.orchestration.kv_provider import KvProvider, ProjectionKv
from kvfold.producers.orchestration.stored_values import typed_value
from kvfold.producers.outcomes import applied
from kvfold.producers.producer import Producer
from kvfold.producers.reading import OwnWritesReader, QueryReader
from kvfold.reads.orchestration import (
    INSTANCE_STATUSES,
    AwaitedValue,
    InstanceSummary,
    InstanceView,
    awaited_value,
    instance,
    instances,
)
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX, PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX
from kvfold.schemas.names import (
    check_orchestration_key,
    check_orchestration_name,
    orchestration_scope,
)
from kvfold.schemas.orchestration import Event

__all__ = ["OrchestrationClient"]

T = TypeVar("T")


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
        kv: KvProvider | None = None,
    ) -> None:
        """`kv` gives values and snapshots; the projection, if it is None."""
        self._producer = producer
        self._reads = OwnWritesReader(producer, reader, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._actor = actor
        self._kv = ProjectionKv(self._reads) if kv is None else kv

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

    def prune_many(
        self,
        *,
        older_than: datetime | None = None,
        keep_last: int = 1,
        prefix: str = "",
        limit: int | None = None,
        start: str | None = None,
        keep_values: bool = False,
    ) -> BulkPruned:
        """Prunes executions of every instance whose id begins with `prefix` (row O15), as `prune` does it one by one.

        - `older_than`: only executions whose recorded end is before this time, which has its zone; whenever, if None.
        - `keep_last`: of each instance so many stay, counted down from the current one, which always does.
        - `limit`: ends after so many instances that lost something; `start` is the `next_start` of such a call.

        Repeating it is safe and does what is left to do, also after an error in the middle.

        Raises:
            InvalidError: `malformed-older-than`, `malformed-keep-last`, `malformed-limit`, `malformed-prefix`.
        """
        return prune_many(
            self._producer,
            self._reads,
            older_than=older_than,
            keep_last=keep_last,
            prefix=prefix,
            limit=limit,
            start=start,
            keep_values=keep_values,
            actor=self._actor,
            timeout_s=self._timeout_s,
        )

    # --- reads ---

    def get_value(self, instance_id: str, key: str) -> str | None:
        """The latest value (row O8); None if the instance or the key is unknown. An empty text is a value.

        Raises `InvalidError` for names, and what `OwnWritesReader.read` raises, as every read here: a store that cannot
        be reached is a `StoreUnavailableError`, and never None.
        """
        _scope(instance_id)
        _check_key(key)
        return self._kv.get_kv_value(instance_id, key)

    def get_value_typed(self, instance_id: str, key: str, type_: type[T]) -> T | None:
        """As `get_value`, from JSON: what `set_value_typed` of the context stored.

        Raises:
            StoredValueError: what is stored is not of this type.
        """
        text = self.get_value(instance_id, key)
        return None if text is None else typed_value(text, type_, f"the value of {key!r}")

    def snapshot(self, instance_id: str) -> Mapping[str, str]:
        """Every key with its value (row O19); empty if the instance is unknown."""
        _scope(instance_id)
        return self._kv.get_kv_snapshot(instance_id)

    def instance(self, instance_id: str) -> InstanceView | None:
        """The instance with its KV and the execution that wrote each key last; None if it is unknown."""
        scope = _scope(instance_id)
        return self._reads.read(scope, lambda partition: instance(instance_id, partition=partition))

    def list(
        self,
        *,
        status: Literal["Running", "Completed", "Failed"] | None = None,
        prefix: str = "",
        page_size: int = PAGE_LIMIT_DEFAULT,
    ) -> Iterator[InstanceSummary]:
        """The instances whose ids begin with `prefix`, in byte order of the ids; read page by page while it is iterated.

        One that is started or deleted meanwhile may be among them or not; no other is left out or comes twice.

        Raises:
            InvalidError: `malformed-status`, `malformed-prefix`, `malformed-limit` for pages outside 1 to 1,024.
        """
        check_prefix(prefix)
        if status is not None and status not in INSTANCE_STATUSES:
            accepted = ", ".join(INSTANCE_STATUSES)
            raise InvalidError(
                f"no instance has the status {status!r}; accepted: {accepted}", code="malformed-status"
            )
        if not 1 <= page_size <= PAGE_LIMIT_MAX:
            raise InvalidError(
                f"page_size is {page_size}: 1 to {PAGE_LIMIT_MAX} are accepted", code="malformed-limit"
            )
        return self._pages(prefix, status, page_size)

    def _pages(self, prefix: str, status: str | None, limit: int) -> Iterator[InstanceSummary]:
        cursor: str | None = None
        while True:
            query = instances(prefix=prefix, status=status, cursor=cursor, limit=limit)
            page = self._reads.read_everywhere(query)
            yield from page.instances
            cursor = page.next_cursor
            if cursor is None:
                return

    # --- waiting ---

    def wait(self, instance_id: str, timeout_s: float) -> InstanceView | None:
        """The instance when it has ended, or as it is when the time is over; None at once if it is unknown.

        Woken by the projector's commits. Raises what `OwnWritesReader.read_until` raises.
        """
        return self._reads.read_until(
            _scope(instance_id),
            lambda partition: instance(instance_id, partition=partition),
            lambda view: view is None or view.status != "Running",
            timeout_s=timeout_s,
        )

    def wait_for_value(
        self,
        instance_id: str,
        key: str,
        timeout_s: float,
        *,
        accept: Callable[[str], bool] = lambda value: True,
    ) -> str | None:
        """The value of a key as soon as there is one that `accept` accepts; None when there is none in time.

        None at once when there will be none: the instance has ended, or it is unknown. A value that was overwritten
        before anybody looked is not seen. Raises as `wait`, and what `accept` raises.

        Example: `client.wait_for_value("order-17", "state", 30, accept=lambda state: state != "charging")`
        """
        _check_key(key)

        accepted: str | None = None

        def is_settled(found: AwaitedValue) -> bool:
            nonlocal accepted
            if found.value is not None and accept(found.value.value):
                accepted = found.value.value
            return accepted is not None or not found.goes_on

        self._reads.read_until(
            _scope(instance_id),
            lambda partition: awaited_value(instance_id, key, partition=partition),
            is_settled,
            timeout_s=timeout_s,
        )
        return accepted


def _scope(instance_id: str) -> str:
    problem = check_orchestration_name("the instance id", instance_id)
    if problem is not None:
        raise InvalidError(problem, code="malformed-name")
    return orchestration_scope(instance_id)


def _check_key(key: str) -> None:
    problem = check_orchestration_key(key)
    if problem is not None:
        raise InvalidError(problem, code="invalid-key")
