"""Who is asking, and which attempt this is: the one place where the gateway establishes either.

Authentication is not built yet: a bearer token is accepted and ignored, so no actor is known.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request

from kvfold.producers.idempotency import mutation_id_of
from kvfold.schemas.errors import InvalidError

__all__ = ["actor_of", "mutation_id_for", "traceparent_of"]

_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


def actor_of(request: Request) -> str | None:
    """Who is asking; None while nobody is authenticated."""
    del request
    return None


def mutation_id_for(request: Request, scope: str) -> str:
    """The mutation id by the header `Idempotency-Key`; empty without one, so that the producer gives a new one.

    Raises:
        InvalidError: `malformed-idempotency-key`, also for a repeated header.
    """
    keys = request.headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise InvalidError("Idempotency-Key stands twice", code="malformed-idempotency-key")
    return mutation_id_of(keys[0], scope) if keys else ""


def traceparent_of(request: Request) -> str | None:
    """The W3C trace context of the request; one that does not parse is no context (Trace Context, 3.2.2)."""
    text = request.headers.get("traceparent", "")
    return text if _TRACEPARENT.fullmatch(text) else None
