"""The form of a record: everything that is judged before any state is looked at.

The order of the checks never changes: codec, partition (of known types), type, the scope's name, the parts that the type
asks for, the JSON body. What fails here never enters the index of mutation ids.

The partition's format level is state, and is not looked at here. A type that begins above it is for the fold what it is
for a release that does not know it: `below_level`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from kvfold.schemas.bodies import UnknownEventKindError, parse_body
from kvfold.schemas.body import Body
from kvfold.schemas.codec import Malformed, decode
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import JSON_BODY_BYTES_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.names import check_deployment_name, check_orchestration_name, check_principal_part
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.partitioning import partition_of, system_scope
from kvfold.schemas.record import Record
from kvfold.schemas.types import MUTATION_TYPES, BodyKind, Family, MutationType, SubjectRule
from kvfold.schemas.upcast import upcast

__all__ = ["Formed", "Unformed", "below_level", "check_form", "check_mutation", "rejected", "scope_problem"]

_UNKNOWN_TYPE = "the type is not known at the partition's format level"


class Formed(NamedTuple):
    """A mutation in good form, with its row of the type table and its body, parsed and upcast where that is JSON."""

    mutation: Mutation
    type: MutationType
    body: Body | None

    @property
    def level(self) -> int:
        """The format level from which on the type is known."""
        return self.type.level


@dataclass(frozen=True, slots=True)
class Unformed:
    """A record that is refused for its form, and as much of it as could be read.

    `level` is the format level at which this is the judgement: the one at which the type begins, where it has one.
    """

    decision: Decision
    scope: str | None
    id: str | None
    type: str | None
    level: int = 1


def rejected(code: str, detail: str) -> Decision:
    """A rejection with its code and a sentence."""
    return Decision(DecisionStatus.REJECTED, code, detail=detail)


def check_form(record: Record, partition_count: int) -> Formed | Unformed:
    """Judges a record's form at its place in the log. Total: it never raises on what a record holds."""
    decoded = decode(record)
    if isinstance(decoded, Malformed):
        return Unformed(rejected("malformed", decoded.detail), decoded.scope, decoded.id, decoded.type)
    assert record.key is not None, "a record that decodes has a key"
    row = MUTATION_TYPES.get(decoded.type)
    if _partition(record.key, partition_count) != record.partition and row is not None:
        decision = rejected("wrong-partition", "the record's key belongs to another partition (murmur2)")
        return Unformed(decision, decoded.scope, decoded.id, decoded.type, row.level)
    formed = check_mutation(decoded, partition_count)
    if isinstance(formed, Decision):
        level = 1 if row is None else row.level
        return Unformed(formed, decoded.scope, decoded.id, decoded.type[:256], level)
    return formed


def below_level(formed: Formed | Unformed) -> Unformed:
    """The judgement in a partition whose level is below the type's: the one of a release that does not know the type."""
    decision = rejected("unknown-type", _UNKNOWN_TYPE)
    if isinstance(formed, Unformed):
        return replace(formed, decision=decision)
    return Unformed(decision, formed.mutation.scope, formed.mutation.id, formed.mutation.type)


def check_mutation(mutation: Mutation, partition_count: int) -> Formed | Decision:
    """The part of `check_form` that needs no record: the door judges by it too, before it appends."""
    row = MUTATION_TYPES.get(mutation.type)
    if row is None:
        return rejected("unknown-type", _UNKNOWN_TYPE)
    problem = scope_problem(row.family, mutation.scope, partition_count) or _parts_problem(mutation, row)
    if problem is not None:
        return rejected("malformed", problem)
    if row.body is not BodyKind.JSON:
        return Formed(_without_empty_parts(mutation, row), row, None)
    assert mutation.body is not None, "a missing body is a parts problem"
    if len(mutation.body) > JSON_BODY_BYTES_MAX:
        return rejected("too-large", f"the JSON body is longer than {JSON_BODY_BYTES_MAX} bytes")
    try:
        return Formed(mutation, row, upcast(parse_body(mutation.type, mutation.body)))
    except UnknownEventKindError as error:
        return rejected("unknown-type", str(error))
    except InvalidError as error:
        return rejected("malformed", str(error))


@lru_cache(maxsize=65_536)
def _partition(key: bytes, partition_count: int) -> int:
    return partition_of(key, partition_count)


def _without_empty_parts(mutation: Mutation, row: MutationType) -> Mutation:
    """An empty prefix is an absent one, and an empty body none where none is due.

    Foreign CloudEvents libraries write the one for the other; a repeat through another library has the same content.
    """
    if row.body is BodyKind.NONE and mutation.body is not None:
        mutation = replace(mutation, body=None)
    if row.subject is SubjectRule.PREFIX and mutation.subject == "":
        mutation = replace(mutation, subject=None)
    return mutation


def _parts_problem(mutation: Mutation, row: MutationType) -> str | None:
    if row.subject is SubjectRule.KEY and mutation.subject is None:
        return "ce_subject is missing: it is the key"
    if row.subject is SubjectRule.NONE and mutation.subject is not None:
        return "ce_subject has no meaning for this type"
    if row.has_namespace != (mutation.namespace is not None):
        return (
            "ce_kvnamespace is missing"
            if row.has_namespace
            else "ce_kvnamespace has no meaning for this type"
        )
    if mutation.expected.kind not in row.preconditions:
        return f"the precondition {mutation.expected.kind} has no meaning for this type"
    if row.is_restore and mutation.version is None:
        return "ce_kvversion is missing or no version: a whole number from 1 to 999999999999999"
    if row.is_restore and mutation.snapshot is None:
        return "ce_kvsnapshot is missing or no UUID"
    if row.body is BodyKind.NONE and mutation.body:
        return "this type has no body"
    if row.body is not BodyKind.NONE and mutation.body is None:
        return "the body is missing"
    return None


@lru_cache(maxsize=65_536)
def scope_problem(family: Family, scope: str, partition_count: int) -> str | None:
    """What is wrong with a record key as a scope of the family, None if nothing."""
    match family:
        case Family.CAPSULE:
            parts = scope.split(":")
            if len(parts) != 4 or parts[0] != "c" or parts[2] != "capsule":
                return "the key is no capsule scope: c:PRINCIPAL:capsule:ID"
            return check_principal_part("the principal", parts[1]) or check_principal_part(
                "the capsule id", parts[3]
            )
        case Family.DEPLOYMENT:
            if not scope.startswith("d:"):
                return "the key is no deployment scope: d:ID"
            return check_deployment_name("the deployment id", scope[2:])
        case Family.ORCHESTRATION:
            if not scope.startswith("o:"):
                return "the key is no instance scope: o:ID"
            return check_orchestration_name("the instance id", scope[2:])
        case Family.SYSTEM:
            partition = partition_of(scope.encode(), partition_count)
            if scope != system_scope(partition, partition_count):
                return "the key is no system scope of its partition: s:N with the smallest N"
            return None
