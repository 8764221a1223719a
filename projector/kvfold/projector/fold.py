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

from kvfold.projector.changes import Changes, RangeRemoval
from kvfold.projector.decide.state import (
    CapsuleState,
    DeploymentState,
    OrchestrationState,
    Place,
    ScopeState,
    SystemState,
)
from kvfold.projector.fold_orchestration import fold_orchestration
from kvfold.projector.tables import (
    CapsuleEntry,
    CapsuleScope,
    DeploymentEntry,
    DeploymentScope,
    Row,
)
from kvfold.schemas.bodies import BatchSet, CapsuleBatch, QuotaSet
from kvfold.schemas.form import Formed
from kvfold.schemas.names import utf8_length
from kvfold.schemas.orchestration import Turn
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = ["fold", "has_effect"]


def has_effect(formed: Formed, decision: Decision) -> bool:
    """Whether a decision changes state: an applied one, and a current turn over a limit, which fails its instance."""
    if decision.status is DecisionStatus.APPLIED:
        return True
    return isinstance(formed.body, Turn) and decision.code == "limit"


def fold(state: ScopeState, formed: Formed, decision: Decision, place: Place) -> Changes:
    """The changes of a mutation that has an effect to its scope's state."""
    assert has_effect(formed, decision), "only a mutation that has an effect changes state"
    match state:
        case CapsuleState():
            return _fold_capsule(state, formed, decision, place)
        case DeploymentState():
            return _fold_deployment(state, formed, decision, place)
        case OrchestrationState():
            return fold_orchestration(state, formed, decision, place)
        case SystemState(format_level=level):
            assert decision.version == level + 1
            return Changes(format_level=decision.version)


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
