"""One request, its path and query already parsed strictly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.types import Receive, Scope

__all__ = ["Call"]


class Call(Request):
    """A Starlette request that knows its route's parameters as text.

    - `path`: the template's parameters, each decoded once; `key` is there for a key route, whichever way it came.
    - `query`: the query parameters but `key` of a key route; none is repeated or unknown to the route.
    - `actor`: who is asking, None while nobody is authenticated.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        *,
        path: Mapping[str, str],
        query: Mapping[str, str],
    ) -> None:
        super().__init__(scope, receive)
        self.path = path
        self.query = query
        self.actor: str | None = None

    def header_values(self, name: bytes) -> list[bytes]:
        """Every value of a header, in order; the name in lower case."""
        headers: list[tuple[bytes, bytes]] = self.scope["headers"]
        return [value for key, value in headers if key == name]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        # Neither path nor query: a key may tell something, and this may end in a log.
        return f"<{type(self).__name__} {self.scope.get('method')}>"

    @property
    def path_params(self) -> dict[str, Any]:
        """As `path`, for code that knows Starlette only."""
        return dict(self.path)
