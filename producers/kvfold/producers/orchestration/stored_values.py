"""Values that are stored as JSON, read as a type (rows O4, O7, O8)."""

from __future__ import annotations

from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from kvfold.producers.orchestration.errors import StoredValueError

__all__ = ["first_problem", "typed_value"]

T = TypeVar("T")


def typed_value(text: str, type_: type[T], what: str) -> T:
    """The value that the JSON text is, as pydantic reads it: strictness, coercion and unions are the type's own.

    Raises:
        StoredValueError: it is no JSON, or not of this type. The text says `what`, where and how, never the value.
    """
    try:
        return TypeAdapter(type_).validate_json(text)
    except ValidationError as error:
        name = getattr(type_, "__name__", type_)
        raise StoredValueError(f"{what} is no {name}: {first_problem(error)}") from error


def first_problem(error: ValidationError) -> str:
    """Place and kind, without the value: what is stored is not for logs."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole value"
    return f"{first['type']} at {place}"
