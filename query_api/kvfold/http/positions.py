"""Positions over HTTP: `X-Kvfold-Position` on every answer, `X-Kvfold-Min-Position` as a demand (row X5).

A demand is met by reading and looking: the answer tells its own position, so a projection that is up to date costs one
round trip. Only a read that is behind waits, at most 8 seconds, and reads again. Without any header a read still waits
for every write that this process acknowledged: the floor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Final, TypeVar

from kvfold.http.call import Call
from kvfold.reads.executor import AsyncReader
from kvfold.reads.query import Query, Read
from kvfold.reads.waiting import Waiter
from kvfold.schemas.errors import InvalidError, NotUpToPositionError
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX
from kvfold.schemas.position import format_positions, parse_positions

__all__ = ["POSITION_HEADER", "Floor", "PositionedReader", "demanded_positions", "position_headers"]

POSITION_HEADER: Final = "X-Kvfold-Position"

Floor = Callable[[int], int | None]
"""The offset of the last write that this process acknowledged in a partition; None where it wrote none."""

T = TypeVar("T")

_NOTHING: Final[Mapping[int, int]] = {}
_AGAIN_S: Final = 0.02


def position_headers(read: Read[T]) -> dict[str, str]:
    """The header that tells how far the answer is up: `3:1042`, or a list for what spans partitions."""
    positions = read.positions
    if len(positions) == 1:
        ((partition, offset),) = positions.items()
        return {POSITION_HEADER: f"{partition}:{offset}"}
    return {POSITION_HEADER: format_positions(positions)}


def demanded_positions(call: Call, *, partition_count: int) -> Mapping[int, int]:
    """`X-Kvfold-Min-Position`, by partition; repeated headers are one list.

    Raises:
        InvalidError: `malformed-position`; also for a partition that does not exist.
    """
    values = call.header_values(b"x-kvfold-min-position")
    if not values:
        return _NOTHING
    demand = parse_positions(b",".join(values).decode("latin-1"))
    for partition in demand:
        if partition >= partition_count:
            raise InvalidError(
                f"there is no partition {partition}: the log has {partition_count}", code="malformed-position"
            )
    return demand


class PositionedReader:
    """Reads that are up to what the request demands and to what this process acknowledged."""

    def __init__(self, reader: AsyncReader, waiter: Waiter, floor: Floor = lambda _: None) -> None:
        self.reader = reader
        self.waiter = waiter
        self._floor = floor

    async def read_up_to(self, call: Call, query: Query[T], offset: int) -> Read[T]:
        """As `read`, of one partition, and up to an offset of it as well."""
        assert query.partition is not None
        demand = demanded_positions(call, partition_count=await self.reader.partition_count())
        floor = self._floor(query.partition)
        demand = _both(demand, {query.partition: max(offset, -1 if floor is None else floor)})
        return await self._read_demanded(query, demand)

    async def read(self, call: Call, query: Query[T]) -> Read[T]:
        """Runs the query as soon as its answer is up to the demand.

        Raises:
            InvalidError: `malformed-position`.
            NotUpToPositionError: not within 8 seconds.
            PartitionPausedError: a partition is behind and paused.
            StoreUnavailableError: Postgres is away.
        """
        count = await self.reader.partition_count()
        demand = demanded_positions(call, partition_count=count)
        if query.partition is None:
            floors = {p: offset for p in range(count) if (offset := self._floor(p)) is not None}
            demand = _both(demand, floors)
        elif (floor := self._floor(query.partition)) is not None:
            demand = _both(demand, {query.partition: floor})
        if query.as_of is not None:
            # What is asked for has to be folded; and the answer stays the same, whatever is folded since.
            read = await self._read_demanded(query, _both(demand, query.as_of))
            return replace(read, positions=query.as_of)
        if not demand:
            return await self.reader.read(query)
        return await self._read_demanded(query, demand)

    async def _read_demanded(self, query: Query[T], demand: Mapping[int, int]) -> Read[T]:
        deadline = monotonic() + OPEN_WAIT_SECONDS_MAX
        if query.partition is None or demand.keys() == {query.partition}:
            read = await self.reader.read(query)
            if _reaches(read, demand):
                return read
        while True:
            left_s = max(0.0, deadline - monotonic())
            await asyncio.wrap_future(self.waiter.position_reached(demand, left_s))
            read = await self.reader.read(query)
            # Nearly always true. Not after a crash of Postgres that took back what was waited for.
            if _reaches(read, demand):
                return read
            if monotonic() >= deadline:
                raise NotUpToPositionError(f"the projection did not reach {format_positions(demand)} in time")
            await asyncio.sleep(_AGAIN_S)


def _both(demand: Mapping[int, int], floors: Mapping[int, int]) -> Mapping[int, int]:
    if not demand:
        return floors
    return {p: max(demand.get(p, -1), floors.get(p, -1)) for p in demand.keys() | floors.keys()}


def _reaches(read: Read[T], demand: Mapping[int, int]) -> bool:
    """Whether the answer covers the demand in the partitions that it spans."""
    positions = read.positions
    return all(positions[p] >= offset for p, offset in demand.items() if p in positions)
