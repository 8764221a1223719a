"""Mutations for tests: one short function a type, ids drawn in order so that every run has the same ones."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any
from uuid import UUID

from kvfold.schemas.codec import encode
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.partitioning import partition_of, system_scope
from kvfold.schemas.precondition import Precondition
from kvfold.schemas.record import Record
from kvfold.schemas.strict_json import encode_json

__all__ = [
    "CAPSULE",
    "DEPLOYMENT",
    "INSTANCE",
    "SNAPSHOT",
    "answer",
    "batch_delete",
    "batch_set",
    "capsule_batch",
    "capsule_cleared",
    "capsule_deleted",
    "capsule_quota",
    "capsule_restored",
    "capsule_set",
    "deployment_deleted",
    "deployment_put",
    "deployment_restored",
    "envelope",
    "format_raised",
    "instance_deleted",
    "instance_events",
    "instance_pruned",
    "instance_pruned_before",
    "instance_started",
    "key_cleared",
    "key_set",
    "keys_cleared",
    "mutation_id",
    "namespace_cleared",
    "orchestration_record",
    "raw_record",
    "record_of",
    "scope_in",
    "turn",
    "undeployed",
]

SNAPSHOT = "0190c000-0000-7000-8000-00000000000a"
CAPSULE = "c:alice:capsule:notes"
DEPLOYMENT = "d:dep-1"
INSTANCE = "o:order-17"
_numbers = count(1)


def mutation_id(number: int | None = None) -> str:
    """The id with this number; without one, an id that no other call gives."""
    return str(UUID(int=number if number is not None else (1 << 100) + next(_numbers)))


def _mutation(
    type_: str, scope: str, id_: str | None, expected: str = "any", *, version: int = 1, **parts: Any
) -> Mutation:
    return Mutation(
        f"kvfold.{type_}.v{version}",
        scope,
        id_ or mutation_id(),
        expected=Precondition.parse(expected),
        **parts,
    )


def capsule_set(
    key: str,
    value: bytes = b"v",
    *,
    expected: str = "any",
    scope: str = CAPSULE,
    id_: str | None = None,
    actor: str | None = None,
) -> Mutation:
    """`capsule.set`."""
    return _mutation("capsule.set", scope, id_, expected, subject=key, body=value, actor=actor)


def capsule_restored(
    key: str,
    value: bytes = b"v",
    *,
    version: int = 1,
    snapshot: str = SNAPSHOT,
    scope: str = CAPSULE,
    id_: str | None = None,
) -> Mutation:
    """`capsule.restored`."""
    made = _mutation("capsule.restored", scope, id_, subject=key, body=value, snapshot=snapshot)
    return replace(made, version=version)


def deployment_restored(
    key: str,
    value: bytes = b"v",
    *,
    version: int = 1,
    namespace: str = "user",
    snapshot: str = SNAPSHOT,
    scope: str = DEPLOYMENT,
    id_: str | None = None,
) -> Mutation:
    """`deployment.restored`."""
    made = _mutation(
        "deployment.restored", scope, id_, subject=key, namespace=namespace, body=value, snapshot=snapshot
    )
    return replace(made, version=version)


def capsule_deleted(
    key: str, *, expected: str = "any", scope: str = CAPSULE, id_: str | None = None
) -> Mutation:
    """`capsule.deleted`."""
    return _mutation("capsule.deleted", scope, id_, expected, subject=key)


def capsule_cleared(prefix: str | None, *, scope: str = CAPSULE, id_: str | None = None) -> Mutation:
    """`capsule.prefix-cleared`."""
    return _mutation("capsule.prefix-cleared", scope, id_, subject=prefix)


def namespace_cleared(*, scope: str = CAPSULE, id_: str | None = None) -> Mutation:
    """`capsule.namespace-cleared`."""
    return _mutation("capsule.namespace-cleared", scope, id_)


def capsule_batch(
    *operations: Mapping[str, object],
    conditions: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    scope: str = CAPSULE,
    id_: str | None = None,
    actor: str | None = None,
) -> Mutation:
    """`capsule.batch`; conditions by key, or in order."""
    pairs = conditions.items() if isinstance(conditions, Mapping) else conditions
    body = {
        "conditions": [{"key": key, "expected": expected} for key, expected in pairs],
        "operations": list(operations),
    }
    return _mutation("capsule.batch", scope, id_, body=encode_json(body), actor=actor)


def batch_set(key: str, value: bytes = b"v") -> dict[str, object]:
    """The operation `set`."""
    return {"kind": "set", "key": key, "value": base64.b64encode(value).decode()}


def batch_delete(key: str) -> dict[str, object]:
    """The operation `delete`."""
    return {"kind": "delete", "key": key}


def capsule_quota(bytes_max: object, *, scope: str = CAPSULE, id_: str | None = None) -> Mutation:
    """`capsule.quota-set`."""
    return _mutation("capsule.quota-set", scope, id_, body=encode_json({"bytes_max": bytes_max}))


def deployment_put(
    key: str,
    value: bytes | None = b"v",
    *,
    namespace: str | None = "user",
    expected: str = "any",
    scope: str = DEPLOYMENT,
    id_: str | None = None,
) -> Mutation:
    """`deployment.put`."""
    return _mutation("deployment.put", scope, id_, expected, subject=key, namespace=namespace, body=value)


def deployment_deleted(
    key: str,
    *,
    namespace: str | None = "user",
    expected: str = "any",
    scope: str = DEPLOYMENT,
    id_: str | None = None,
) -> Mutation:
    """`deployment.deleted`."""
    return _mutation("deployment.deleted", scope, id_, expected, subject=key, namespace=namespace)


def undeployed(*, scope: str = DEPLOYMENT, id_: str | None = None) -> Mutation:
    """`deployment.undeployed`."""
    return _mutation("deployment.undeployed", scope, id_)


def envelope(plaintext_bytes: int, *, nonce: bytes = b"n" * 12, key_id: bytes = b"k1") -> bytes:
    """Something of the form of a secret envelope that would hold so many bytes."""
    return b"KVS1" + bytes((len(key_id),)) + key_id + nonce + b"c" * (plaintext_bytes + 16)


def instance_started(
    *,
    mode: str = "external",
    name: str = "order",
    data: object = None,
    parent: Mapping[str, object] | None = None,
    scope: str = INSTANCE,
    id_: str | None = None,
) -> Mutation:
    """`orchestration.started`."""
    body: dict[str, object] = {"name": name, "mode": mode, "input": data}
    if parent is not None:
        body["parent"] = parent
    return _mutation("orchestration.started", scope, id_, body=encode_json(body))


def instance_events(
    *events: Mapping[str, object],
    execution: int = 1,
    incarnation: int | None = None,
    scope: str = INSTANCE,
    id_: str | None = None,
    actor: str | None = None,
) -> Mutation:
    """`orchestration.events`."""
    body: dict[str, object] = {"execution_id": execution, "events": list(events)}
    if incarnation is not None:
        body["incarnation"] = incarnation
    return _mutation("orchestration.events", scope, id_, body=encode_json(body), actor=actor)


def key_set(key: str, value: str = "v") -> dict[str, object]:
    """The event `KeyValueSet`."""
    return {"kind": "KeyValueSet", "key": key, "value": value}


def key_cleared(key: str) -> dict[str, object]:
    """The event `KeyValueCleared`."""
    return {"kind": "KeyValueCleared", "key": key}


def keys_cleared() -> dict[str, object]:
    """The event `KeyValuesCleared`."""
    return {"kind": "KeyValuesCleared"}


def instance_pruned(
    executions: Iterable[int],
    *,
    keep_values: bool | None = None,
    scope: str = INSTANCE,
    id_: str | None = None,
) -> Mutation:
    """`orchestration.executions-pruned`."""
    body: dict[str, object] = {"execution_ids": list(executions)}
    if keep_values is not None:
        body["keep_values"] = keep_values
    return _mutation("orchestration.executions-pruned", scope, id_, body=encode_json(body))


def instance_pruned_before(before: object, *, scope: str = INSTANCE, id_: str | None = None) -> Mutation:
    """`orchestration.executions-pruned`, version 2."""
    name = "orchestration.executions-pruned"
    return _mutation(name, scope, id_, version=2, body=encode_json({"before": before}))


def instance_deleted(
    *, incarnation: int | None = None, scope: str = INSTANCE, id_: str | None = None
) -> Mutation:
    """`orchestration.instance-deleted`."""
    body = {} if incarnation is None else {"incarnation": incarnation}
    return _mutation("orchestration.instance-deleted", scope, id_, body=encode_json(body))


def orchestration_record(
    verb: str, body: Mapping[str, object], *, scope: str = INSTANCE, id_: str | None = None
) -> Mutation:
    """An orchestration mutation with this body: `orchestration_record("event-raised", {"name": "go"})`."""
    return _mutation(f"orchestration.{verb}", scope, id_, body=encode_json(body))


def turn(
    *events: Mapping[str, object],
    length: int = 0,
    consumed: Iterable[int] = (),
    seen: int = 0,
    incarnation: int = 0,
    execution: int = 1,
    worker: str = "w1",
    scope: str = INSTANCE,
    id_: str | None = None,
) -> Mutation:
    """`orchestration.turn`."""
    body: dict[str, object] = {
        "incarnation": incarnation,
        "execution_id": execution,
        "history_length": length,
        "worker": worker,
        "seen": seen,
        "consumed": list(consumed),
        "events": list(events),
    }
    return orchestration_record("turn", body, scope=scope, id_=id_)


def answer(
    verb: str,
    event_id: int,
    *,
    incarnation: int = 0,
    execution: int = 1,
    scope: str = INSTANCE,
    **more: object,
) -> Mutation:
    """What answers event `event_id`: `answer("activity-completed", 1, attempt=1, result="r")`."""
    body = {"incarnation": incarnation, "execution_id": execution, "event_id": event_id} | more
    return orchestration_record(verb, body, scope=scope)


def format_raised(
    level: int, *, partition: int = 0, partition_count: int = 1, id_: str | None = None
) -> Mutation:
    """`system.format-raised` for a partition."""
    scope = system_scope(partition, partition_count)
    return _mutation("system.format-raised", scope, id_, body=encode_json({"level": level}))


def scope_in(partition: int, partition_count: int, form: str = "c:p{}:capsule:notes") -> str:
    """The first scope of the form that lives in the partition."""
    scopes = (form.format(number) for number in count())
    return next(s for s in scopes if partition_of(s.encode(), partition_count) == partition)


def record_of(
    mutation: Mutation, *, partition: int = 0, offset: int = 0, timestamp_ms: int = 1_000_000
) -> Record:
    """The record of a mutation at a place."""
    new = encode(mutation)
    return Record(partition, offset, timestamp_ms, new.key, new.headers, new.value)


def raw_record(
    mutation: Mutation,
    *,
    key: bytes | None = b"",
    value: bytes | None = None,
    drop: Iterable[str] = (),
    add: Iterable[tuple[str, bytes]] = (),
    keep_key: bool = True,
    keep_value: bool = True,
) -> Record:
    """The record of a mutation with parts of it changed: headers dropped, headers added, another key or value."""
    record = record_of(mutation)
    headers = tuple(header for header in record.headers if header[0] not in set(drop)) + tuple(add)
    return Record(
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key if keep_key else key,
        headers,
        record.value if keep_value else value,
    )
