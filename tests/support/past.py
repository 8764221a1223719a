"""A projection with a past: records by chance in Postgres, and of any prefix of them what it folds to, from memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from kvfold.log.memory import MemoryLog
from kvfold.projector.memory_store import MemoryStore, MemoryTables
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.record import NewRecord, Record
from support.asgi_client import AsgiClient
from support.chance import Chance
from support.projection import fold_records, set_up, store_for
from support.query_api import query_api
from support.servers import fresh_database
from support.workload import Workload

__all__ = ["START_MS", "Past", "folded_past", "placed"]

START_MS = 1_700_000_000_000
PARTITIONS = 2


def placed(drawn: Sequence[tuple[int, NewRecord]], *, step_ms: int = 1_000) -> dict[int, list[Record]]:
    """Records at their places, with every third offset left out as transaction markers do, and a clock that steps back."""
    found: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    for number, (partition, new) in enumerate(drawn):
        records = found[partition]
        offset = records[-1].offset + (2 if len(records) % 3 == 2 else 1) if records else 0
        time_ms = START_MS + number * step_ms - (5_000 if number % 7 == 3 else 0)
        records.append(Record(partition, offset, time_ms, new.key, new.headers, new.value))
    return found


@dataclass(frozen=True)
class Past:
    """What was folded, and the query API over it."""

    dsn: str
    api: AsgiClient
    records: Mapping[int, Sequence[Record]]
    _prefixes: dict[int, dict[int, MemoryStore]] = field(default_factory=dict)

    def prefix(self, partition: int, offset: int) -> MemoryStore:
        """What the partition's records up to an offset fold to; not to be changed."""
        if partition not in self._prefixes:
            self._prefixes[partition] = dict(_prefixes(partition, self.records[partition]))
        at = max((record.offset for record in self.records[partition] if record.offset <= offset), default=-1)
        return self._prefixes[partition][at]

    @staticmethod
    def partition(scope: str) -> int:
        """The partition of a scope."""
        return partition_of(scope.encode(), PARTITIONS)

    def offsets(self, partition: int, *, every: int = 1) -> list[int]:
        """Offsets to look at: before the first record, each record's (or some), and those that no record has."""
        last = self.records[partition][-1].offset
        return [*range(-1, last, every), last]

    @cached_property
    def effective_ms(self) -> Mapping[int, list[tuple[int, int]]]:
        """By partition, each record's offset with its effective time: the highest timestamp so far."""
        result: dict[int, list[tuple[int, int]]] = {}
        for partition, records in self.records.items():
            highest, times = 0, []
            for record in records:
                highest = max(highest, record.timestamp_ms)
                times.append((record.offset, highest))
            result[partition] = times
        return result


def _prefixes(partition: int, records: Sequence[Record]) -> Iterator[tuple[int, MemoryStore]]:
    """A copy of the tables after each record; -1 is before the first."""
    store = MemoryStore()
    yield -1, MemoryStore()
    for record in records:
        fold_records(store, [record], partition=partition, partition_count=PARTITIONS, batch_size=1)
        tables = MemoryTables()
        tables.tables = {name: dict(rows) for name, rows in store.shared.tables.items()}
        yield record.offset, MemoryStore(tables)


@contextmanager
def folded_past(admin_dsn: str, *, seed: int, count: int) -> Iterator[Past]:
    """Folds a workload by chance into a database of its own."""
    workload = Workload(Chance(seed), partition_count=PARTITIONS)
    records = placed([workload.draw() for _ in range(count)])
    with fresh_database(admin_dsn) as dsn:
        set_up(dsn, MemoryLog(partition_count=PARTITIONS))
        store = store_for(dsn)
        try:
            for partition, of_partition in records.items():
                fold_records(
                    store, of_partition, partition=partition, partition_count=PARTITIONS, batch_size=17
                )
        finally:
            store.close()
        with query_api(dsn) as api:
            yield Past(dsn, api, records)
