"""The JSON bodies of mutations: strict pydantic models and the one way to read them.

Unknown members are refused: a body that means more than this release knows is a new version of its type. The models
are the source of the JSON Schemas in `schemas/kvfold/schemas/json/`. What pydantic says of an error never reaches a
decision (its wording may change between releases); only the place of the error does.
"""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PlainValidator, ValidationError, WithJsonSchema

from kvfold.schemas.body import Body, Count, Number
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import CAPSULE_BATCH_OPERATIONS_MAX
from kvfold.schemas.orchestration import (
    EVENT_KINDS,
    TURN_EVENT_KINDS,
    ActivityCompleted,
    ActivityFailed,
    CancelRequested,
    ChildCompleted,
    ChildFailed,
    Delivered,
    EventRaised,
    ExecutionsPruned,
    ExecutionsPrunedV2,
    InstanceDeleted,
    OrchestrationEvents,
    Started,
    TimerFired,
    Turn,
)
from kvfold.schemas.precondition import Precondition, PreconditionKind
from kvfold.schemas.strict_json import decode_json

__all__ = [
    "BATCH_OPERATION_KINDS",
    "BODY_MODELS",
    "BatchCondition",
    "BatchDelete",
    "BatchSet",
    "CapsuleBatch",
    "FormatRaised",
    "MisshapenBodyError",
    "QuotaSet",
    "UnknownEventKindError",
    "parse_body",
]

_BASE64: Final = re.compile(
    "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?", re.ASCII
)
_CONDITION_KINDS: Final = {PreconditionKind.ABSENT, PreconditionKind.PRESENT, PreconditionKind.SHA256}
_CONDITION_PATTERN: Final = "^(absent|present|(not:)?sha256:[0-9a-f]{64}(,[0-9a-f]{64}){0,15})$"
# Judged in `rules`, where it has a code of its own: in the schema only.
_BATCH_MAX: Final[dict[str, Any]] = {"maxItems": CAPSULE_BATCH_OPERATIONS_MAX}


_KNOWN_EVENTS: Final = {OrchestrationEvents: EVENT_KINDS, Turn: TURN_EVENT_KINDS}


class QuotaSet(Body):
    """`capsule.quota-set`: the most bytes (keys and values) the namespace may hold; below the usage is allowed."""

    bytes_max: Count


def _value(value: object) -> bytes:
    """Base64 as it is written canonically, so that one value has one text: standard alphabet, padded, no blanks."""
    if not isinstance(value, str) or _BASE64.fullmatch(value) is None:
        raise ValueError("canonical base64 with padding is accepted")
    return base64.b64decode(value)


def _condition(value: object) -> Precondition:
    if not isinstance(value, str):
        raise ValueError("a text is accepted")
    try:
        condition = Precondition.parse(value)
    except InvalidError as error:
        raise ValueError(str(error)) from error
    if condition.kind not in _CONDITION_KINDS:
        raise ValueError("absent, present, [not:]sha256:HEX[,HEX] are accepted")
    return condition


class BatchCondition(Body):
    """What must hold of a key before the batch: `absent`, `present`, `[not:]sha256:HEX[,HEX…]`."""

    key: str
    expected: Annotated[
        Precondition,
        PlainValidator(_condition),
        WithJsonSchema({"type": "string", "pattern": _CONDITION_PATTERN}),
    ]


class BatchSet(Body):
    """A key is set, whatever it held. `value` is base64 in JSON: the one exception to raw values."""

    kind: Literal["set"]
    key: str
    value: Annotated[
        bytes,
        PlainValidator(_value),
        WithJsonSchema({"type": "string", "pattern": f"^{_BASE64.pattern}$", "contentEncoding": "base64"}),
    ]


class BatchDelete(Body):
    """A key is removed; an absent one changes nothing."""

    kind: Literal["delete"]
    key: str


class CapsuleBatch(Body):
    """`capsule.batch`: all operations are applied if all conditions hold before it, else nothing is changed.

    A key stands at most once among the operations; it may stand in several conditions, which must all hold.
    """

    conditions: Annotated[tuple[BatchCondition, ...], Field(strict=False, json_schema_extra=_BATCH_MAX)] = ()
    operations: Annotated[
        tuple[Annotated[BatchSet | BatchDelete, Field(discriminator="kind")], ...],
        Field(min_length=1, strict=False, json_schema_extra=_BATCH_MAX),
    ]


BATCH_OPERATION_KINDS: Final = frozenset({"set", "delete"})
"""Kinds of operations in a capsule batch at format level 1."""


class FormatRaised(Body):
    """`system.format-raised`: the partition's new format level, the current one + 1."""

    level: Number


BODY_MODELS: Final[dict[str, type[Body]]] = {
    "kvfold.capsule.batch.v1": CapsuleBatch,
    "kvfold.capsule.quota-set.v1": QuotaSet,
    "kvfold.orchestration.started.v1": Started,
    "kvfold.orchestration.events.v1": OrchestrationEvents,
    "kvfold.orchestration.executions-pruned.v1": ExecutionsPruned,
    "kvfold.orchestration.executions-pruned.v2": ExecutionsPrunedV2,
    "kvfold.orchestration.instance-deleted.v1": InstanceDeleted,
    "kvfold.orchestration.turn.v1": Turn,
    "kvfold.orchestration.activity-completed.v1": ActivityCompleted,
    "kvfold.orchestration.activity-failed.v1": ActivityFailed,
    "kvfold.orchestration.timer-fired.v1": TimerFired,
    "kvfold.orchestration.event-raised.v1": EventRaised,
    "kvfold.orchestration.cancel-requested.v1": CancelRequested,
    "kvfold.orchestration.child-completed.v1": ChildCompleted,
    "kvfold.orchestration.child-failed.v1": ChildFailed,
    "kvfold.orchestration.delivered.v1": Delivered,
    "kvfold.system.format-raised.v1": FormatRaised,
}
"""The body model of every JSON type."""


class UnknownEventKindError(InvalidError):
    """An inner event, or an operation of a batch, of a kind that this format level does not know."""

    def __init__(self, kind: str, *, what: str = "event") -> None:
        super().__init__(f"unknown {what} kind {kind[:64]!a}", code="unknown-type")


class MisshapenBodyError(InvalidError):
    """JSON, and not of the type's shape. The message is part of decisions; `place` and `what` are not."""

    def __init__(self, mutation_type: str, error: ValidationError) -> None:
        super().__init__(f"the JSON body does not have the shape of {mutation_type}", code="malformed")
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        self.place = ".".join(str(part) for part in first["loc"])[:200] or "the whole body"
        self.what = first["msg"][:200]


def parse_body(mutation_type: str, body: bytes) -> Body:
    """Reads the JSON body of a mutation.

    Raises:
        UnknownEventKindError: an inner event or operation kind above the level; kinds are judged before shapes.
        InvalidError: `malformed`: no JSON by the strict decoder, or not of the type's shape.
    """
    value = decode_json(body)
    model = BODY_MODELS[mutation_type]
    if model in _KNOWN_EVENTS:
        _check_kinds(value, "events", _KNOWN_EVENTS[model], "event")
    elif model is CapsuleBatch:
        _check_kinds(value, "operations", BATCH_OPERATION_KINDS, "operation")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise MisshapenBodyError(mutation_type, error) from error


def _check_kinds(value: Any, member: str, known: frozenset[str], what: str) -> None:
    items = value.get(member) if isinstance(value, dict) else None
    for item in items if isinstance(items, list) else ():
        kind = item.get("kind") if isinstance(item, dict) else None
        if isinstance(kind, str) and kind not in known:
            raise UnknownEventKindError(kind, what=what)
