"""Decisions about capsules (002, "Key and value constraints", "Atomic compare-and-swap"; rows C6, C7, C10, C15)."""

from __future__ import annotations

from functools import lru_cache

from kvfold.projector.decide.restore import decide_restored
from kvfold.projector.decide.state import CapsuleState, Head
from kvfold.schemas.bodies import BatchSet, CapsuleBatch
from kvfold.schemas.form import Formed, rejected
from kvfold.schemas.limits import CAPSULE_QUOTA_BYTES_DEFAULT
from kvfold.schemas.names import utf8_length
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = ["decide_capsule"]


def decide_capsule(formed: Formed, state: CapsuleState) -> Decision:
    """The outcome of a valid capsule mutation against its namespace's state."""
    match formed.mutation.type:
        case "kvfold.capsule.set.v1":
            return _decide_set(formed, state)
        case "kvfold.capsule.deleted.v1":
            conflict = _conflict(formed, state)
            return conflict or Decision(DecisionStatus.APPLIED, version=_version(state))
        case "kvfold.capsule.prefix-cleared.v1" | "kvfold.capsule.namespace-cleared.v1":
            return Decision(DecisionStatus.APPLIED, removed=state.range.count)
        case "kvfold.capsule.quota-set.v1":
            return Decision(DecisionStatus.APPLIED)
        case "kvfold.capsule.batch.v1":
            assert isinstance(formed.body, CapsuleBatch)
            return _decide_batch(formed.body, state)
        case "kvfold.capsule.restored.v1":
            return _decide_restored(formed, state)
    raise AssertionError(f"no decision for {formed.mutation.type}")


def _decide_set(formed: Formed, state: CapsuleState) -> Decision:
    conflict = _conflict(formed, state)
    if conflict is not None:
        return conflict
    mutation, entry = formed.mutation, state.entry
    assert mutation.subject is not None and mutation.body is not None
    key_bytes = utf8_length(mutation.subject)
    before = 0 if entry is None else key_bytes + (entry.size or 0)
    return _over_quota(key_bytes + len(mutation.body) - before, state) or _applied(_version(state) + 1)


def _decide_batch(batch: CapsuleBatch, state: CapsuleState) -> Decision:
    """The first condition that fails is named by its place; the quota is judged by what the whole batch adds."""
    for index, condition in enumerate(batch.conditions):
        entry = state.entries.get(condition.key)
        if not condition.expected.holds(_digest(entry)):
            detail = f"conditions[{index}] does not hold"
            version = 0 if entry is None else entry.version
            return Decision(DecisionStatus.CONFLICT, "cas-mismatch", version=version, detail=detail)
    growth = removed = 0
    for operation in batch.operations:
        entry, key_bytes = state.entries.get(operation.key), utf8_length(operation.key)
        growth -= 0 if entry is None else key_bytes + (entry.size or 0)
        if isinstance(operation, BatchSet):
            growth += key_bytes + len(operation.value)
        elif entry is not None:
            removed += 1
    return _over_quota(growth, state) or Decision(DecisionStatus.APPLIED, removed=removed)


def _decide_restored(formed: Formed, state: CapsuleState) -> Decision:
    mutation = formed.mutation
    assert mutation.subject is not None and mutation.body is not None
    decision = decide_restored(
        formed, is_empty=state.keys == 0, restoring=state.restoring, version=_version(state)
    )
    if decision.status is not DecisionStatus.APPLIED:
        return decision
    return _over_quota(utf8_length(mutation.subject) + len(mutation.body), state) or decision


def _over_quota(growth: int, state: CapsuleState) -> Decision | None:
    quota = CAPSULE_QUOTA_BYTES_DEFAULT if state.bytes_max is None else state.bytes_max
    # Shrinking is always allowed, also above a quota that was lowered (row C10).
    if growth > 0 and state.bytes + growth > quota:
        return rejected("quota", f"{state.bytes + growth} bytes would be above the quota of {quota}")
    return None


@lru_cache(maxsize=1_024)
def _applied(version: int) -> Decision:
    # Most records give one of these, most often with a low version; making it anew is a tenth of a decision's time.
    return Decision(DecisionStatus.APPLIED, version=version)


def _conflict(formed: Formed, state: CapsuleState) -> Decision | None:
    current = _digest(state.entry)
    if formed.mutation.expected.holds(current):
        return None
    return Decision(DecisionStatus.CONFLICT, "cas-mismatch", version=_version(state))


def _digest(entry: Head | None) -> str | None:
    return None if entry is None or entry.sha256 is None else entry.sha256.hex()


def _version(state: CapsuleState) -> int:
    return 0 if state.entry is None else state.entry.version
