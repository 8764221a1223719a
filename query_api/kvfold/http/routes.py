"""A route: method, path template, endpoint, and everything that the OpenAPI document says about it.

A list of routes is all that an app is made of, so the routes of the query API and of the gateway are put together by
adding two lists, and the document follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel
from starlette.responses import Response

from kvfold.http.call import Call

__all__ = [
    "KEY_SEGMENT",
    "NO_PARAMETERS",
    "Answer",
    "Body",
    "Endpoint",
    "Parameter",
    "Route",
    "json_answer",
    "problem_answers",
]

Endpoint = Callable[[Call], Awaitable[Response]]

KEY_SEGMENT: Final = "{key:rest}"
"""The last segment of a key route: the key is all the rest of the path."""

_STRING: Final[Mapping[str, Any]] = {"type": "string"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or request header; `schema` is JSON Schema. All are single-valued."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: _STRING)
    required: bool = False


NO_PARAMETERS: Final[tuple[Parameter, ...]] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """A request body: its media types, each with a model, or None for bytes."""

    media_types: Mapping[str, type[BaseModel] | None]
    description: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: status, media type with its model (None = bytes or text), names of headers, problem codes."""

    status: int
    description: str
    media_type: str | None = None
    model: Any = None
    headers: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. `HEAD` comes with every `GET`.

    - `template`: literal segments and `{name}`; a last segment `{key:rest}` makes it a key route, which exists also
      without that segment and with the key as the query parameter `key`.
    - `query`: every parameter that is accepted; any other one, and a repeated one, is 400.
    """

    method: str
    template: str
    endpoint: Endpoint
    summary: str
    tag: str
    description: str = ""
    path: tuple[Parameter, ...] = NO_PARAMETERS
    query: tuple[Parameter, ...] = NO_PARAMETERS
    headers: tuple[Parameter, ...] = NO_PARAMETERS
    body: Body | None = None
    answers: tuple[Answer, ...] = ()

    @property
    def is_key_route(self) -> bool:
        """Whether the key is the rest of the path."""
        return self.template.endswith("/" + KEY_SEGMENT)

    @property
    def segments(self) -> tuple[str, ...]:
        """The template's segments, `{…}` included."""
        return tuple(self.template.removeprefix("/").split("/"))


def json_answer(description: str, model: Any, *, status: int = 200, headers: tuple[str, ...] = ()) -> Answer:
    """A JSON response of a model (or anything that pydantic makes a schema of)."""
    return Answer(status, description, "application/json", model, headers)


def problem_answers(codes: Mapping[int, tuple[str, ...]]) -> tuple[Answer, ...]:
    """Problem documents: by status, the codes that they can have."""
    return tuple(
        Answer(status, "Problem: " + ", ".join(names), codes=names) for status, names in sorted(codes.items())
    )
