"""What the write routes work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kvfold.log.port import Log
from kvfold.producers.deployment.volatile import VolatileTier
from kvfold.producers.gateway.keyring import Keyring
from kvfold.producers.gateway.volatile import VolatileCalls
from kvfold.producers.outcomes import OutcomeWaiter
from kvfold.producers.producer import Producer
from kvfold.reads.executor import AsyncReader
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX

__all__ = ["GATEWAY_SOURCE", "WRITE_TIMEOUT_S", "GatewayContext", "build_gateway_context"]

GATEWAY_SOURCE: Final = "/kvfold/gateway"
WRITE_TIMEOUT_S: Final = OPEN_WAIT_SECONDS_MAX - 0.5
"""Append and decision together: the answer leaves within 8 seconds of the request's last byte."""


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """The producer that all write routes share; its `acknowledged` is the floor of the read routes beside them.

    - `volatile`: the calls of the volatile tier, which may be none at all.
    - `secrets`: opens what the producer seals; None without a key. `reader` finds what is to be sealed anew; None where
      this process reads nothing.
    """

    producer: Producer
    write_timeout_s: float = WRITE_TIMEOUT_S
    volatile: VolatileCalls = field(default_factory=lambda: VolatileCalls(None))
    secrets: Keyring | None = None
    reader: AsyncReader | None = None


def build_gateway_context(
    log: Log,
    waiter: OutcomeWaiter,
    *,
    source: str = GATEWAY_SOURCE,
    write_timeout_s: float = WRITE_TIMEOUT_S,
    volatile: VolatileTier | None = None,
    secrets: Keyring | None = None,
    reader: AsyncReader | None = None,
) -> GatewayContext:
    """The context of a gateway over a log. Log, waiter and volatile tier stay the caller's, to close after the last request;
    so does the reader's pool.

    Asks the log nothing: a gateway starts, and answers 503, while the log is away.
    """
    producer = Producer(log, waiter, source=source, secrets=secrets)
    return GatewayContext(producer, write_timeout_s, VolatileCalls(volatile), secrets, reader)
