"""What a decision may look at: the state of one scope, and where the record stands. All of it comes from the log.

Named tuples where a record needs some of its own: a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from kvfold.projector.tables import (
    Child,
    Execution,
    InboxMessage,
    Instance,
    KvEntry,
    OutboxMessage,
    Queue,
    Task,
)

__all__ = [
    "CapsuleState",
    "DeploymentState",
    "Head",
    "OrchestrationState",
    "Place",
    "RangeTotals",
    "ScopeState",
    "SystemState",
]


class Place(NamedTuple):
    """Where a record stands: partition, offset, and effective time in milliseconds since 1970."""

    partition: int
    offset: int
    time_ms: int


class Head(NamedTuple):
    """An entry without its value: version, size of the value in bytes (None = tombstone), and SHA-256 for capsules."""

    version: int
    size: int | None
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class RangeTotals:
    """What a range mutation would remove: live entries, bytes of their keys and values, highest version (0 = none)."""

    count: int = 0
    bytes: int = 0
    version_max: int = 0


class CapsuleState(NamedTuple):
    """A capsule namespace: usage, quota (None = the default), the entry meant, the range meant.

    `entries` are the ones that a batch names, by key; an absent one is not among them. `restoring` is the snapshot that all
    entries come from.
    """

    keys: int = 0
    bytes: int = 0
    bytes_max: int | None = None
    entry: Head | None = None
    range: RangeTotals = RangeTotals()
    entries: Mapping[str, Head] = MappingProxyType({})
    restoring: str | None = None


class DeploymentState(NamedTuple):
    """A deployment: version floor, the entry meant (a tombstone counts as absent), the range meant, the snapshot that all
    entries come from; `is_occupied`, filled for a restored entry only: there are entries, or tombstones.
    """

    version_floor: int = 0
    entry: Head | None = None
    range: RangeTotals = RangeTotals()
    restoring: str | None = None
    is_occupied: bool = False


class OrchestrationState(NamedTuple):
    """An instance with all its keys (ten at most), its current execution and, for `runtime` instances, its queue.

    - `executions`: the ones that still have rows; filled for a prune only.
    - `inbox`: messages that a turn consumes, by offset. `task`: what an answer answers. `outgoing`: what was delivered.
      What is absent was not found. `children`: filled for a deletion only. `now_ms`: effective time.
    """

    instance: Instance | None
    kv: Mapping[str, KvEntry]
    execution: Execution | None = None
    executions: frozenset[int] = frozenset()
    queue: Queue | None = None
    inbox: Mapping[int, InboxMessage] = MappingProxyType({})
    task: Task | None = None
    outgoing: OutboxMessage | None = None
    children: tuple[Child, ...] = ()
    now_ms: int = 0


class SystemState(NamedTuple):
    """The partition's format level."""

    format_level: int


ScopeState = CapsuleState | DeploymentState | OrchestrationState | SystemState
