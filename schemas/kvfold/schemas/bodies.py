"""The JSON bodies of mutations: strict pydantic models and the one way to read them.

Unknown members are refused: a body that means more than this release knows is a new version of its type. The models
are the source of the JSON Schemas in `schemas/kvfold/schemas/json/`. What pydantic says of an error never reaches a
decision (its wording may change between releases); only the place of the error does.
"""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import CAPSULE_BATCH_OPERATIONS_MAX, INT64_MAX
from kvfold.schemas.precondition import Precondition, PreconditionKind
from kvfold.schemas.strict_json import decode_json

__all__ = [
    "BATCH_OPERATION_KINDS",
    "BODY_MODELS",
    "EVENT_KINDS",
    "BatchCondition",
    "BatchDelete",
    "BatchSet",
    "Body",
    "CapsuleBatch",
    "CustomStatusUpdated",
    "Event",
    "ExecutionsPruned",
    "ExecutionsPrunedV2",
    "FormatRaised",
    "InstanceDeleted",
    "KeyValueCleared",
    "KeyValueSet",
    "KeyValuesCleared",
    "MisshapenBodyError",
    "OrchestrationCompleted",
    "OrchestrationContinuedAsNew",
    "OrchestrationEvents",
    "OrchestrationFailed",
    "Parent",
    "QuotaSet",
    "Started",
    "UnknownEventKindError",
    "parse_body",
]

_Int = Annotated[int, Field(ge=0, le=INT64_MAX)]
_Id = Annotated[int, Field(ge=1, le=INT64_MAX)]
_EVENTS_MAX: Final = 10_000
_BASE64: Final = re.compile(
    "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?", re.ASCII
)
_CONDITION_KINDS: Final = {PreconditionKind.ABSENT, PreconditionKind.PRESENT, PreconditionKind.SHA256}
_CONDITION_PATTERN: Final = "^(absent|present|(not:)?sha256:[0-9a-f]{64}(,[0-9a-f]{64}){0,15})$"
# Judged in `rules`, where it has a code of its own: in the schema only.
_BATCH_MAX: Final[dict[str, Any]] = {"maxItems": CAPSULE_BATCH_OPERATIONS_MAX}


class Body(BaseModel):
    """Base of all bodies: frozen, strict (no coercion), no unknown members."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class QuotaSet(Body):
    """`capsule.quota-set`: the most bytes (keys and values) the namespace may hold; below the usage is allowed."""

    bytes_max: _Int


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

    level: _Id


class Parent(Body):
    """The turn that asked for a child orchestration."""

    instance_id: str
    incarnation: _Int
    execution_id: _Id
    event_id: _Id


class Started(Body):
    """`orchestration.started`: makes an instance. `input` is any JSON value.

    `runtime` instances are run by kvfold's workers; `external` ones belong to a service with an orchestrator of its own
    and accept `orchestration.events`.
    """

    name: str
    input: Any = None
    mode: Literal["runtime", "external"] = "runtime"
    parent: Parent | None = None


class KeyValueSet(Body):
    """A key was set (row O1); recorded even where the value is unchanged."""

    kind: Literal["KeyValueSet"]
    key: str
    value: str


class KeyValueCleared(Body):
    """A key was removed (row O5); recorded even where it was absent."""

    kind: Literal["KeyValueCleared"]
    key: str


class KeyValuesCleared(Body):
    """Every key of the instance was removed (row O6)."""

    kind: Literal["KeyValuesCleared"]


class CustomStatusUpdated(Body):
    """The instance's custom status is now this text; null clears it."""

    kind: Literal["CustomStatusUpdated"]
    status: str | None


class OrchestrationCompleted(Body):
    """The instance ended well. Ends the record's list."""

    kind: Literal["OrchestrationCompleted"]
    output: Any = None


class OrchestrationFailed(Body):
    """The instance ended with an error. Ends the record's list."""

    kind: Literal["OrchestrationFailed"]
    error: str


class OrchestrationContinuedAsNew(Body):
    """The execution ended and the next one begins with this input (row O13). Ends the record's list."""

    kind: Literal["OrchestrationContinuedAsNew"]
    input: Any = None


Event = Annotated[
    KeyValueSet
    | KeyValueCleared
    | KeyValuesCleared
    | CustomStatusUpdated
    | OrchestrationCompleted
    | OrchestrationFailed
    | OrchestrationContinuedAsNew,
    Field(discriminator="kind"),
]
EVENT_KINDS: Final = frozenset(
    {
        "KeyValueSet",
        "KeyValueCleared",
        "KeyValuesCleared",
        "CustomStatusUpdated",
        "OrchestrationCompleted",
        "OrchestrationFailed",
        "OrchestrationContinuedAsNew",
    }
)
"""Inner event kinds of format level 1."""


class OrchestrationEvents(Body):
    """`orchestration.events`: what an `external` instance did, in order; all of it applies or nothing."""

    execution_id: _Id
    incarnation: _Int | None = None
    events: Annotated[tuple[Event, ...], Field(min_length=1, max_length=_EVENTS_MAX, strict=False)]


class ExecutionsPruned(Body):
    """`orchestration.executions-pruned`: exactly these executions; with `keep_values` their keys stay (row O14)."""

    execution_ids: Annotated[tuple[_Id, ...], Field(min_length=1, max_length=_EVENTS_MAX, strict=False)]
    keep_values: bool = False


class ExecutionsPrunedV2(Body):
    """`orchestration.executions-pruned`, version 2: also every execution below `before`, without naming each."""

    before: _Id
    execution_ids: Annotated[tuple[_Id, ...], Field(max_length=_EVENTS_MAX, strict=False)] = ()
    keep_values: bool = False


class InstanceDeleted(Body):
    """`orchestration.instance-deleted`: with `incarnation`, only if it is still that one."""

    incarnation: _Int | None = None


BODY_MODELS: Final[dict[str, type[Body]]] = {
    "kvfold.capsule.batch.v1": CapsuleBatch,
    "kvfold.capsule.quota-set.v1": QuotaSet,
    "kvfold.orchestration.started.v1": Started,
    "kvfold.orchestration.events.v1": OrchestrationEvents,
    "kvfold.orchestration.executions-pruned.v1": ExecutionsPruned,
    "kvfold.orchestration.executions-pruned.v2": ExecutionsPrunedV2,
    "kvfold.orchestration.instance-deleted.v1": InstanceDeleted,
    "kvfold.system.format-raised.v1": FormatRaised,
}
"""The body model of every implemented JSON type."""


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
    if model is OrchestrationEvents:
        _check_kinds(value, "events", EVENT_KINDS, "event")
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
