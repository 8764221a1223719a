"""The tiers beside the persistent one, as the reads see them: secrets to open, volatile entries to ask for.

The query API alone has neither: it never gives a secret's value, and volatile entries are read at the gateway, which
puts its own keys and its own Redis in here.
"""

from __future__ import annotations

from typing import Protocol

from kvfold.reads.deployment import DeploymentValue, ObjectPage
from kvfold.schemas.errors import UnavailableError

__all__ = ["SecretReads", "VolatileHealthReads", "VolatileReads", "no_key", "no_volatile_tier"]


class SecretReads(Protocol):
    """Opens the envelopes of secret namespaces (`kvfold.producers.gateway.keyring.Keyring`)."""

    def open(self, scope: str, namespace: str, key: str, envelope: bytes) -> bytes:
        """The value that was sealed for this place.

        Raises:
            UnavailableError: `encryption-key-missing`: sealed with a key that is not configured.
            KvfoldError: `secret-unreadable`: sealed for another place, or damaged.
        """
        ...


class VolatileHealthReads(Protocol):
    """How the volatile tier is (`kvfold.producers.deployment.volatile.VolatileHealth`)."""

    @property
    def memory_used_bytes(self) -> int: ...
    @property
    def memory_max_bytes(self) -> int | None: ...
    @property
    def hit_rate(self) -> float | None: ...
    @property
    def evicted_keys(self) -> int: ...
    @property
    def keys(self) -> int: ...


class VolatileReads(Protocol):
    """The reads of `kvfold.producers.gateway.volatile.VolatileCalls`, which says what they raise."""

    @property
    def is_configured(self) -> bool:
        """Whether there is such a tier at all."""
        ...

    async def get(self, deployment_id: str, namespace: str, key: str) -> DeploymentValue | None:
        """Value and version, None for an absent entry."""
        ...

    async def list(
        self, deployment_id: str, namespace: str, *, prefix: str, cursor: str | None, limit: int
    ) -> ObjectPage:
        """A page of a namespace."""
        ...

    async def namespaces(self, deployment_id: str) -> tuple[str, ...]:
        """Every volatile namespace with an entry, in byte order."""
        ...

    async def health(self) -> VolatileHealthReads:
        """How the tier is."""
        ...


def no_key() -> UnavailableError:
    """Why a process without keys gives no secret value (row D11)."""
    return UnavailableError(
        "no encryption key is configured here: secret values are read at a gateway that has KV_ENCRYPTION_KEY",
        code="encryption-key-missing",
    )


def no_volatile_tier() -> UnavailableError:
    """Why a process without Redis gives no volatile entry."""
    return UnavailableError(
        "no volatile tier is configured here: volatile namespaces are read at a gateway that has REDIS_URL",
        code="volatile-unavailable",
    )
