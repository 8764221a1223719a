"""Which attempt a request is, and the trace that it belongs to. Who is asking is `Call.actor`."""

from __future__ import annotations

import re
from typing import Final

from kvfold.http.call import Call
from kvfold.http.headers import single_header
from kvfold.producers.idempotency import mutation_id_of
from kvfold.schemas.errors import InvalidError

__all__ = ["mutation_id_for", "refuse_conditions", "traceparent_of"]

_TRACEPARENT: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_CONDITIONS: Final = ("If-Match", "If-None-Match", "X-Object-Version")


def mutation_id_for(call: Call, scope: str) -> str:
    """The mutation id by the header `Idempotency-Key`; empty without one, so that the producer gives a new one.

    Raises:
        InvalidError: `malformed-idempotency-key`, also for a repeated header.
    """
    raw = single_header(call, "Idempotency-Key", code="malformed-idempotency-key")
    # Latin-1 keeps every byte apart, so anything but ASCII is still refused there.
    return "" if raw is None else mutation_id_of(raw.decode("latin-1"), scope)


def traceparent_of(call: Call) -> str | None:
    """The W3C trace context of the request; one that does not parse is no context (Trace Context, 3.2.2)."""
    values = call.header_values(b"traceparent")
    return values[0].decode("ascii") if len(values) == 1 and _TRACEPARENT.fullmatch(values[0]) else None


def refuse_conditions(call: Call, *names: str) -> None:
    """Refuses headers that a client may believe to be conditions where the route has none of that kind.

    `names` are the ones refused; without any, all three.

    Raises:
        InvalidError: `malformed-precondition`.
    """
    for name in names or _CONDITIONS:
        if call.header_values(name.lower().encode()):
            raise InvalidError(f"{name} has no meaning for this route", code="malformed-precondition")
