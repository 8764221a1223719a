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
from kvfold.projector.fold import Changes, RangeRemoval, fold, keys_changed
from kvfold.projector.tables import (
    TABLES,
    CapsuleEntry,
    CapsuleScope,
    DecisionRow,
    DeploymentEntry,
    DeploymentScope,
    Execution,
    Instance,
    KvEntry,
    MutationId,
    PartitionState,
    Row,
)
from kvfold.schemas.bodies import CapsuleBatch, ExecutionsPrunedV2, FormatRaised
from kvfold.schemas.codec import fingerprint
from kvfold.schemas.form import Formed, Unformed, below_level, check_form, rejected
from kvfold.schemas.limits import BATCH_KEYS_MAX, DEDUPE_WINDOW_MS, DETAIL_CHARS_MAX
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.record import Record
from kvfold.schemas.rules import is_secret, validate
from kvfold.schemas.types import FORMAT_LEVEL, Family

__all__ = [
    "Batch",
    "FormatAheadError",
    "Loaded",
    "Needs",
    "RangeNeed",
    "SeenId",
    "Step",
    "check_level",
    "cut",
    "needs",
    "prepare",
    "project",
    "record_digest",
]

# Scope, mutation id, type, namespace, subject, actor: the columns of a decision that say what was asked for.
_What = tuple[str | None, str | None, str | None, str | None, str | None, str | None]
Step = tuple[Record, Formed | Unformed]
"""A record with the judgement of its form, which needs no state and is made once."""


class FormatAheadError(Exception):
    """The partition's format level is, or is now raised, above this release's: it waits for an upgrade at `offset`."""

    def __init__(self, what: str, level: int, offset: int) -> None:
        super().__init__(f"{what} {level}; this release knows {FORMAT_LEVEL}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class RangeNeed:
    """What a range mutation asks the store to count: entries of a table under a prefix, or an instance's executions."""

    table: str
    scope: str
    prefix: str | None = None


@dataclass(slots=True)
class Needs:
    """Keys of what a batch touches. `range` is set in a batch of one range mutation."""

    ids: set[tuple[str, str]] = field(default_factory=set)
    capsule_keys: set[tuple[str, str]] = field(default_factory=set)
    capsule_scopes: set[str] = field(default_factory=set)
    deployment_keys: set[tuple[str, str, str]] = field(default_factory=set)
    deployment_scopes: set[str] = field(default_factory=set)
    restored_scopes: set[str] = field(default_factory=set)
    instances: set[str] = field(default_factory=set)
    range: RangeNeed | None = None


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
    range: RangeTotals = field(default_factory=RangeTotals)
    execution_ids: frozenset[int] = frozenset()


@dataclass(slots=True)
class Batch:
    """The effects of a batch, by table name and row key.

    - `puts`: rows that are current after the batch; `removals`: keys that are gone.
    - `superseded`: keys whose row from before the batch moves to the table's history, with its `valid_to`.
    - `additions`: rows to insert: decisions, events, and history rows that began and ended within the batch.
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
    ranges: tuple[RangeRemoval, ...] = ()
    range_valid_to: int = 0

    @property
    def decisions(self) -> Sequence[Row]:
        """The decision rows, one a record, in order."""
        return self.additions.get("decision", [])


def prepare(records: Iterable[Record], partition_count: int) -> list[Step]:
    """Judges the form of each record; needs no state, so it can run ahead of the fold."""
    return [(record, check_form(record, partition_count)) for record in records]


def cut(steps: Sequence[Step]) -> Iterable[Sequence[Step]]:
    """Cuts steps into batches such that each range mutation stands alone, and none touches too many keys."""
    begin = touched = 0
    for index, (_, formed) in enumerate(steps):
        if isinstance(formed, Unformed):
            continue
        if formed.type.is_range:
            if begin < index:
                yield steps[begin:index]
            yield steps[index : index + 1]
            begin, touched = index + 1, 0
        elif isinstance(formed.body, CapsuleBatch):
            keys = len(_batch_keys(formed.body))
            if touched and touched + keys > BATCH_KEYS_MAX:
                yield steps[begin:index]
                begin, touched = index, 0
            touched += keys
    if begin < len(steps):
        yield steps[begin:]


def needs(steps: Sequence[Step]) -> Needs:
    """What a batch (one that `cut` gave) touches."""
    result = Needs()
    for _, formed in steps:
        if isinstance(formed, Unformed):
            continue
        mutation = formed.mutation
        result.ids.add((mutation.scope, mutation.id))
        match formed.type.family:
            case Family.CAPSULE:
                result.capsule_scopes.add(mutation.scope)
                if mutation.subject is not None and "\x00" in mutation.subject:
                    # Invalid, and nothing that a store could be asked for: Postgres text holds no NUL.
                    continue
                if formed.type.is_range:
                    result.range = RangeNeed("capsule_entry", mutation.scope, mutation.subject)
                elif mutation.subject is not None:
                    result.capsule_keys.add((mutation.scope, mutation.subject))
                elif isinstance(formed.body, CapsuleBatch):
                    result.capsule_keys.update((mutation.scope, key) for key in _batch_keys(formed.body))
            case Family.DEPLOYMENT:
                result.deployment_scopes.add(mutation.scope)
                if formed.type.is_restore:
                    result.restored_scopes.add(mutation.scope)
                if formed.type.is_range:
                    result.range = RangeNeed("deployment_entry", mutation.scope)
                elif mutation.subject is not None and "\x00" not in mutation.subject:
                    assert mutation.namespace is not None
                    result.deployment_keys.add((mutation.scope, mutation.namespace, mutation.subject))
            case Family.ORCHESTRATION:
                result.instances.add(mutation.scope)
                if isinstance(formed.body, ExecutionsPrunedV2):
                    result.range = RangeNeed("orchestration_execution", mutation.scope)
            case Family.SYSTEM:
                pass
    return result


def _batch_keys(batch: CapsuleBatch) -> set[str]:
    return {item.key for item in (*batch.conditions, *batch.operations)}


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

    __slots__ = ("_batch", "_format_level", "_loaded", "_time_ms", "_written")

    def __init__(self, batch: Batch, loaded: Loaded) -> None:
        self._batch = batch
        self._loaded = loaded
        self._time_ms = loaded.partition.time_ms
        self._format_level = loaded.partition.format_level
        # Rows of tables with history that this batch wrote: they move to history from here, not server-side.
        self._written: dict[tuple[str, Row], Row] = {}

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
            scope_state = self._scope_state(formed)
            decision = decide(scope_state, formed)
            if decision.status is DecisionStatus.APPLIED:
                self._check_level(formed, record)
                changes = fold(scope_state, formed, decision, place)
                self._apply(changes, place)
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

    def _scope_state(self, formed: Formed) -> ScopeState:
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
                return OrchestrationState(
                    loaded.instances.get(scope),
                    loaded.kv.get(scope, {}),
                    loaded.executions.get(scope),
                    loaded.execution_ids,
                )
            case Family.SYSTEM:
                return SystemState(self._format_level)

    def _batch_entries(self, scope: str, batch: CapsuleBatch) -> dict[str, Head]:
        found = {key: self._loaded.capsule_entries.get((scope, key)) for key in _batch_keys(batch)}
        return {key: head for key, head in found.items() if head is not None}

    def _apply(self, changes: Changes, place: Place) -> None:
        batch = self._batch
        for table, row in changes.puts:
            spec = TABLES[table]
            key = row[: spec.key_size]
            if spec.has_history:
                self._supersede(table, key, place.offset)
                self._written[table, key] = row
            if table in batch.removals:
                batch.removals[table].pop(key, None)
            batch.puts.setdefault(table, {})[key] = row
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
            case _:
                raise AssertionError(f"no state is kept for {type(row).__name__}")

    def _forget(self, table: str, key: Row) -> None:
        loaded = self._loaded
        if table == "capsule_entry":
            del loaded.capsule_entries[key]  # type: ignore[arg-type]
        else:
            assert table == "orchestration_kv"
            del loaded.kv[str(key[0])][str(key[1])]

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
