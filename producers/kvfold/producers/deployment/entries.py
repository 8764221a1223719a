"""One deployment's entries as a tier keeps them: with every precondition, and with decisions like the log's.

`EntriesStore` shows them as an `ObjectStore`, whose verbs say an expected version and raise a conflict.
"""

from __future__ import annotations

from typing import Protocol

from kvfold.producers.deployment.object_store import check_version
from kvfold.reads.deployment import DeploymentValue, ObjectPage
from kvfold.schemas.errors import ConflictError
from kvfold.schemas.limits import PAGE_LIMIT_DEFAULT
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.precondition import ABSENT, ANY, Precondition

__all__ = ["Entries", "EntriesStore"]


class Entries(Protocol):
    """One deployment's entries. Calls block, for a bounded time; safe for several threads.

    Every verb raises `InvalidError` (`invalid-namespace`, `secret-and-volatile`, `invalid-key`, `too-large`,
    `malformed-limit`) and `UnavailableError` where the tier does not answer.
    """

    def get(self, namespace: str, key: str) -> DeploymentValue | None:
        """Value and version, None for an absent entry."""
        ...

    def put(self, namespace: str, key: str, value: bytes, *, expected: Precondition) -> Decision:
        """Writes where the precondition holds: applied with the new version, or a conflict with the current one.

        The current version of an absent entry is 0.
        """
        ...

    def delete(self, namespace: str, key: str, *, expected: Precondition) -> Decision:
        """Removes where the precondition holds: applied with the removed version, or a conflict with the current one.

        An absent entry is applied with 0, whatever the precondition (row D3).
        """
        ...

    def list(
        self, namespace: str, *, prefix: str = "", cursor: str | None = None, limit: int = PAGE_LIMIT_DEFAULT
    ) -> ObjectPage:
        """As `ObjectStore.list`."""
        ...

    def namespaces(self) -> tuple[str, ...]:
        """Every namespace with an entry that may be listed, in byte order."""
        ...


class EntriesStore:
    """Entries as an `ObjectStore`."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def get(self, namespace: str, key: str) -> DeploymentValue | None:
        """As `ObjectStore.get`."""
        return self._entries.get(namespace, key)

    def put(self, namespace: str, key: str, value: bytes, *, expected: int = 0) -> int:
        """As `ObjectStore.put`."""
        check_version(expected)
        condition = Precondition.version(expected) if expected else ABSENT
        return _applied(self._entries.put(namespace, key, value, expected=condition))

    def delete(self, namespace: str, key: str, *, expected: int = 0) -> None:
        """As `ObjectStore.delete`."""
        check_version(expected)
        condition = Precondition.version(expected) if expected else ANY
        _applied(self._entries.delete(namespace, key, expected=condition))

    def list(
        self, namespace: str, *, prefix: str = "", cursor: str | None = None, limit: int = PAGE_LIMIT_DEFAULT
    ) -> ObjectPage:
        """As `ObjectStore.list`."""
        return self._entries.list(namespace, prefix=prefix, cursor=cursor, limit=limit)


def _applied(decision: Decision) -> int:
    assert decision.version is not None
    if decision.status is DecisionStatus.CONFLICT:
        raise ConflictError(
            "the precondition does not hold for the current version", version=decision.version or None
        )
    return decision.version
