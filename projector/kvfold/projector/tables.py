"""The rows of a projection, and what the stores have to know about each table.

One row class a table, its fields the table's columns in order; a row is a tuple, so that it can be copied into
Postgres as it is. `TABLES` says which leading columns are the key, how each column is stored, and whether a row that
is overwritten or removed moves to `<table>_history` with a last column `valid_to`. Both stores are driven by these
specifications, so they cannot differ in what they keep; a test compares them with the schema's SQL.

Offsets stand without their partition: a scope lives in one partition, for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = [
    "TABLES",
    "CapsuleEntry",
    "CapsuleScope",
    "Child",
    "DecisionRow",
    "DeploymentEntry",
    "DeploymentScope",
    "Execution",
    "HistoryEvent",
    "InboxMessage",
    "Instance",
    "KvEntry",
    "MutationId",
    "OutboxMessage",
    "PartitionState",
    "Queue",
    "Row",
    "TableSpec",
    "Task",
]


class CapsuleEntry(NamedTuple):
    """A capsule's key now. `valid_from` is the offset that wrote it, `time_ms` that record's effective time."""

    scope: str
    key: str
    version: int
    value: bytes
    sha256: bytes
    actor: str | None
    valid_from: int
    time_ms: int


class CapsuleScope(NamedTuple):
    """A capsule namespace's usage: live keys, bytes of keys and values, and its quota (None = the default).

    `restoring` is the snapshot that all its entries come from, None as soon as anything else was done to them.
    """

    scope: str
    keys: int
    bytes: int
    bytes_max: int | None
    restoring: str | None = None


class DeploymentEntry(NamedTuple):
    """A deployment's key now; `value` None = a tombstone, which keeps the version so that it never comes back."""

    scope: str
    namespace: str
    key: str
    version: int
    value: bytes | None
    actor: str | None
    valid_from: int
    time_ms: int


class DeploymentScope(NamedTuple):
    """`version_floor`: the highest version that an undeploy swept; later versions in the scope are above it.

    `restoring` is as in `CapsuleScope`.
    """

    scope: str
    version_floor: int
    restoring: str | None = None


class Instance(NamedTuple):
    """An orchestration instance and who executes it.

    `incarnation` is the offset of the record that created it; `worker` the last one to commit something for it.
    `status` is `Running`, `Completed` or `Failed`; `input`, `output` are JSON text; `updated_at` is the last record
    that changed it, from which on the row is true.
    """

    scope: str
    incarnation: int
    execution_id: int
    mode: str
    name: str
    status: str
    input: str
    output: str | None
    failure: str | None
    custom_status: str | None
    worker: str | None
    history_length: int
    created_ms: int
    updated_ms: int
    updated_at: int


class Queue(NamedTuple):
    """What waits for a `runtime` instance.

    `runnable`: a worker has something to do. `message_last` is the offset of the newest message, `events_waiting` the
    number of raised events in the inbox, `children` that of children ever asked for; `parent` is who asked for this
    instance, as canonical JSON.
    """

    scope: str
    runnable: bool
    message_last: int
    events_waiting: int
    children: int
    parent: str | None


class InboxMessage(NamedTuple):
    """A message that no turn has consumed; `data` is the history event that it becomes, as canonical JSON."""

    scope: str
    record_offset: int
    kind: str
    data: str
    time_ms: int


class Task(NamedTuple):
    """What an execution asked for and awaits: `kind` is `activity`, `timer` or `child`; `data` is the asking event.

    `due_ms`: not before this effective time. `attempt` counts from 1. `record_offset` wrote this row.
    """

    scope: str
    execution_id: int
    event_id: int
    incarnation: int
    kind: str
    name: str
    data: str
    attempt: int
    due_ms: int
    scheduled_ms: int
    record_offset: int


class Child(NamedTuple):
    """A child that an instance asked for; kept until the instance is deleted, which deletes its children."""

    scope: str
    execution_id: int
    event_id: int
    child: str


class OutboxMessage(NamedTuple):
    """A message to another scope that was not delivered yet: `kind` is `start`, `completed`, `failed` or `delete`.

    The key names the event that sent it; `record_offset` and `event_id` give the order. It outlives its instance.
    """

    scope: str
    incarnation: int
    execution_id: int
    event_id: int
    kind: str
    target: str
    data: str
    record_offset: int
    time_ms: int


class Execution(NamedTuple):
    """One execution of an instance. `kv_seed` is the KV at its start, as a canonical JSON object."""

    scope: str
    execution_id: int
    status: str
    input: str
    output: str | None
    failure: str | None
    kv_seed: str
    started_ms: int
    ended_ms: int | None


class HistoryEvent(NamedTuple):
    """One event of an execution's history, numbered from 1; `data` is the event's canonical JSON."""

    scope: str
    execution_id: int
    event_id: int
    kind: str
    data: str
    record_offset: int
    time_ms: int


class KvEntry(NamedTuple):
    """An orchestration's key now; `execution_id` is its last-writing execution (row O12)."""

    scope: str
    key: str
    value: str
    execution_id: int
    actor: str | None
    valid_from: int
    time_ms: int


class DecisionRow(NamedTuple):
    """The outcome of one record. `repeat_of` is the first record's offset where this one repeats a mutation id.

    `keys` is a JSON array of the keys that the record changed, in byte order, where it has no subject that would say so:
    of a batch, of an orchestration's events. None where there are none, and where a whole range went.
    """

    partition: int
    record_offset: int
    scope: str | None
    mutation_id: str | None
    type: str | None
    namespace: str | None
    subject: str | None
    actor: str | None
    status: str
    code: str | None
    version: int | None
    removed: int | None
    detail: str | None
    repeat_of: int | None
    keys: str | None
    time_ms: int


class MutationId(NamedTuple):
    """The index that finds repeats: where a mutation id was first decided, and what it asked for."""

    partition: int
    id: str
    scope: str
    record_offset: int
    fingerprint: bytes
    time_ms: int


class PartitionState(NamedTuple):
    """How far a partition is folded, and what its decisions carry on. Part of the offset row.

    `time_ms` is the effective time; `last_*` describe the last folded record, which a take-over reads again.
    """

    offset_next: int
    time_ms: int
    format_level: int
    last_offset: int | None
    last_digest: str | None
    last_timestamp_ms: int | None


Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What a store has to know: `types` are Postgres types, one a column; the first `key_size` columns are the key."""

    name: str
    row: type[tuple[object, ...]]
    types: tuple[str, ...]
    key_size: int
    has_history: bool = False

    @property
    def valid_from(self) -> str:
        """The column that says from which record on a row is true; of tables with a history."""
        assert self.has_history, self.name
        return "updated_at" if self.row is Instance else "valid_from"

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names, in the row's order."""
        return self.row._fields  # type: ignore[attr-defined, no-any-return]


def _spec(
    name: str, row: type[tuple[object, ...]], types: str, key_size: int, *, has_history: bool = False
) -> TableSpec:
    spec = TableSpec(name, row, tuple(types.split()), key_size, has_history)
    assert len(spec.types) == len(spec.columns), name
    return spec


TABLES: Final[dict[str, TableSpec]] = {
    spec.name: spec
    for spec in (
        _spec(
            "capsule_entry", CapsuleEntry, "text text int8 bytea bytea text int8 int8", 2, has_history=True
        ),
        _spec("capsule_scope", CapsuleScope, "text int8 int8 int8 text", 1),
        _spec(
            "deployment_entry",
            DeploymentEntry,
            "text text text int8 bytea text int8 int8",
            3,
            has_history=True,
        ),
        _spec("deployment_scope", DeploymentScope, "text int8 text", 1),
        _spec(
            "orchestration_instance",
            Instance,
            "text int8 int8 text text text text text text text text int8 int8 int8 int8",
            1,
            has_history=True,
        ),
        _spec("orchestration_queue", Queue, "text bool int8 int8 int8 text", 1),
        _spec("orchestration_inbox", InboxMessage, "text int8 text text int8", 2),
        _spec("orchestration_task", Task, "text int8 int8 int8 text text text int8 int8 int8 int8", 3),
        _spec("orchestration_child", Child, "text int8 int8 text", 3),
        _spec("orchestration_outbox", OutboxMessage, "text int8 int8 int8 text text text int8 int8", 5),
        _spec("orchestration_execution", Execution, "text int8 text text text text text int8 int8", 2),
        _spec("orchestration_event", HistoryEvent, "text int8 int8 text text int8 int8", 3),
        _spec("orchestration_kv", KvEntry, "text text text int8 text int8 int8", 2, has_history=True),
        _spec(
            "decision",
            DecisionRow,
            "int4 int8 text uuid text text text text text text int8 int8 text int8 text int8",
            2,
        ),
        _spec("mutation_id", MutationId, "int4 uuid text int8 bytea int8", 3),
    )
}
"""Every table that the fold writes, by name (the offset row and the claims are the store's own)."""
