"""What the read routes work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kvfold.http.metrics import HttpMetrics
from kvfold.http.positions import Floor, PositionedReader
from kvfold.query_api.tiers import SecretReads, VolatileReads
from kvfold.query_api.watch.hub import WatchHub
from kvfold.reads.executor import AsyncReader
from kvfold.reads.waiting import Waiter

__all__ = ["ReadContext", "no_floor"]


def no_floor(partition: int) -> int | None:
    """The floor of a process that writes nothing."""
    del partition
    return None


@dataclass(frozen=True)
class ReadContext:
    """What the read routes work with.

    - `floor`: the offset of the last write that this process acknowledged in a partition, None for none. A plain read
      waits for it.
    - `ready_from`: the positions (offset by partition) from which on the process counts as ready; None where it is ready
      as soon as a generation serves.
    - `gives_ciphertext`: whether snapshots may hold secret values as ciphertext. Of gateways, which could write them, too.
    - `secrets`, `volatile`: the tiers beside the persistent one, where this process has them.
    - `log_end`: the log's end (the last offset by partition), for those that may ask the log; it blocks.
    """

    reader: AsyncReader
    waiter: Waiter
    floor: Floor = no_floor
    metrics: HttpMetrics = field(default_factory=HttpMetrics)
    ready_from: Callable[[], Mapping[int, int]] | None = None
    gives_ciphertext: bool = False
    secrets: SecretReads | None = None
    volatile: VolatileReads | None = None
    log_end: Callable[[], Mapping[int, int]] | None = None

    @cached_property
    def reads(self) -> PositionedReader:
        """Reads that heed positions."""
        return PositionedReader(self.reader, self.waiter, self.floor)

    @cached_property
    def watches(self) -> WatchHub:
        """The watchers of this process."""
        return WatchHub(self.reader, self.waiter)
