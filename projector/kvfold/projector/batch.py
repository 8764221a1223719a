"""`project`: all the effects of one partition's batch of records, to be committed at once. Pure.

```
needs(records)            what state the batch touches          → the store loads it in one round trip per table
project(records, loaded)  decide and fold each record in order  → Batch: the effects, and the next offset
```

Inside a batch a record sees what the records before it changed. How records are cut into batches changes nothing in
what is stored: a row that is overwritten twice in one batch leaves the same history as in two. A mutation over a range
is always a batch of its own, since what it removes is counted by the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvfold.projector.changes import Changes, RangeRemoval, keys_changed
from kvfold.projector.decide.dispatch import decide
from kvfold.projector.decide.state import (
    CapsuleState,
    DeploymentState,
    Head,
    OrchestrationState,
    Place,
    RangeTotals,
    ScopeState,
    SystemState,
)
from kvfold.projector.fold import fold, has_effect
from kvfold.projector.needs import Step, batch_keys
from kvfold.projector.tables import (
    TABLES,
    CapsuleEntry,
    CapsuleScope,
    Child,
    DecisionRow,
    DeploymentEntry,
    DeploymentScope,
    Execution,
    InboxMessage,
    Instance,
    KvEntry,
    MutationId,
    OutboxMessage,
    PartitionState,
    Queue,
    Row,
    Task,
)
from kvfold.schemas.bodies import CapsuleBatch, FormatRaised
from kvfold.schemas.codec import fingerprint
from kvfold.schemas.form import Formed, Unformed, below_level, check_form, rejected
from kvfold.schemas.limits import DEDUPE_WINDOW_MS, DETAIL_CHARS_MAX
from kvfold.schemas.orchestration import Answer, Delivered
from kvfold.schemas.outcome import Decision
from kvfold.schemas.record import Record
from kvfold.schemas.rules import is_secret, validate
from kvfold.schemas.types import FORMAT_LEVEL, Family

__all__ = [
    "Batch",
    "FormatAheadError",
    "Loaded",
    "SeenId",
    "check_level",
    "prepare",
    "project",
    "record_digest",
]

# Scope, mutation id, type, namespace, subject, actor: the columns of a decision that say what was asked for.
_SWEPT = frozenset({"orchestration_task", "orchestration_inbox"})
_What = tuple[str | None, str | None, str | None, str | None, str | None, str | None]


class FormatAheadError(Exception):
    """The partition's format level is, or is now raised, above this release's: it waits for an upgrade at `offset`."""

    def __init__(self, what: str, level: int, offset: int) -> None:
        super().__init__(f"{what} {level}; this release knows {FORMAT_LEVEL}")
        self.offset = offset


class SeenId(NamedTuple):
    """A mutation id that was decided before: where, what it asked for, when, and the outcome."""

    record_offset: int
    fingerprint: bytes
    time_ms: int
    decision: Decision


@dataclass(slots=True)
class Loaded:
    """What the store has of the needs; what is absent is not in the maps. `project` works on it and changes it."""

    partition: PartitionState
    ids: dict[tuple[str, str], SeenId] = field(default_factory=dict)
    capsule_entries: dict[tuple[str, str], Head] = field(default_factory=dict)
    capsule_scopes: dict[str, CapsuleScope] = field(default_factory=dict)
    deployment_entries: dict[tuple[str, str, str], Head] = field(default_factory=dict)
    deployment_scopes: dict[str, DeploymentScope] = field(default_factory=dict)
    occupied: set[str] = field(default_factory=set)
    instances: dict[str, Instance] = field(default_factory=dict)
    executions: dict[str, Execution] = field(default_factory=dict)
    kv: dict[str, dict[str, KvEntry]] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    messages: dict[str, dict[int, InboxMessage]] = field(default_factory=dict)
    tasks: dict[str, dict[tuple[int, int], Task]] = field(default_factory=dict)
    outgoing: dict[tuple[str, int, int, int, str], OutboxMessage] = field(default_factory=dict)
    children: tuple[Child, ...] = ()
    range: RangeTotals = field(default_factory=RangeTotals)
    execution_ids: frozenset[int] = frozenset()


@dataclass(slots=True)
class Batch:
    """The effects of a batch, by table name and row key.

    - `puts`: rows that are current after the batch; `removals`: keys that are gone.
    - `superseded`: keys whose row from before the batch moves to the table's history, with its `valid_to`.
    - `additions`: rows to insert: decisions, events, and history rows that began and ended within the batch.
    - `sweeps`: scopes of which every row from before the batch is gone; `puts` holds what came after.
    - `ranges`: removals to be carried out server-side, with `range_valid_to` for the history.
    - `state`: the partition's state afterwards, for the offset row.
    """

    partition: int
    offset_expected: int
    state: PartitionState
    puts: dict[str, dict[Row, Row]] = field(default_factory=dict)
    removals: dict[str, dict[Row, None]] = field(default_factory=dict)
    superseded: dict[str, dict[Row, int]] = field(default_factory=dict)
    additions: dict[str, list[Row]] = field(default_factory=dict)
    sweeps: dict[str, dict[str, None]] = field(default_factory=dict)
    ranges: tuple[RangeRemoval, ...] = ()
    range_valid_to: int = 0

    @property
    def decisions(self) -> Sequence[Row]:
        """The decision rows, one a record, in order."""
        return self.additions.get("decision", [])


def prepare(records: Iterable[Record], partition_count: int) -> list[Step]:
    """Judges the form of each record; needs no state, so it can run ahead of the fold."""
    return [(record, check_form(record, partition_count)) for record in records]


def project(steps: Sequence[Step], loaded: Loaded, *, partition: int, offset_next: int) -> Batch:
    """Decides and folds a batch, in order.

    `loaded` is what the store has of `needs(steps)`, and is used up. `offset_next` is where reading goes on, which may
    be beyond the last record + 1. Decisions depend on nothing but records and `loaded`.

    Raises:
        FormatAheadError: at a record that raises the level above this release's; fold what is before it. Or at once,
            where a later release has folded such a record.
    """
    check_level(loaded.partition)
    batch = Batch(partition, loaded.partition.offset_next, loaded.partition)
    assert offset_next >= batch.offset_expected, "the offset never goes back"
    projection = _Projection(batch, loaded)
    for record, formed in steps:
        assert record.partition == partition and record.offset >= loaded.partition.offset_next
        projection.step(record, formed)
    batch.state = projection.state(steps[-1][0] if steps else None, offset_next)
    return batch


def check_level(state: PartitionState) -> None:
    """A partition that a later release has brought above this release's level is left alone.

    Raises:
        FormatAheadError: this release does not know what the records from here on mean.
    """
    if state.format_level > FORMAT_LEVEL:
        raise FormatAheadError("the partition has format level", state.format_level, state.offset_next)


class _Projection:
    """One run of `project`: the batch so far, and the state as the records before have left it."""

    __slots__ = ("_awaited", "_batch", "_format_level", "_loaded", "_time_ms", "_written")

    def __init__(self, batch: Batch, loaded: Loaded) -> None:
        self._batch = batch
        self._loaded = loaded
        self._time_ms = loaded.partition.time_ms
        self._format_level = loaded.partition.format_level
        # Rows of tables with history that this batch wrote: they move to history from here, not server-side.
        self._written: dict[tuple[str, Row], Row] = {}
        # Keys of this batch's rows in the tables that are swept by scope.
        self._awaited: dict[tuple[str, str], dict[Row, None]] = {}

    def state(self, last: Record | None, offset_next: int) -> PartitionState:
        """The partition's state after the last record, reading going on from `offset_next`."""
        before = self._loaded.partition
        if last is None:
            return before._replace(offset_next=offset_next)
        assert offset_next > last.offset
        return PartitionState(
            offset_next,
            self._time_ms,
            self._format_level,
            last.offset,
            record_digest(last),
            last.timestamp_ms,
        )

    def step(self, record: Record, formed: Formed | Unformed) -> None:
        self._time_ms = max(self._time_ms, record.timestamp_ms)
        place = Place(record.partition, record.offset, self._time_ms)
        if formed.level > self._format_level:
            formed = below_level(formed)
        if isinstance(formed, Unformed):
            self._record_unformed(formed, place)
        else:
            self._step_formed(formed, place, record)

    def _step_formed(self, formed: Formed, place: Place, record: Record) -> None:
        mutation = formed.mutation
        identity = (mutation.scope, mutation.id)
        secret = mutation.namespace is not None and is_secret(mutation.namespace)
        asked = fingerprint(mutation, with_body=not secret)
        seen = self._loaded.ids.get(identity)
        # The age is tested even where the row is still there: a row that was not trimmed yet changes nothing.
        if seen is not None and place.time_ms - seen.time_ms <= DEDUPE_WINDOW_MS:
            if seen.fingerprint == asked:
                self._record(formed, seen.decision, place, repeat_of=seen.record_offset)
            else:
                detail = f"the mutation id was used for another mutation at offset {seen.record_offset}"
                self._record(formed, rejected("id-reused", detail), place)
            return
        if seen is not None:
            # Out of the window: a new mutation, whose row takes the old one's place.
            self._batch.removals.setdefault("mutation_id", {})[
                place.partition, mutation.id, mutation.scope
            ] = None
        decision, keys = validate(formed), None
        if decision is None:
            scope_state = self._scope_state(formed, place)
            decision = decide(scope_state, formed)
            if has_effect(formed, decision):
                self._check_level(formed, record)
                changes = fold(scope_state, formed, decision, place)
                self._apply(mutation.scope, changes, place)
                keys = None if mutation.subject is not None else keys_changed(changes)
        self._record(formed, decision, place, keys=keys)
        if decision.code == "malformed":
            # What is malformed never enters the index, also where only the rules or the state showed it.
            self._loaded.ids.pop(identity, None)
            return
        self._loaded.ids[identity] = SeenId(place.offset, asked, place.time_ms, decision)
        row = MutationId(place.partition, mutation.id, mutation.scope, place.offset, asked, place.time_ms)
        self._batch.puts.setdefault("mutation_id", {})[row[:3]] = row

    def _check_level(self, formed: Formed, record: Record) -> None:
        if isinstance(formed.body, FormatRaised) and formed.body.level > FORMAT_LEVEL:
            what = f"{record.position} raises the format level to"
            raise FormatAheadError(what, formed.body.level, record.offset)

    def _scope_state(self, formed: Formed, place: Place) -> ScopeState:
        loaded, mutation = self._loaded, formed.mutation
        scope = mutation.scope
        match formed.type.family:
            case Family.CAPSULE:
                usage = loaded.capsule_scopes.get(scope) or CapsuleScope(scope, 0, 0, None)
                if isinstance(formed.body, CapsuleBatch):
                    entries = self._batch_entries(scope, formed.body)
                    return CapsuleState(*usage[1:4], entries=entries)
                head = loaded.capsule_entries.get((scope, mutation.subject or ""))
                return CapsuleState(*usage[1:4], head, loaded.range, restoring=usage.restoring)
            case Family.DEPLOYMENT:
                kept = loaded.deployment_scopes.get(scope) or DeploymentScope(scope, 0)
                key = (scope, mutation.namespace or "", mutation.subject or "")
                entry = loaded.deployment_entries.get(key)
                occupied = scope in loaded.occupied
                return DeploymentState(kept.version_floor, entry, loaded.range, kept.restoring, occupied)
            case Family.ORCHESTRATION:
                return self._orchestration_state(formed, place)
            case Family.SYSTEM:
                return SystemState(self._format_level)

    def _batch_entries(self, scope: str, batch: CapsuleBatch) -> dict[str, Head]:
        found = {key: self._loaded.capsule_entries.get((scope, key)) for key in batch_keys(batch)}
        return {key: head for key, head in found.items() if head is not None}

    def _orchestration_state(self, formed: Formed, place: Place) -> OrchestrationState:
        loaded, scope, body = self._loaded, formed.mutation.scope, formed.body
        task, outgoing = None, None
        match body:
            case Answer():
                task = loaded.tasks.get(scope, {}).get((body.execution_id, body.event_id))
            case Delivered():
                key = (scope, body.incarnation, body.execution_id, body.event_id, body.kind)
                outgoing = loaded.outgoing.get(key)
            case _:
                pass
        return OrchestrationState(
            instance=loaded.instances.get(scope),
            kv=loaded.kv.get(scope, {}),
            execution=loaded.executions.get(scope),
            executions=loaded.execution_ids,
            queue=loaded.queues.get(scope),
            inbox=loaded.messages.get(scope, {}),
            task=task,
            outgoing=outgoing,
            children=loaded.children,
            now_ms=place.time_ms,
        )

    def _apply(self, scope: str, changes: Changes, place: Place) -> None:
        batch = self._batch
        for table in changes.sweeps:
            self._sweep(table, scope)
        for table, row in changes.puts:
            spec = TABLES[table]
            key = row[: spec.key_size]
            if spec.has_history:
                self._supersede(table, key, place.offset)
                self._written[table, key] = row
            if table in batch.removals:
                batch.removals[table].pop(key, None)
            batch.puts.setdefault(table, {})[key] = row
            if table in _SWEPT:
                self._awaited.setdefault((table, scope), {})[key] = None
            self._remember(row)
        for table, key in changes.removals:
            if TABLES[table].has_history:
                self._supersede(table, key, place.offset)
            batch.puts.get(table, {}).pop(key, None)
            batch.removals.setdefault(table, {})[key] = None
            self._forget(table, key)
        for table, row in changes.additions:
            batch.additions.setdefault(table, []).append(row)
        if changes.ranges:
            assert not batch.ranges and not batch.additions, "a range mutation stands alone"
            batch.ranges, batch.range_valid_to = changes.ranges, place.offset
        if changes.format_level is not None:
            self._format_level = changes.format_level

    def _sweep(self, table: str, scope: str) -> None:
        """Every row of the scope goes: those of the batch here, those from before it by the store."""
        for key in self._awaited.pop((table, scope), {}):
            self._batch.puts[table].pop(key, None)
        self._batch.sweeps.setdefault(table, {})[scope] = None
        rows = self._loaded.tasks if table == "orchestration_task" else self._loaded.messages
        rows.pop(scope, None)

    def _supersede(self, table: str, key: Row, valid_to: int) -> None:
        """The row that was current up to here moves to history: from this batch directly, else server-side."""
        written = self._written.pop((table, key), None)
        if written is not None:
            self._batch.additions.setdefault(f"{table}_history", []).append((*written, valid_to))
        elif self._was_there(table, key):
            self._batch.superseded.setdefault(table, {})[key] = valid_to

    def _was_there(self, table: str, key: Row) -> bool:
        loaded = self._loaded
        match table:
            case "capsule_entry":
                return key in loaded.capsule_entries
            case "deployment_entry":
                return key in loaded.deployment_entries
            case "orchestration_instance":
                return key[0] in loaded.instances
            case _:
                scope, name = key
                assert table == "orchestration_kv" and isinstance(scope, str)
                return name in loaded.kv.get(scope, {})

    def _remember(self, row: Row) -> None:
        """What the next record of the batch sees."""
        loaded = self._loaded
        match row:
            case CapsuleEntry():
                loaded.capsule_entries[row.scope, row.key] = Head(row.version, len(row.value), row.sha256)
            case CapsuleScope():
                loaded.capsule_scopes[row.scope] = row
            case DeploymentEntry():
                size = None if row.value is None else len(row.value)
                loaded.deployment_entries[row.scope, row.namespace, row.key] = Head(row.version, size)
                loaded.occupied.add(row.scope)
            case DeploymentScope():
                loaded.deployment_scopes[row.scope] = row
            case Instance():
                loaded.instances[row.scope] = row
            case Execution():
                loaded.executions[row.scope] = row
            case KvEntry():
                loaded.kv.setdefault(row.scope, {})[row.key] = row
            case Queue():
                loaded.queues[row.scope] = row
            case InboxMessage():
                loaded.messages.setdefault(row.scope, {})[row.record_offset] = row
            case Task():
                loaded.tasks.setdefault(row.scope, {})[row.execution_id, row.event_id] = row
            case OutboxMessage():
                loaded.outgoing[row[:5]] = row
            case Child():
                pass  # asked for by a deletion only, which stands alone
            case _:
                raise AssertionError(f"no state is kept for {type(row).__name__}")

    def _forget(self, table: str, key: Row) -> None:
        loaded, scope = self._loaded, str(key[0])
        match table:
            case "capsule_entry":
                del loaded.capsule_entries[key]  # type: ignore[arg-type]
            case "orchestration_kv":
                del loaded.kv[scope][str(key[1])]
            case "orchestration_inbox":
                loaded.messages.get(scope, {}).pop(key[1], None)  # type: ignore[call-overload]
            case "orchestration_task":
                del loaded.tasks[scope][key[1:]]  # type: ignore[arg-type]
            case "orchestration_outbox":
                del loaded.outgoing[key]  # type: ignore[arg-type]
            case _:
                raise AssertionError(f"no removal from {table}")

    def _record(
        self,
        formed: Formed,
        decision: Decision,
        place: Place,
        *,
        repeat_of: int | None = None,
        keys: str | None = None,
    ) -> None:
        mutation = formed.mutation
        subject = mutation.subject
        if subject is not None and "\x00" in subject:
            subject = None
        what = (mutation.scope, mutation.id, mutation.type, mutation.namespace, subject, mutation.actor)
        self._append_decision(decision, place, what, repeat_of, keys)

    def _record_unformed(self, formed: Unformed, place: Place) -> None:
        what = (formed.scope, formed.id, formed.type, None, None, None)
        self._append_decision(formed.decision, place, what, None, None)

    def _append_decision(
        self, decision: Decision, place: Place, what: _What, repeat_of: int | None, keys: str | None
    ) -> None:
        row = DecisionRow(
            place.partition,
            place.offset,
            *what,
            str(decision.status),
            decision.code,
            decision.version,
            decision.removed,
            None if decision.detail is None else decision.detail[:DETAIL_CHARS_MAX],
            repeat_of,
            keys,
            place.time_ms,
        )
        self._batch.additions.setdefault("decision", []).append(row)


def record_digest(record: Record) -> str:
    """What tells a record from another at the same offset: SHA-256 of key, headers and value."""
    digest = hashlib.sha256()
    for part in (
        record.key,
        *(part for name, raw in record.headers for part in (name.encode("utf-8", "surrogatepass"), raw)),
        record.value,
    ):
        digest.update(b"\x00" if part is None else b"\x01" + len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
