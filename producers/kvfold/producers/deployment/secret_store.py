"""Secrets of a runtime: the object store's secret namespaces under their families' names (row D7)."""

from __future__ import annotations

from kvfold.producers.deployment.object_store import ObjectStore
from kvfold.reads.deployment import DeploymentValue

__all__ = ["SecretStore", "secret_namespace"]


def secret_namespace(family: str) -> str:
    """Where a family's secrets are: `user` gives `user_secrets`, `system` gives `system_secrets`, x gives `x_secrets`."""
    return f"{family}_secrets"


class SecretStore:
    """Versioned secrets by family and key, over an object store. Never volatile; encrypted wherever they are on a disk.

    Raises what the object store raises: also `secret-and-volatile` for a family whose name ends in `_volatile`, and
    `UnavailableError` `encryption-key-missing` where the orchestrator has no key.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get(self, family: str, key: str) -> DeploymentValue | None:
        """As `ObjectStore.get`."""
        return self._store.get(secret_namespace(family), key)

    def put(self, family: str, key: str, value: bytes, *, expected: int = 0) -> int:
        """As `ObjectStore.put`."""
        return self._store.put(secret_namespace(family), key, value, expected=expected)

    def delete(self, family: str, key: str, *, expected: int = 0) -> None:
        """As `ObjectStore.delete`."""
        self._store.delete(secret_namespace(family), key, expected=expected)
