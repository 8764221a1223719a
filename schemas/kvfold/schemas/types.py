"""The table of mutation types, each with the format level at which it begins (contract, "A log record").

A type's row never changes for records that are in the log: a new rule is a new version of the type, at a higher
format level, and a partition that is below it answers `rejected unknown-type`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kvfold.schemas.precondition import PreconditionKind

__all__ = ["FORMAT_LEVEL", "MUTATION_TYPES", "BodyKind", "Family", "MutationType", "SubjectRule"]

FORMAT_LEVEL: Final = 2
"""The highest format level that this release can fold."""


class Family(StrEnum):
    """The kinds of state, and `system` for records about the log itself."""

    ORCHESTRATION = "orchestration"
    CAPSULE = "capsule"
    DEPLOYMENT = "deployment"
    SYSTEM = "system"


class BodyKind(StrEnum):
    """What the record's value holds: raw bytes (null = missing, empty = an empty value), JSON, or nothing."""

    BYTES = "bytes"
    JSON = "json"
    NONE = "none"


class SubjectRule(StrEnum):
    """What `ce_subject` means for the type: a key, a prefix (absent = the empty one), or nothing."""

    KEY = "key"
    PREFIX = "prefix"
    NONE = "none"


_UNCONDITIONAL = frozenset({PreconditionKind.ANY})
_EXISTENCE = _UNCONDITIONAL | {PreconditionKind.ABSENT, PreconditionKind.PRESENT}
_BY_VERSION = _EXISTENCE | {PreconditionKind.VERSION}
_BY_CONTENT = _EXISTENCE | {PreconditionKind.SHA256}


@dataclass(frozen=True, slots=True)
class MutationType:
    """One row of the table. `is_range` marks mutations whose effect is over a range of keys; `level` is the format
    level from which on the type is known; `is_restore` marks what brings an entry back with its version.
    """

    name: str
    family: Family
    body: BodyKind
    subject: SubjectRule = SubjectRule.NONE
    has_namespace: bool = False
    preconditions: frozenset[PreconditionKind] = _UNCONDITIONAL
    is_range: bool = False
    level: int = 1
    is_restore: bool = False


def _orchestration(verb: str, *, is_range: bool = False, version: int = 1, level: int = 1) -> MutationType:
    name = f"kvfold.orchestration.{verb}.v{version}"
    return MutationType(name, Family.ORCHESTRATION, BodyKind.JSON, is_range=is_range, level=level)


_CAPSULE, _DEPLOYMENT = Family.CAPSULE, Family.DEPLOYMENT
_KEY, _PREFIX = SubjectRule.KEY, SubjectRule.PREFIX
_TABLE = (
    MutationType("kvfold.capsule.set.v1", _CAPSULE, BodyKind.BYTES, _KEY, preconditions=_BY_CONTENT),
    MutationType("kvfold.capsule.deleted.v1", _CAPSULE, BodyKind.NONE, _KEY, preconditions=_BY_CONTENT),
    MutationType("kvfold.capsule.prefix-cleared.v1", _CAPSULE, BodyKind.NONE, _PREFIX, is_range=True),
    MutationType("kvfold.capsule.namespace-cleared.v1", _CAPSULE, BodyKind.NONE, is_range=True),
    MutationType("kvfold.capsule.quota-set.v1", _CAPSULE, BodyKind.JSON),
    MutationType("kvfold.capsule.batch.v1", _CAPSULE, BodyKind.JSON),
    MutationType("kvfold.capsule.restored.v1", _CAPSULE, BodyKind.BYTES, _KEY, is_restore=True),
    MutationType(
        "kvfold.deployment.put.v1",
        _DEPLOYMENT,
        BodyKind.BYTES,
        _KEY,
        has_namespace=True,
        preconditions=_BY_VERSION,
    ),
    MutationType(
        "kvfold.deployment.deleted.v1",
        _DEPLOYMENT,
        BodyKind.NONE,
        _KEY,
        has_namespace=True,
        preconditions=_BY_VERSION,
    ),
    MutationType("kvfold.deployment.undeployed.v1", _DEPLOYMENT, BodyKind.NONE, is_range=True),
    MutationType(
        "kvfold.deployment.restored.v1",
        _DEPLOYMENT,
        BodyKind.BYTES,
        _KEY,
        has_namespace=True,
        is_restore=True,
    ),
    _orchestration("started"),
    _orchestration("events"),
    _orchestration("executions-pruned", is_range=True),
    _orchestration("executions-pruned", is_range=True, version=2, level=2),
    _orchestration("instance-deleted", is_range=True),
    _orchestration("turn"),
    _orchestration("activity-completed"),
    _orchestration("activity-failed"),
    _orchestration("timer-fired"),
    _orchestration("event-raised"),
    _orchestration("cancel-requested"),
    _orchestration("child-completed"),
    _orchestration("child-failed"),
    _orchestration("delivered"),
    MutationType("kvfold.system.format-raised.v1", Family.SYSTEM, BodyKind.JSON),
)

MUTATION_TYPES: Final[dict[str, MutationType]] = {row.name: row for row in _TABLE}
"""Every type that this release knows, by its full name."""
