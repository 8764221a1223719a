"""The JSON documents of the write routes: models for what comes in, and the shapes of what goes out."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import INT64_MAX
from kvfold.schemas.outcome import Decision
from kvfold.schemas.position import Position
from kvfold.schemas.strict_json import decode_json

__all__ = [
    "CloudEventBatch",
    "CloudEventDocument",
    "DecisionBatch",
    "DecisionDocument",
    "ObjectBody",
    "ObjectWritten",
    "ReencryptedDocument",
    "RemovedDocument",
    "SweptTier",
    "UndeployedDocument",
    "UnopenedSecret",
    "decision_document",
    "read_document",
    "read_object_body",
]

_Document = TypeVar("_Document", bound=BaseModel)
_Version = Annotated[int, Field(ge=0, le=INT64_MAX)]


class ObjectBody(BaseModel):
    """What the object browser puts: the value as text or in base64, and the version that it expects (0 = create)."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    value: str
    encoding: Literal["utf8", "base64"]
    version: _Version | None = None

    def decoded(self) -> bytes:
        """The value's bytes.

        Raises:
            InvalidError: `malformed-value`: no base64 with its padding.
        """
        if self.encoding == "utf8":
            return self.value.encode()
        try:
            return base64.b64decode(self.value.encode("ascii"), validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise InvalidError(
                "the value is not base64 (RFC 4648, section 4, with its padding)", code="malformed-value"
            ) from error


class ObjectWritten(BaseModel):
    """The object that was put, and its version now."""

    key: str
    version: int


class RemovedDocument(BaseModel):
    """How many entries went."""

    removed: int


class SweptTier(BaseModel):
    """What an undeploy did in one tier. `status` is `pending` where the log has it and it is not decided yet.

    `removed` counts the entries that went; where it failed, those that are known to be gone. `code` says what is away.
    """

    status: Literal["swept", "pending", "failed", "none"]
    removed: int
    code: str | None = None


class UndeployedDocument(BaseModel):
    """What an undeploy swept; `complete` where nothing is left, else repeating it finishes the rest."""

    removed: int
    complete: bool
    persistent: SweptTier
    volatile: SweptTier


class UnopenedSecret(BaseModel):
    """A secret that stays as it is: `encryption-key-missing`, or `secret-unreadable` where it was sealed elsewhere."""

    namespace: str
    key: str
    code: str


class ReencryptedDocument(BaseModel):
    """What a page of re-encryption did. `changed` ones were written by somebody else meanwhile, which sealed them anew."""

    checked: int
    reencrypted: int
    changed: int
    unopened: list[UnopenedSecret]
    next_cursor: str | None


class DecisionDocument(BaseModel):
    """What became of a mutation; `pending` where that is not known yet. `removed` is the count of a range mutation."""

    id: str | None
    scope: str | None
    position: str | None
    status: Literal["applied", "conflict", "rejected", "pending"]
    code: str | None
    version: int | None
    detail: str | None
    removed: int | None


class DecisionBatch(RootModel[list[DecisionDocument]]):
    """One decision for each event of a batch, in its order."""


class CloudEventDocument(BaseModel):
    """One CloudEvent in the JSON format. Extensions: partitionkey, kvnamespace, kvexpected, kvactor."""

    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    partitionkey: str
    subject: str | None = None
    time: str | None = None
    datacontenttype: str | None = None
    kvnamespace: str | None = None
    kvexpected: str | None = None
    kvactor: str | None = None
    traceparent: str | None = None
    data: object = None
    data_base64: str | None = None


class CloudEventBatch(RootModel[list[CloudEventDocument]]):
    """At most 1,000 events."""


def decision_document(
    mutation_id: str | None, scope: str | None, decision: Decision, position: Position | None
) -> DecisionDocument:
    """A decision as JSON; id and scope are None where what came was no mutation."""
    return DecisionDocument(
        id=mutation_id,
        scope=scope,
        position=None if position is None else str(position),
        status=decision.status.value,
        code=decision.code,
        version=decision.version,
        detail=decision.detail,
        removed=decision.removed,
    )


def read_object_body(body: bytes) -> ObjectBody:
    """The body of a browser's put. Raises as `read_document`."""
    accepted = '{"value": text, "encoding": "utf8" or "base64", "version": optional number}'
    return read_document(ObjectBody, body, accepted=accepted)


def read_document(model: type[_Document], body: bytes, *, accepted: str) -> _Document:
    """Reads a JSON body.

    Raises:
        InvalidError: `malformed`: no strict JSON; `malformed-body`: not of the shape, with the place.
    """
    value = decode_json(body)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"]) or "the whole"
        raise InvalidError(
            f"the body is not accepted, at {place[:80]!a}: {accepted} is", code="malformed-body"
        ) from error
