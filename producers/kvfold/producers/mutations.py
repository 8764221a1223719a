"""Constructors of mutations: pure functions, one per type that a caller outside the runtime appends.

They only build; `doors.admit` judges. `mutation_id=""` lets the producer give a UUIDv7. Scopes come from
`kvfold.schemas.names` (`capsule_scope`, `deployment_scope`, `orchestration_scope`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from kvfold.schemas.bodies import QuotaSet
from kvfold.schemas.body import Body
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.orchestration import (
    CancelRequested,
    Event,
    ExecutionsPruned,
    ExecutionsPrunedV2,
    InstanceDeleted,
)
from kvfold.schemas.precondition import ANY, Precondition
from kvfold.schemas.strict_json import encode_json

__all__ = [
    "capsule_batch",
    "capsule_deleted",
    "capsule_namespace_cleared",
    "capsule_prefix_cleared",
    "capsule_quota_set",
    "capsule_set",
    "deployment_deleted",
    "deployment_put",
    "deployment_undeployed",
    "orchestration_cancel_requested",
    "orchestration_event_raised",
    "orchestration_events",
    "orchestration_executions_pruned",
    "orchestration_executions_pruned_before",
    "orchestration_instance_deleted",
    "orchestration_started",
]

_JSON = "application/json"


def capsule_set(
    scope: str,
    key: str,
    value: bytes,
    *,
    expected: Precondition = ANY,
    mutation_id: str = "",
    actor: str | None = None,
    content_type: str = "application/octet-stream",
) -> Mutation:
    """Sets a key (rows C3, C12); with a precondition it is the compare-and-swap (row C15)."""
    return Mutation(
        "kvfold.capsule.set.v1",
        scope,
        mutation_id,
        subject=key,
        expected=expected,
        body=value,
        content_type=content_type,
        actor=actor,
    )


def capsule_deleted(
    scope: str,
    key: str,
    *,
    expected: Precondition = ANY,
    mutation_id: str = "",
    actor: str | None = None,
) -> Mutation:
    """Removes a key; removing an absent one applies, with version 0."""
    return Mutation(
        "kvfold.capsule.deleted.v1", scope, mutation_id, subject=key, expected=expected, actor=actor
    )


def capsule_prefix_cleared(
    scope: str, prefix: str, *, mutation_id: str = "", actor: str | None = None
) -> Mutation:
    """Removes every key that starts with the prefix, all at once (row C21); the empty prefix is every key."""
    # An empty prefix is an absent attribute, so that it reads back from the log as it was written.
    subject = prefix or None
    return Mutation("kvfold.capsule.prefix-cleared.v1", scope, mutation_id, subject=subject, actor=actor)


def capsule_namespace_cleared(scope: str, *, mutation_id: str = "", actor: str | None = None) -> Mutation:
    """Removes every key of the namespace, all at once (row C21)."""
    return Mutation("kvfold.capsule.namespace-cleared.v1", scope, mutation_id, actor=actor)


def capsule_batch(
    scope: str,
    *,
    sets: Mapping[str, bytes],
    deletes: Iterable[str] = (),
    conditions: Mapping[str, Precondition] = MappingProxyType({}),
    mutation_id: str = "",
    actor: str | None = None,
) -> Mutation:
    """Sets and removes keys of one namespace in one record, if every condition holds before it; else nothing changes.

    A condition is `absent`, `present` or by content (`sha256`). A key stands at most once among sets and deletes; at most
    1,024 of both together, and of conditions; the whole at most 1 MiB as JSON, in which values are base64.

    Raises:
        InvalidError: `malformed`: a key is not UTF-8.
    """
    operations: list[dict[str, str]] = [
        {"kind": "set", "key": key, "value": base64.b64encode(value).decode("ascii")}
        for key, value in sets.items()
    ]
    operations += [{"kind": "delete", "key": key} for key in deletes]
    content = {
        "conditions": [{"key": key, "expected": str(expected)} for key, expected in conditions.items()],
        "operations": operations,
    }
    return Mutation(
        "kvfold.capsule.batch.v1",
        scope,
        mutation_id,
        body=_encode(content),
        content_type=_JSON,
        actor=actor,
    )


def capsule_quota_set(
    scope: str, bytes_max: int, *, mutation_id: str = "", actor: str | None = None
) -> Mutation:
    """Sets the quota in bytes of keys and values (row C10); 0 or more, below the usage is allowed.

    The value is not judged here: a negative one is refused at the door, as `malformed`.
    """
    body = QuotaSet.model_construct(bytes_max=bytes_max)
    return _json("kvfold.capsule.quota-set.v1", scope, body, mutation_id, actor)


def deployment_put(
    scope: str,
    namespace: str,
    key: str,
    value: bytes,
    *,
    expected: Precondition = ANY,
    mutation_id: str = "",
    actor: str | None = None,
    content_type: str = "application/octet-stream",
) -> Mutation:
    """Puts an entry (rows D2 to D4); the value is the plaintext, which only a plain namespace accepts."""
    return Mutation(
        "kvfold.deployment.put.v1",
        scope,
        mutation_id,
        subject=key,
        namespace=namespace,
        expected=expected,
        body=value,
        content_type=content_type,
        actor=actor,
    )


def deployment_deleted(
    scope: str,
    namespace: str,
    key: str,
    *,
    expected: Precondition = ANY,
    mutation_id: str = "",
    actor: str | None = None,
) -> Mutation:
    """Removes an entry; an absent one applies whatever is expected (row D3)."""
    return Mutation(
        "kvfold.deployment.deleted.v1",
        scope,
        mutation_id,
        subject=key,
        namespace=namespace,
        expected=expected,
        actor=actor,
    )


def deployment_undeployed(scope: str, *, mutation_id: str = "", actor: str | None = None) -> Mutation:
    """Removes every entry of every namespace of the deployment (row D16)."""
    return Mutation("kvfold.deployment.undeployed.v1", scope, mutation_id, actor=actor)


def orchestration_started(
    scope: str,
    name: str,
    input: Any = None,
    *,
    mode: Literal["runtime", "external"] = "runtime",
    mutation_id: str = "",
    actor: str | None = None,
) -> Mutation:
    """Makes an instance; `input` is any JSON value. `external` instances accept `orchestration_events`.

    Raises:
        InvalidError: `malformed`: the input has no JSON form (NaN, infinity and lone surrogates included).
    """
    body = _encode({"name": name, "input": input, "mode": mode})
    return Mutation(
        "kvfold.orchestration.started.v1",
        scope,
        mutation_id,
        body=body,
        content_type=_JSON,
        actor=actor,
    )


def orchestration_events(
    scope: str,
    execution_id: int,
    events: Sequence[Event],
    *,
    incarnation: int | None = None,
    mutation_id: str = "",
    actor: str | None = None,
) -> Mutation:
    """What an `external` instance did, in order; all of it applies or nothing. 1 to 10,000 events.

    Raises:
        InvalidError: `malformed`: an output or input inside has no JSON form.
    """
    content = {
        "execution_id": execution_id,
        "incarnation": incarnation,
        "events": [event.model_dump() for event in events],
    }
    return Mutation(
        "kvfold.orchestration.events.v1",
        scope,
        mutation_id,
        body=_encode(content),
        content_type=_JSON,
        actor=actor,
    )


def orchestration_event_raised(
    scope: str, name: str, data: Any = None, *, mutation_id: str = "", actor: str | None = None
) -> Mutation:
    """An event for a `runtime` instance: it waits until the code waits for one of this name.

    Raises:
        InvalidError: `malformed`: the data have no JSON form.
    """
    body = _encode({"name": name, "data": data})
    return Mutation(
        "kvfold.orchestration.event-raised.v1",
        scope,
        mutation_id,
        body=body,
        content_type=_JSON,
        actor=actor,
    )


def orchestration_cancel_requested(
    scope: str, reason: str = "", *, mutation_id: str = "", actor: str | None = None
) -> Mutation:
    """Asks a `runtime` instance to end; its code may tidy up first."""
    body = CancelRequested.model_construct(reason=reason)
    return _json("kvfold.orchestration.cancel-requested.v1", scope, body, mutation_id, actor)


def orchestration_executions_pruned(
    scope: str,
    execution_ids: Sequence[int],
    *,
    keep_values: bool = False,
    mutation_id: str = "",
    actor: str | None = None,
) -> Mutation:
    """Removes exactly these executions, with the keys that they wrote last unless `keep_values` (row O14)."""
    body = ExecutionsPruned.model_construct(execution_ids=tuple(execution_ids), keep_values=keep_values)
    return _json("kvfold.orchestration.executions-pruned.v1", scope, body, mutation_id, actor)


def orchestration_executions_pruned_before(
    scope: str, before: int, *, keep_values: bool = False, mutation_id: str = "", actor: str | None = None
) -> Mutation:
    """Removes every execution below `before`, with the keys that they wrote last unless `keep_values` (row O14).

    Known from format level 2 on (`kvfold format raise`).
    """
    body = ExecutionsPrunedV2.model_construct(before=before, keep_values=keep_values)
    return _json("kvfold.orchestration.executions-pruned.v2", scope, body, mutation_id, actor)


def orchestration_instance_deleted(
    scope: str, *, incarnation: int | None = None, mutation_id: str = "", actor: str | None = None
) -> Mutation:
    """Removes the instance and all its rows (row O16); with `incarnation`, only if it is still that one."""
    body = InstanceDeleted.model_construct(incarnation=incarnation)
    return _json("kvfold.orchestration.instance-deleted.v1", scope, body, mutation_id, actor)


def _json(type_: str, scope: str, body: Body, mutation_id: str, actor: str | None) -> Mutation:
    content = _encode(body.model_dump(warnings=False))
    return Mutation(type_, scope, mutation_id, body=content, content_type=_JSON, actor=actor)


def _encode(content: Any) -> bytes:
    try:
        return encode_json(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidError("the body has no JSON form", code="malformed") from error
