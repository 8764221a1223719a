"""The JSON shapes of the reads, for the OpenAPI document. Answers are built as plain data: models cost time per request."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

__all__ = [
    "CapsuleItem",
    "Capsules",
    "DecisionShape",
    "Generation",
    "Generations",
    "Health",
    "History",
    "HistoryItem",
    "Instance",
    "InstanceEvent",
    "InstanceEvents",
    "InstanceItem",
    "InstanceKv",
    "Instances",
    "KeyPage",
    "KvEntry",
    "KvValue",
    "Namespaces",
    "ObjectItem",
    "ObjectValue",
    "Objects",
    "Partition",
    "Pause",
    "PersistentHealth",
    "PoolHealth",
    "Projector",
    "ProjectorHealth",
    "Readiness",
    "Rebuild",
    "StorageHealth",
    "StoreHealth",
    "Usage",
    "VolatileTierHealth",
]


class KeyPage(BaseModel):
    """Keys in byte order."""

    keys: list[str]
    next_cursor: str | None


class Usage(BaseModel):
    """Keys, bytes of keys and values, and the quota in force."""

    keys: int
    bytes: int
    bytes_max: int


class CapsuleItem(Usage):
    """A capsule's namespace of one principal, and its usage."""

    principal: str
    capsule_id: str


class Capsules(BaseModel):
    """Namespaces in byte order of `PRINCIPAL:capsule:ID`."""

    capsules: list[CapsuleItem]
    next_cursor: str | None


class Namespaces(BaseModel):
    """Namespaces of the user family that hold something."""

    namespaces: list[str]


class ObjectItem(BaseModel):
    """An object in a listing; size in bytes, time as RFC 3339 in UTC, digest of the value in hex."""

    key: str
    version: int
    size: int
    updated_at: str
    sha256: str | None


class Objects(BaseModel):
    """Objects in byte order of their keys."""

    objects: list[ObjectItem]
    next_cursor: str | None


class ObjectValue(BaseModel):
    """An object with its value: as text where it is UTF-8, else in base64."""

    key: str
    value: str
    encoding: Literal["utf8", "base64"]
    version: int


class KvValue(BaseModel):
    """An orchestration key's value and its last-writing execution."""

    value: str
    execution_id: int


class KvEntry(KvValue):
    """The same with its key."""

    key: str


class InstanceKv(BaseModel):
    """All keys of an instance."""

    kv: dict[str, KvValue]


class InstanceItem(BaseModel):
    """An instance in a listing; `owner` is the last worker to commit something for it."""

    instance_id: str
    name: str
    mode: Literal["runtime", "external"]
    status: Literal["Running", "Completed", "Failed"]
    execution_id: int
    owner: str | None
    history_length: int
    created_at: str
    updated_at: str


class Instances(BaseModel):
    """Instances in byte order of their ids."""

    instances: list[InstanceItem]
    next_cursor: str | None


class Instance(InstanceItem, InstanceKv):
    """An instance; `incarnation` tells a re-created id from the old one, `input` and `output` are JSON values."""

    incarnation: int
    input: Any
    output: Any
    failure: str | None
    custom_status: str | None


class InstanceEvent(BaseModel):
    """An event of an execution, numbered from 1; `position` is of the record that wrote it, `event` has a `kind`."""

    event_id: int
    position: str
    time: str
    event: dict[str, Any]


class InstanceEvents(BaseModel):
    """Events of an execution, in order."""

    execution_id: int
    events: list[InstanceEvent]
    next_cursor: str | None


class DecisionShape(BaseModel):
    """What became of a mutation; `removed` is the count of a range mutation."""

    id: str | None
    scope: str | None
    position: str
    status: Literal["applied", "conflict", "rejected", "pending"]
    code: str | None
    version: int | None
    detail: str | None
    removed: int | None


class Rebuild(BaseModel):
    """How a generation was rebuilt: where it has to get, and up to where its decisions were compared."""

    compared_with: int
    to_position: str | None
    target: str
    compared: str


class Verification(BaseModel):
    """A generation's last comparison with a fresh fold of the log; 0 differences: every row is what the log folds to."""

    position: str
    finished_at: str
    row_count: int
    difference_count: int
    unsettled_scopes: int


class Generation(BaseModel):
    """One complete set of projection tables; `position` covers every partition that it has something of."""

    id: int
    state: str
    serving: bool
    schema_version: int
    created_at: str
    position: str
    rebuild: Rebuild | None
    verification: Verification | None


class Generations(BaseModel):
    """All generations, oldest first."""

    generations: list[Generation]


class Pause(BaseModel):
    """Why a partition stopped."""

    reason: str
    detail: str
    since: str


class Partition(BaseModel):
    """A partition of the serving generation; `position` is that of the last record covered."""

    partition: int
    position: str
    effective_time: str
    committed_at: str
    owner: str | None
    claim_expires_at: str | None
    epoch: int
    paused: Pause | None


class Projector(BaseModel):
    """Every partition; the notification queue's fill is 0 to 1."""

    generation: int
    partitions: list[Partition]
    notification_queue_usage: float


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """The process can serve reads."""

    status: Literal["ready"]
    generation: int


class HistoryItem(BaseModel):
    """A record and what became of it; `keys` are those that a record without a key changed."""

    position: str
    time: str
    id: str | None
    type: str | None
    namespace: str | None
    key: str | None
    prefix: str | None
    keys: list[str]
    actor: str | None
    status: Literal["applied", "conflict", "rejected"]
    code: str | None
    version: int | None
    removed: int | None
    detail: str | None
    repeat_of: str | None


class History(BaseModel):
    """A page of a scope's history, newest first."""

    history: list[HistoryItem]
    next_cursor: str | None
    kept_from: str


class PoolHealth(BaseModel):
    """Connections of this process's read pool: made, in use, and requests that wait for one."""

    size: int
    in_use: int
    waiting: int


class StoreHealth(BaseModel):
    """The store of all deployments. `bytes` and `history_bytes` with indexes; `rows` is an estimate."""

    bytes: int
    history_bytes: int
    rows: int


class ProjectorHealth(BaseModel):
    """`lag_records`: records of the log that are not folded yet; null where this process cannot ask the log."""

    lag_records: int | None
    paused_partitions: list[int]


class PersistentHealth(BaseModel):
    """The persistent tier; `code` says what is wrong where the status is `unavailable`."""

    status: Literal["ok", "unavailable"]
    code: str | None
    pool: PoolHealth
    store: StoreHealth | None
    projector: ProjectorHealth | None


class VolatileTierHealth(BaseModel):
    """The volatile tier, `none` where this process has none.

    `memory_max_bytes` is null without a ceiling; `hit_rate`, 0 to 1, is null before the first read. A rising count of
    evicted keys is the tier at work, and tells why a volatile object is not there.
    """

    status: Literal["ok", "unavailable", "none"]
    code: str | None
    memory_used_bytes: int | None
    memory_max_bytes: int | None
    hit_rate: float | None
    evicted_keys: int | None
    keys: int | None


class StorageHealth(BaseModel):
    """Both tiers, each for itself."""

    persistent: PersistentHealth
    volatile: VolatileTierHealth
