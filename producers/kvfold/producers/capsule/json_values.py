"""Values in JSON: anything that pydantic can write, read back as plain JSON or as a type that is named."""

from __future__ import annotations

import json
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from kvfold.producers.capsule.errors import JsonError
from kvfold.schemas.strict_json import encode_json

__all__ = ["as_type", "from_json", "to_json"]

T = TypeVar("T")
_TYPES_MAX: Final = 256


def to_json(value: object) -> bytes:
    """A value's JSON: members sorted, no blanks, UTF-8. Dataclasses and pydantic models become objects.

    Raises:
        JsonError: it has none: NaN, infinity, a lone surrogate, a loop, a type that JSON has not.
    """
    try:
        return encode_json(to_jsonable_python(value, inf_nan_mode="constants"))
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        # The error's own text may quote the value.
        raise JsonError(f"a {type(value).__name__} has no JSON form here: {type(error).__name__}") from error


def from_json(raw: bytes) -> Any:
    """The value of a JSON document.

    Raises:
        JsonError: the bytes are none; also for a member that stands twice, NaN and infinity.
    """
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError):
        # The cause would carry the document.
        raise JsonError(f"the stored value, {len(raw)} bytes, is not JSON") from None


def as_type(value: object, kind: type[T]) -> T:
    """A JSON value as a type: a dataclass, a pydantic model, `dict[str, int]`, …; strictly, so `"1"` is no number.

    Raises:
        JsonError: it is not of that type; the message names the first place, never the value.
    """
    try:
        adapter = _adapter(cast(Hashable, kind))
    except (PydanticSchemaGenerationError, TypeError) as error:
        raise JsonError(f"{kind!r} is no type that JSON can be read as") from error
    try:
        return cast(T, adapter.validate_json(encode_json(value), strict=True))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:80] or "the whole"
        name = getattr(kind, "__name__", repr(kind))
        raise JsonError(f"the stored value is no {name}, at {place!a}: {first['type']}") from None
    except (UnicodeEncodeError, RecursionError):
        raise JsonError("the stored value holds a lone surrogate, or is nested too deeply") from None


@lru_cache(maxsize=_TYPES_MAX)
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a member stands twice in one object")
    return result


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
