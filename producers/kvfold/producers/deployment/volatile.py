"""The volatile tier: versioned entries that never meet the log and may vanish at any time (003, "Durability tiers"; row D8).

`VolatileTier` is what a process opens, once for all deployments; `VolatileEntries` is one deployment's part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kvfold.producers.deployment.entries import Entries
from kvfold.producers.deployment.object_store import check_key, check_namespace, check_page, check_value
from kvfold.schemas.errors import InvalidError, UnavailableError
from kvfold.schemas.names import check_deployment_name
from kvfold.schemas.tiers import Tier

__all__ = [
    "SweepError",
    "VolatileEntries",
    "VolatileHealth",
    "VolatileTier",
    "VolatileUnavailableError",
    "check_volatile_deployment",
    "check_volatile_page",
    "check_volatile_place",
]


class VolatileUnavailableError(UnavailableError):
    """The volatile tier does not answer, or not in time; a write may have happened or not. No other tier is touched."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="volatile-unavailable")


class SweepError(VolatileUnavailableError):
    """A sweep ended early: `removed` entries are gone, others may be left. Sweeping again removes the rest."""

    def __init__(self, message: str, *, removed: int) -> None:
        super().__init__(message)
        self.removed = removed


@dataclass(frozen=True, slots=True)
class VolatileHealth:
    """What a reachability check cannot tell (003, "Watching the tiers").

    - `memory_used_bytes`, `memory_max_bytes`: None where there is no ceiling, and nothing is ever evicted.
    - `hits`, `misses`, `evicted_keys`: since the server started; it counts the reads of all its clients.
    - `keys`: all that the database holds.
    """

    memory_used_bytes: int
    memory_max_bytes: int | None
    hits: int
    misses: int
    evicted_keys: int
    keys: int

    @property
    def hit_rate(self) -> float | None:
        """Hits of all reads, 0 to 1; None before the first read."""
        reads = self.hits + self.misses
        return self.hits / reads if reads else None


class VolatileEntries(Entries, Protocol):
    """One deployment's volatile entries: only in namespaces that are volatile and hold no `:`, else `invalid-namespace`.

    What fails is a `VolatileUnavailableError`. An evicted entry is an absent one, and one that vanishes during a listing may
    make the page shorter than its limit.
    """


class VolatileTier(Protocol):
    """The volatile entries of all deployments. Calls block, for a bounded time; safe for several threads."""

    def entries(self, deployment_id: str) -> VolatileEntries:
        """One deployment's part. Asks no server.

        Raises:
            InvalidError: `malformed-name`, also for an id that holds `:`.
        """
        ...

    def sweep(self, deployment_id: str) -> int:
        """Removes every entry of a deployment and gives how many there were; its neighbours keep theirs.

        Raises:
            InvalidError: as `entries`.
            SweepError: it could not be finished; the error carries the count so far.
        """
        ...

    def health(self) -> VolatileHealth:
        """How the tier is.

        Raises:
            VolatileUnavailableError: it does not say.
        """
        ...

    def close(self) -> None:
        """Lets go of connections. The entries stay where they are."""
        ...


def check_volatile_deployment(deployment_id: str) -> None:
    """Raises `InvalidError` `malformed-name` for an id that the tier cannot keep apart from others."""
    problem = check_deployment_name("the deployment id", deployment_id)
    if problem is None and ":" in deployment_id:
        problem = _colon("the deployment id")
    if problem is not None:
        raise InvalidError(problem, code="malformed-name")


def check_volatile_place(namespace: str, key: str | None = None, value: bytes = b"") -> None:
    """Refuses what cannot be in the tier.

    Raises:
        InvalidError: `invalid-namespace`, `secret-and-volatile`, `invalid-key`, `too-large`.
    """
    if check_namespace(namespace) is not Tier.VOLATILE:
        raise InvalidError(
            "the namespace is not volatile: its name ends in _volatile", code="invalid-namespace"
        )
    if ":" in namespace:
        raise InvalidError(_colon("the namespace"), code="invalid-namespace")
    if key is not None:
        check_key(key)
    check_value(value)


def check_volatile_page(namespace: str, *, prefix: str, cursor: str | None, limit: int) -> None:
    """As `check_volatile_place`, and `check_page`."""
    check_volatile_place(namespace)
    check_page(prefix=prefix, cursor=cursor, limit=limit)


def _colon(what: str) -> str:
    # Escaping it instead would change the keys that other runtimes read.
    return f"{what} holds ':': in the volatile tier it is not accepted, since two keys could become one"
