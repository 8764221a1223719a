"""What state a batch of records touches, so that a store can load it in one round trip a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvfold.schemas.bodies import CapsuleBatch
from kvfold.schemas.body import Body
from kvfold.schemas.form import Formed, Unformed
from kvfold.schemas.limits import BATCH_KEYS_MAX
from kvfold.schemas.orchestration import Answer, Delivered, ExecutionsPrunedV2, InstanceDeleted, Turn
from kvfold.schemas.record import Record
from kvfold.schemas.types import Family

__all__ = ["Needs", "RangeNeed", "Step", "batch_keys", "cut", "needs"]

Step = tuple[Record, Formed | Unformed]
"""A record with the judgement of its form, which needs no state and is made once."""


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
    messages: set[tuple[str, int]] = field(default_factory=set)
    tasks: set[tuple[str, int, int]] = field(default_factory=set)
    outgoing: set[tuple[str, int, int, int, str]] = field(default_factory=set)
    children: str | None = None
    range: RangeNeed | None = None


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
            keys = len(batch_keys(formed.body))
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
                    result.capsule_keys.update((mutation.scope, key) for key in batch_keys(formed.body))
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
                _needs_of_orchestration(mutation.scope, formed.body, result)
            case Family.SYSTEM:
                pass
    return result


def _needs_of_orchestration(scope: str, body: Body | None, result: Needs) -> None:
    match body:
        case ExecutionsPrunedV2():
            result.range = RangeNeed("orchestration_execution", scope)
        case InstanceDeleted():
            result.children = scope
        case Turn():
            result.messages.update((scope, offset) for offset in body.consumed)
        case Answer():
            result.tasks.add((scope, body.execution_id, body.event_id))
        case Delivered():
            result.outgoing.add((scope, body.incarnation, body.execution_id, body.event_id, body.kind))
        case _:
            pass


def batch_keys(batch: CapsuleBatch) -> set[str]:
    """The keys that a batch names."""
    return {item.key for item in (*batch.conditions, *batch.operations)}
