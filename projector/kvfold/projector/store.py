"""The projection store as the run loop sees it. Adapters: `MemoryStore` (tests, simulation), `PostgresStore`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kvfold.projector.batch import Batch, Loaded
from kvfold.projector.needs import Needs
from kvfold.projector.tables import PartitionState, Row
from kvfold.schemas.errors import KvfoldError

__all__ = ["FencedError", "ProjectionStore"]


class FencedError(KvfoldError):
    """The offset row is not as this worker left it: another one owns the partition, or a commit went through after all.

    Nothing of the batch was written. Give the partition up, or read its state again.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, code="fenced")


class ProjectionStore(Protocol):
    """One connection's view of a generation's tables; it belongs to one thread.

    Faults of the infrastructure are `StoreUnavailableError` (nothing known about an open commit: read the state again);
    anything else that a server refuses is our own mistake and is raised as it comes.
    """

    def state(self, partition: int) -> PartitionState:
        """How far the partition is folded. A partition that was never folded stands at offset 0."""
        ...

    def load(self, partition: int, needs: Needs) -> Loaded:
        """What is stored of the needs, and the partition's state.

        It is all of that state if the state is still the one that the caller knows; otherwise another worker has
        committed in between, and nothing of it may be used.
        """
        ...

    def commit(self, batch: Batch, *, epoch: int) -> None:
        """Writes all of a batch and moves the offset, or nothing; then tells waiters.

        Raises:
            FencedError: the offset is not `batch.offset_expected` or the epoch is not ours; nothing was written.
        """
        ...

    def rows(self, table: str) -> Iterator[Row]:
        """Every row of a table in key order, histories included by their own name. For verification and tests."""
        ...

    def reset(self) -> None:
        """Forgets whatever is under way; the next call starts on a fresh connection if the old one is broken."""
        ...

    def close(self) -> None:
        """Gives the connection back."""
        ...
