"""Activities of the runtime itself: reading values of other instances (rows O7, O26). Their errors are the document's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from kvfold.schemas.errors import KvfoldError

if TYPE_CHECKING:
    from kvfold.producers.orchestration.activity import ActivityContext

__all__ = ["get_value", "get_values"]


class _Input(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    instance_id: str


_T = TypeVar("_T", bound=_Input)


class _OneKey(_Input):
    key: str


class _ManyKeys(_Input):
    keys: list[str]


def get_value(context: ActivityContext, input: Any) -> str:
    """The value at the time when this runs, as the JSON of a text or null."""
    asked = _parsed(_OneKey, input)
    try:
        return json.dumps(context.client.get_value(asked.instance_id, asked.key))
    except KvfoldError as error:
        raise RuntimeError(f"Client error: {error}") from error


def get_values(context: ActivityContext, input: Any) -> str:
    """The values of several keys, read together, as a JSON object."""
    asked = _parsed(_ManyKeys, input)
    try:
        found = context.client.snapshot(asked.instance_id)
    except KvfoldError as error:
        raise RuntimeError(f"Client error: {error}") from error
    return json.dumps({key: found.get(key) for key in asked.keys})


def _parsed(model: type[_T], input: Any) -> _T:
    try:
        return model.model_validate_json(input)
    except (TypeError, ValidationError) as error:
        raise ValueError(f"Invalid get_kv_value input: {error}") from error
