"""Which tier keeps a deployment's namespace: the suffixes of its name alone decide (003, "Durability tiers"; row D8)."""

from __future__ import annotations

from enum import Enum

from kvfold.schemas.names import namespace_suffixes

__all__ = ["Tier", "tier_of"]


class Tier(Enum):
    """Where the entries of a namespace live."""

    PERSISTENT = "persistent"
    """In the log, as they are."""

    SECRET = "secret"
    """In the log, encrypted beforehand."""

    VOLATILE = "volatile"
    """In Redis, or in memory; never in the log."""

    REFUSED = "refused"
    """Nowhere: it asks for a secret that is kept in the clear and may be evicted (row D12)."""


def tier_of(namespace: str) -> Tier:
    """The tier of a namespace, whatever else is right or wrong about its name.

    Suffixes are stripped one at a time, so that none hides behind another: `user_secrets_volatile` and
    `user_volatile_secrets` are both refused.
    """
    suffixes = namespace_suffixes(namespace)[1]
    if len(suffixes) > 1:
        return Tier.REFUSED
    if "_secrets" in suffixes:
        return Tier.SECRET
    return Tier.VOLATILE if suffixes else Tier.PERSISTENT
