"""What the write routes of all families share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.routes import Parameter
from kvfold.producers.gateway.context import GatewayContext

__all__ = ["IDEMPOTENCY_KEY", "UNAVAILABLE", "Handler"]

Handler = Callable[[GatewayContext, Call], Awaitable[Response]]
"""Answers a request, given what the routes work with."""

IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key", "A UUID, or any text: a repeat with the same key within 7 days has the first outcome."
)
UNAVAILABLE: Final = ("log-unavailable", "outcome-unknown", "partition-paused")
"""Codes of a write that may be in the log, or not be decided yet."""
