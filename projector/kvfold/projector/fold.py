"""The fold, pure: what a decision changes. It asserts what `decide` promised and never decides anything itself.

A change names full rows, so that a store needs no knowledge of the families: `puts` are rows that are now current,
`removals` keys that are gone, `additions` rows of tables that only grow. A mutation over a range names the range; the
store carries it out in one statement. Worked example, a second write of one key:

```
fold(CapsuleState(keys=1, bytes=9, entry=Head(1, 5, …)), set "todo" = b"hello!", applied version 2)
→ puts capsule_entry("c:…", "todo", 2, b"hello!", …) and capsule_scope("c:…", keys=1, bytes=10)
```
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kvfold.projector.decide.orchestration import pruned_executions
from kvfold.projector.decide.state import (
    CapsuleState,
    DeploymentState,
    OrchestrationState,
    Place,
    ScopeState,
    SystemState,
)
from kvfold.projector.tables import (
    TABLES,
    CapsuleEntry,
    CapsuleScope,
    DeploymentEntry,
    DeploymentScope,
    Execution,
    HistoryEvent,
    Instance,
    KvEntry,
    Row,
)
from kvfold.schemas.bodies import (
    BatchSet,
    CapsuleBatch,
    CustomStatusUpdated,
    Event,
    ExecutionsPrunedV2,
    InstanceDeleted,
    KeyValueCleared,
    KeyValuesCleared,
    KeyValueSet,
    OrchestrationCompleted,
    OrchestrationContinuedAsNew,
    OrchestrationEvents,
    OrchestrationFailed,
    QuotaSet,
    Started,
)
from kvfold.schemas.form import Formed
from kvfold.schemas.names import utf8_length
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.strict_json import encode_json

__all__ = ["Changes", "RangeRemoval", "fold", "keys_changed"]

# Tables whose rows are entries: the last column of their keys is the entry's key.
_ENTRY_TABLES: Final = frozenset({"capsule_entry", "deployment_entry", "orchestration_kv"})


@dataclass(frozen=True, slots=True)
class RangeRemoval:
    """Rows of a scope that go: all of them, those under a key prefix, or those of some executions."""

    table: str
    scope: str
    prefix: str | None = None
    execution_ids: tuple[int, ...] | None = None


class Changes(NamedTuple):
    """What one applied mutation changes, by table name; a removal names the row's key columns."""

    puts: tuple[tuple[str, Row], ...] = ()
    removals: tuple[tuple[str, Row], ...] = ()
    additions: tuple[tuple[str, Row], ...] = ()
    ranges: tuple[RangeRemoval, ...] = ()
    format_level: int | None = None


def fold(state: ScopeState, formed: Formed, decision: Decision, place: Place) -> Changes:
    """The changes of an applied mutation to its scope's state."""
    assert decision.status is DecisionStatus.APPLIED, "only an applied mutation changes state"
    match state:
        case CapsuleState():
            return _fold_capsule(state, formed, decision, place)
        case DeploymentState():
            return _fold_deployment(state, formed, decision, place)
        case OrchestrationState():
            return _fold_orchestration(state, formed, place)
        case SystemState(format_level=level):
            assert decision.version == level + 1
            return Changes(format_level=decision.version)


def keys_changed(changes: Changes) -> str | None:
    """The keys whose entries a record changed, as a canonical JSON array in byte order; None where there are none.

    Watchers find a record's changes by them. A range is no list of keys: its record says which range.
    """
    changed = {str(row[TABLES[table].key_size - 1]) for table, row in changes.puts if table in _ENTRY_TABLES}
    changed.update(str(key[-1]) for table, key in changes.removals if table in _ENTRY_TABLES)
    return encode_json(sorted(changed)).decode() if changed else None


def _fold_capsule(state: CapsuleState, formed: Formed, decision: Decision, place: Place) -> Changes:
    mutation = formed.mutation
    scope, key, entry = mutation.scope, mutation.subject, state.entry
    match mutation.type:
        case "kvfold.capsule.set.v1":
            assert key is not None and mutation.body is not None and decision.version is not None
            assert decision.version == (entry.version if entry else 0) + 1, "versions step by one"
            growth = len(mutation.body) - (entry.size or 0 if entry else -utf8_length(key))
            row = _entry(formed, key, decision.version, mutation.body, place)
            usage = _usage(state, scope, keys=0 if entry else 1, size=growth)
            return Changes(puts=(("capsule_entry", row), ("capsule_scope", usage)))
        case "kvfold.capsule.deleted.v1":
            assert key is not None
            if entry is None:
                return Changes()
            usage = _usage(state, scope, keys=-1, size=-(utf8_length(key) + (entry.size or 0)))
            return Changes(puts=(("capsule_scope", usage),), removals=(("capsule_entry", (scope, key)),))
        case "kvfold.capsule.prefix-cleared.v1" | "kvfold.capsule.namespace-cleared.v1":
            assert decision.removed == state.range.count
            if state.range.count == 0:
                return Changes()
            usage = _usage(state, scope, keys=-state.range.count, size=-state.range.bytes)
            removal = RangeRemoval("capsule_entry", scope, prefix=mutation.subject)
            return Changes(puts=(("capsule_scope", usage),), ranges=(removal,))
        case "kvfold.capsule.restored.v1":
            assert key is not None and mutation.body is not None and entry is None
            assert decision.version is not None and decision.version == mutation.version
            row = _entry(formed, key, decision.version, mutation.body, place)
            usage = _usage(state, scope, keys=1, size=utf8_length(key) + len(mutation.body))
            usage = usage._replace(restoring=mutation.snapshot)
            return Changes(puts=(("capsule_entry", row), ("capsule_scope", usage)))
        case "kvfold.capsule.quota-set.v1":
            assert isinstance(formed.body, QuotaSet)
            row_ = CapsuleScope(scope, state.keys, state.bytes, formed.body.bytes_max, state.restoring)
            return Changes(puts=(("capsule_scope", row_),))
        case "kvfold.capsule.batch.v1":
            assert isinstance(formed.body, CapsuleBatch)
            return _fold_capsule_batch(formed.body, state, formed, decision, place)
    raise AssertionError(f"no fold for {mutation.type}")


def _fold_capsule_batch(
    batch: CapsuleBatch, state: CapsuleState, formed: Formed, decision: Decision, place: Place
) -> Changes:
    scope = formed.mutation.scope
    puts: list[tuple[str, Row]] = []
    removals: list[tuple[str, Row]] = []
    keys = size = 0
    for operation in batch.operations:
        entry, key_bytes = state.entries.get(operation.key), utf8_length(operation.key)
        if entry is not None:
            keys, size = keys - 1, size - key_bytes - (entry.size or 0)
        if isinstance(operation, BatchSet):
            version = (entry.version if entry else 0) + 1
            puts.append(("capsule_entry", _entry(formed, operation.key, version, operation.value, place)))
            keys, size = keys + 1, size + key_bytes + len(operation.value)
        elif entry is not None:
            removals.append(("capsule_entry", (scope, operation.key)))
    assert decision.removed == len(removals)
    if not puts and not removals:
        return Changes()
    usage = _usage(state, scope, keys=keys, size=size)
    return Changes(puts=(*puts, ("capsule_scope", usage)), removals=tuple(removals))


def _entry(formed: Formed, key: str, version: int, value: bytes, place: Place) -> CapsuleEntry:
    mutation, digest = formed.mutation, hashlib.sha256(value).digest()
    return CapsuleEntry(
        mutation.scope, key, version, value, digest, mutation.actor, place.offset, place.time_ms
    )


def _usage(state: CapsuleState, scope: str, *, keys: int, size: int) -> CapsuleScope:
    # Whatever is done to an entry ends a restore: `restoring` is None.
    usage = CapsuleScope(scope, state.keys + keys, state.bytes + size, state.bytes_max)
    assert usage.keys >= 0 and usage.bytes >= 0, "usage is never negative"
    return usage


def _fold_deployment(state: DeploymentState, formed: Formed, decision: Decision, place: Place) -> Changes:
    mutation = formed.mutation
    scope, entry, version = mutation.scope, state.entry, decision.version
    if mutation.type == "kvfold.deployment.undeployed.v1":
        # Tombstones go too: the floor remembers the highest version for all of them.
        if state.range.version_max == 0:
            return Changes()
        floor = max(state.version_floor, state.range.version_max)
        removal = RangeRemoval("deployment_entry", scope)
        return Changes(puts=(("deployment_scope", DeploymentScope(scope, floor)),), ranges=(removal,))
    assert mutation.namespace is not None and mutation.subject is not None and version is not None
    if mutation.type == "kvfold.deployment.deleted.v1" and version == 0:
        return Changes()
    is_restored = mutation.type == "kvfold.deployment.restored.v1"
    if is_restored:
        assert entry is None and version == mutation.version, "a restored entry keeps its version"
    elif mutation.type == "kvfold.deployment.put.v1":
        assert mutation.body is not None and version > (entry.version if entry else state.version_floor)
    else:
        assert entry is not None and entry.version == version, "a tombstone keeps the version"
    row = DeploymentEntry(
        scope,
        mutation.namespace,
        mutation.subject,
        version,
        None if mutation.type == "kvfold.deployment.deleted.v1" else mutation.body,
        mutation.actor,
        place.offset,
        place.time_ms,
    )
    # Whatever else is done to an entry ends a restore.
    restoring = mutation.snapshot if is_restored else None
    if restoring == state.restoring:
        return Changes(puts=(("deployment_entry", row),))
    scope_row = DeploymentScope(scope, state.version_floor, restoring)
    return Changes(puts=(("deployment_entry", row), ("deployment_scope", scope_row)))


def _fold_orchestration(state: OrchestrationState, formed: Formed, place: Place) -> Changes:
    scope = formed.mutation.scope
    match formed.body:
        case Started() as body:
            assert state.instance is None
            return _start(formed, body, place)
        case OrchestrationEvents() as body:
            return _EventFold(formed, body, state, place).changes()
        case ExecutionsPrunedV2() as body:
            pruned = tuple(sorted(pruned_executions(body, state.executions)))
            rows = ("orchestration_event", "orchestration_execution")
            ranges = tuple(RangeRemoval(table, scope, execution_ids=pruned) for table in rows if pruned)
            # Keys go by what the record means, also of executions whose rows went before (row O14).
            stale = () if body.keep_values else _written_by(state.kv, body)
            return Changes(removals=tuple(("orchestration_kv", (scope, key)) for key in stale), ranges=ranges)
        case InstanceDeleted():
            tables = (
                "orchestration_event",
                "orchestration_execution",
                "orchestration_kv",
                "orchestration_instance",
            )
            return Changes(ranges=tuple(RangeRemoval(table, scope) for table in tables))
        case _:
            raise AssertionError(f"no fold for {formed.mutation.type}")


def _written_by(kv: Mapping[str, KvEntry], body: ExecutionsPrunedV2) -> tuple[str, ...]:
    writers = pruned_executions(body, {row.execution_id for row in kv.values()})
    return tuple(sorted(key for key, row in kv.items() if row.execution_id in writers))


def _start(formed: Formed, body: Started, place: Place) -> Changes:
    mutation = formed.mutation
    text = encode_json(body.input).decode()
    instance = Instance(
        scope=mutation.scope,
        incarnation=place.offset,
        execution_id=1,
        mode=body.mode,
        name=body.name,
        status="Running",
        input=text,
        output=None,
        failure=None,
        custom_status=None,
        worker=None,
        history_length=0,
        created_ms=place.time_ms,
        updated_ms=place.time_ms,
        updated_at=place.offset,
    )
    execution = Execution(mutation.scope, 1, "Running", text, None, None, "{}", place.time_ms, None)
    return Changes(puts=(("orchestration_instance", instance), ("orchestration_execution", execution)))


@dataclass(slots=True)
class _EventFold:
    """The events of one record, applied in order. Mutable while it runs; what it gives is a value."""

    formed: Formed
    body: OrchestrationEvents
    state: OrchestrationState
    place: Place
    kv: dict[str, KvEntry] = field(default_factory=dict)
    instance_changes: dict[str, Any] = field(default_factory=dict)
    execution_end: dict[str, Any] | None = None
    next_input: str | None = None

    def changes(self) -> Changes:
        instance = self.state.instance
        assert instance is not None and instance.status == "Running" and instance.mode == "external"
        self.kv = dict(self.state.kv)
        for event in self.body.events:
            self._apply(event)
        mutation = self.formed.mutation
        changes: dict[str, Any] = {
            "worker": mutation.actor or mutation.source,
            "history_length": instance.history_length + len(self.body.events),
            "updated_ms": self.place.time_ms,
            "updated_at": self.place.offset,
        }
        updated = instance._replace(**(changes | self.instance_changes))
        puts: list[tuple[str, Row]] = [("orchestration_instance", updated)]
        puts += [
            ("orchestration_kv", row)
            for key, row in sorted(self.kv.items())
            if self.state.kv.get(key) is not row
        ]
        gone = sorted(set(self.state.kv) - set(self.kv))
        return Changes(
            puts=tuple(puts + self._executions()),
            removals=tuple(("orchestration_kv", (instance.scope, key)) for key in gone),
            additions=tuple(("orchestration_event", row) for row in self._history(instance)),
        )

    def _apply(self, event: Event) -> None:
        mutation, execution_id = self.formed.mutation, self.body.execution_id
        match event:
            case KeyValueSet():
                self.kv[event.key] = KvEntry(
                    mutation.scope,
                    event.key,
                    event.value,
                    execution_id,
                    mutation.actor,
                    self.place.offset,
                    self.place.time_ms,
                )
            case KeyValueCleared():
                self.kv.pop(event.key, None)
            case KeyValuesCleared():
                self.kv.clear()
            case CustomStatusUpdated():
                self.instance_changes["custom_status"] = event.status
            case OrchestrationCompleted():
                self._end(status="Completed", output=encode_json(event.output).decode())
            case OrchestrationFailed():
                self._end(status="Failed", failure=event.error)
            case OrchestrationContinuedAsNew():
                self.next_input = encode_json(event.input).decode()
                self.execution_end = {"status": "ContinuedAsNew"}
                self.instance_changes |= {
                    "execution_id": execution_id + 1,
                    "input": self.next_input,
                    "history_length": 0,
                }

    def _end(self, **changes: Any) -> None:
        self.execution_end = changes
        self.instance_changes |= changes

    def _executions(self) -> list[tuple[str, Row]]:
        """Rows of the execution that ended and of the one that began, where the record's last event says so."""
        if self.execution_end is None:
            return []
        current = self.state.execution
        assert current is not None and current.execution_id == self.body.execution_id
        ended = current._replace(ended_ms=self.place.time_ms, **self.execution_end)
        rows: list[tuple[str, Row]] = [("orchestration_execution", ended)]
        if self.next_input is not None:
            # The seed of execution n+1 is what is live after its continue-as-new.
            seed = encode_json({key: row.value for key, row in self.kv.items()}).decode()
            following = current.execution_id + 1
            begun = Execution(
                current.scope,
                following,
                "Running",
                self.next_input,
                None,
                None,
                seed,
                self.place.time_ms,
                None,
            )
            rows.append(("orchestration_execution", begun))
        return rows

    def _history(self, instance: Instance) -> list[HistoryEvent]:
        return [
            HistoryEvent(
                instance.scope,
                self.body.execution_id,
                instance.history_length + number,
                event.kind,
                encode_json(event.model_dump()).decode(),
                self.place.offset,
                self.place.time_ms,
            )
            for number, event in enumerate(self.body.events, 1)
        ]
