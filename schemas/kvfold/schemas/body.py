"""The base of all JSON bodies, and the numbers that they hold."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from kvfold.schemas.limits import INT64_MAX

__all__ = ["EVENTS_MAX", "Body", "Count", "Number"]

Count = Annotated[int, Field(ge=0, le=INT64_MAX)]
"""An int64 from 0."""
Number = Annotated[int, Field(ge=1, le=INT64_MAX)]
"""An int64 from 1."""
EVENTS_MAX: Final = 10_000
"""The most members of a list in a body."""


class Body(BaseModel):
    """Base of all bodies: frozen, strict (no coercion), no unknown members."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
