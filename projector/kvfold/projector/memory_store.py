"""The projection in memory: the same tables as Postgres, as dictionaries. For tests and the simulation.

Commits are all or nothing because everything is checked before anything is changed. Stores made by `another()` share
the tables, as two connections share a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock

from kvfold.projector.batch import Batch, Loaded, SeenId
from kvfold.projector.changes import RangeRemoval
from kvfold.projector.decide.state import Head, RangeTotals
from kvfold.projector.needs import Needs
from kvfold.projector.store import FencedError
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
    TableSpec,
    Task,
)
from kvfold.schemas.names import utf8_length
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = ["MemoryStore", "MemoryTables"]

_START = PartitionState(0, 0, 1, None, None, None)


class MemoryTables:
    """The tables, offset rows and epochs that stores share."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.tables: dict[str, dict[Row, Row]] = {name: {} for name in TABLES}
        self.tables |= {f"{spec.name}_history": {} for spec in TABLES.values() if spec.has_history}
        self.offsets: dict[int, PartitionState] = {}
        self.epochs: dict[int, int] = {}


class MemoryStore:
    """A `ProjectionStore` over `MemoryTables`."""

    def __init__(self, tables: MemoryTables | None = None) -> None:
        self.shared = MemoryTables() if tables is None else tables

    def another(self) -> MemoryStore:
        """Another store over the same tables."""
        return MemoryStore(self.shared)

    def state(self, partition: int) -> PartitionState:
        with self.shared.lock:
            return self.shared.offsets.get(partition, _START)

    def load(self, partition: int, needs: Needs) -> Loaded:
        with self.shared.lock:
            return _Load(self.shared, partition).loaded(needs)

    def commit(self, batch: Batch, *, epoch: int) -> None:
        with self.shared.lock:
            shared = self.shared
            state = shared.offsets.get(batch.partition, _START)
            if state.offset_next != batch.offset_expected or shared.epochs.get(batch.partition, 0) != epoch:
                raise FencedError(f"partition {batch.partition} is at {state.offset_next}, not ours to move")
            for table, keys in batch.superseded.items():
                for key, valid_to in keys.items():
                    self._move(TABLES[table], key, valid_to)
            for removal in batch.ranges:
                self._remove_range(removal, batch.range_valid_to)
            for table, scopes in batch.sweeps.items():
                for scope in scopes:
                    self._remove_range(RangeRemoval(table, scope), batch.range_valid_to)
            for table, removals in batch.removals.items():
                for key in removals:
                    shared.tables[table].pop(key, None)
            for table, puts in batch.puts.items():
                shared.tables[table].update(puts)
            for table, rows in batch.additions.items():
                self._add(table, rows)
            shared.offsets[batch.partition] = batch.state

    def rows(self, table: str) -> Iterator[Row]:
        with self.shared.lock:
            rows = sorted(self.shared.tables[table].items(), key=lambda item: _sortable(item[0]))
        return iter([tuple(row) for _, row in rows])

    def reset(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Nothing to give back."""

    def _add(self, table: str, rows: list[Row]) -> None:
        size = _key_size(table)
        for row in rows:
            key = tuple(row[:size]) if not table.endswith("_history") else _history_key(table, row)
            assert key not in self.shared.tables[table], f"{table} has {key} already"
            self.shared.tables[table][key] = tuple(row)

    def _move(self, spec: TableSpec, key: Row, valid_to: int) -> None:
        old = self.shared.tables[spec.name].pop(key)
        self._add(f"{spec.name}_history", [(*old, valid_to)])

    def _remove_range(self, removal: RangeRemoval, valid_to: int) -> None:
        spec = TABLES[removal.table]
        for key in [key for key in self.shared.tables[removal.table] if _within(key, removal)]:
            if spec.has_history:
                self._move(spec, key, valid_to)
            else:
                del self.shared.tables[removal.table][key]


class _Load:
    """One `load`: looks each need up in the tables."""

    def __init__(self, shared: MemoryTables, partition: int) -> None:
        self._tables = shared.tables
        self._partition = partition
        self._state = shared.offsets.get(partition, _START)

    def loaded(self, needs: Needs) -> Loaded:
        loaded = Loaded(self._state)
        for scope, mutation_id in needs.ids:
            seen = self._seen(scope, mutation_id)
            if seen is not None:
                loaded.ids[scope, mutation_id] = seen
        for row in self._present("capsule_entry", needs.capsule_keys):
            assert isinstance(row, CapsuleEntry)
            loaded.capsule_entries[row.scope, row.key] = Head(row.version, len(row.value), row.sha256)
        for row in self._present("deployment_entry", needs.deployment_keys):
            assert isinstance(row, DeploymentEntry)
            size = None if row.value is None else len(row.value)
            loaded.deployment_entries[row.scope, row.namespace, row.key] = Head(row.version, size)
        for row in self._present("capsule_scope", {(scope,) for scope in needs.capsule_scopes}):
            assert isinstance(row, CapsuleScope)
            loaded.capsule_scopes[row.scope] = row
        for row in self._present("deployment_scope", {(scope,) for scope in needs.deployment_scopes}):
            assert isinstance(row, DeploymentScope)
            loaded.deployment_scopes[row.scope] = row
        if needs.restored_scopes:
            held = {key[0] for key in self._tables["deployment_entry"]}
            loaded.occupied = {scope for scope in needs.restored_scopes if scope in held}
        self._load_instances(needs.instances, loaded)
        self._load_messages(needs, loaded)
        self._load_range(needs, loaded)
        return loaded

    def _present(self, table: str, keys: Iterable[Row]) -> list[Row]:
        rows = self._tables[table]
        return [rows[key] for key in keys if key in rows]

    def _seen(self, scope: str, mutation_id: str) -> SeenId | None:
        row = self._tables["mutation_id"].get((self._partition, mutation_id, scope))
        if row is None:
            return None
        assert isinstance(row, MutationId)
        first = DecisionRow(*self._tables["decision"][self._partition, row.record_offset])  # type: ignore[arg-type]
        decision = Decision(
            DecisionStatus(first.status), first.code, first.version, first.removed, first.detail
        )
        return SeenId(row.record_offset, row.fingerprint, row.time_ms, decision)

    def _load_instances(self, scopes: set[str], loaded: Loaded) -> None:
        for scope in scopes:
            instance = self._tables["orchestration_instance"].get((scope,))
            if instance is None:
                continue
            assert isinstance(instance, Instance)
            loaded.instances[scope] = instance
            execution = self._tables["orchestration_execution"].get((scope, instance.execution_id))
            assert isinstance(execution, Execution)
            loaded.executions[scope] = execution
            rows = [row for key, row in self._tables["orchestration_kv"].items() if key[0] == scope]
            loaded.kv[scope] = {row.key: row for row in rows if isinstance(row, KvEntry)}
            queue = self._tables["orchestration_queue"].get((scope,))
            if isinstance(queue, Queue):
                loaded.queues[scope] = queue

    def _load_messages(self, needs: Needs, loaded: Loaded) -> None:
        for row in self._present("orchestration_inbox", needs.messages):
            assert isinstance(row, InboxMessage)
            loaded.messages.setdefault(row.scope, {})[row.record_offset] = row
        for row in self._present("orchestration_task", needs.tasks):
            assert isinstance(row, Task)
            loaded.tasks.setdefault(row.scope, {})[row.execution_id, row.event_id] = row
        for row in self._present("orchestration_outbox", needs.outgoing):
            assert isinstance(row, OutboxMessage)
            loaded.outgoing[row[:5]] = row
        if needs.children is not None:
            rows = sorted(self._tables["orchestration_child"].items(), key=lambda item: _sortable(item[0]))
            loaded.children = tuple(Child(*row) for key, row in rows if key[0] == needs.children)  # type: ignore[arg-type]

    def _load_range(self, needs: Needs, loaded: Loaded) -> None:
        if needs.range is None:
            return
        wanted = RangeRemoval(needs.range.table, needs.range.scope, needs.range.prefix)
        rows = [row for key, row in self._tables[wanted.table].items() if _within(key, wanted)]
        if wanted.table == "orchestration_execution":
            loaded.execution_ids = frozenset(row.execution_id for row in rows if isinstance(row, Execution))
            return
        loaded.range = RangeTotals(
            sum(1 for row in rows if _value(row) is not None),
            sum(utf8_length(_key(row)) + len(_value(row) or b"") for row in rows if _value(row) is not None),
            max((_version(row) for row in rows), default=0),
        )


def _value(row: Row) -> bytes | None:
    assert isinstance(row, CapsuleEntry | DeploymentEntry)
    return row.value


def _key(row: Row) -> str:
    assert isinstance(row, CapsuleEntry | DeploymentEntry)
    return row.key


def _version(row: Row) -> int:
    assert isinstance(row, CapsuleEntry | DeploymentEntry)
    return row.version


def _within(key: Row, removal: RangeRemoval) -> bool:
    if key[0] != removal.scope:
        return False
    if removal.execution_ids is not None:
        return key[1] in removal.execution_ids
    return removal.prefix is None or str(key[1]).startswith(removal.prefix)


def _key_size(table: str) -> int:
    return TABLES[table.removesuffix("_history")].key_size


def _history_key(table: str, row: Row) -> Row:
    """A history row's key: the row's key and from when on it was true."""
    spec = TABLES[table.removesuffix("_history")]
    return (*row[: spec.key_size], row[spec.columns.index(spec.valid_from)])


def _sortable(key: Row) -> tuple[object, ...]:
    """Text compares as bytes, as in Postgres with COLLATE "C"."""
    return tuple(part.encode() if isinstance(part, str) else part for part in key)
