"""What a projection holds, to be compared: every table of every store, the offsets, and one hash over all of it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import psycopg

from kvfold.log.port import Log
from kvfold.projector.batch import prepare
from kvfold.projector.generations import ensure_serving_generation
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.partition import PartitionFold
from kvfold.projector.postgres_store import PostgresStore, connect_for_folding
from kvfold.projector.replaying import next_offsets
from kvfold.projector.store import ProjectionStore
from kvfold.projector.tables import TABLES
from kvfold.schemas.record import NewRecord, Record

__all__ = [
    "WAIT_S",
    "append_all",
    "content",
    "content_hash",
    "differences",
    "eventually",
    "fold_in_memory",
    "fold_records",
    "folded_offsets",
    "read_log",
    "store_for",
    "wait_until_folded",
]

WAIT_S = 60.0  # a bound against hanging, never a measure
_TABLES = (*TABLES, *(f"{spec.name}_history" for spec in TABLES.values() if spec.has_history))

Content = dict[str, list[tuple[object, ...]]]


def store_for(dsn: str, *, generation: int = 1, name: str = "kvfold-fold test") -> PostgresStore:
    """A store on a generation of a database, the first one unless another is named."""
    return PostgresStore(
        lambda: connect_for_folding(dsn, transaction_timeout_ms=20_000, name=name), generation
    )


def set_up(dsn: str, log: Log) -> None:
    """Makes the generation's tables and binds the database to the log."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        ensure_serving_generation(connection, log.describe())


def content(store: ProjectionStore, partitions: Iterable[int]) -> Content:
    """Every table in key order, and the partitions' states."""
    tables: Content = {table: [tuple(row) for row in store.rows(table)] for table in _TABLES}
    tables["partition_offset"] = [(partition, *store.state(partition)) for partition in sorted(partitions)]
    return tables


def content_hash(tables: Content) -> str:
    """One hash over everything, for messages and quick comparisons."""
    return hashlib.sha256(repr(sorted(tables.items())).encode()).hexdigest()


def differences(left: Content, right: Content) -> dict[str, tuple[int, int, list[str]]]:
    """Tables that differ: how many rows each side has, and the first few that only one of them has."""
    result = {}
    for table in left:
        if left[table] != right[table]:
            odd = [row for row in left[table] if row not in right[table]]
            odd += [row for row in right[table] if row not in left[table]]
            result[table] = (len(left[table]), len(right[table]), [repr(row)[:300] for row in odd[:4]])
    return result


def fold_records(
    store: ProjectionStore,
    records: Sequence[Record],
    *,
    partition: int,
    partition_count: int,
    batch_size: int,
    epoch: int = 0,
) -> None:
    """Folds a partition's records into a store, cut into batches of a size."""
    fold = PartitionFold(partition, epoch=epoch, state=store.state(partition))
    for start in range(0, len(records), batch_size):
        steps = prepare(records[start : start + batch_size], partition_count)
        fold.fold(store, steps, steps[-1][0].offset + 1)


def fold_in_memory(
    records: Mapping[int, Sequence[Record]], offsets: Mapping[int, int], *, batch_size: int = 1_000
) -> MemoryStore:
    """What a log's records fold to, with the offset after them per partition."""
    store = MemoryStore()
    for partition, partition_records in records.items():
        fold_records(
            store, partition_records, partition=partition, partition_count=len(offsets), batch_size=batch_size
        )
        PartitionFold(partition, epoch=0, state=store.state(partition)).fold(store, [], offsets[partition])
    return store


def append_all(log: Log, records: Iterable[tuple[int, NewRecord]]) -> None:
    """Appends records and waits for all acknowledgements."""
    for future in [log.append(partition, record) for partition, record in records]:
        future.result(WAIT_S)


def read_log(log: Log) -> tuple[dict[int, list[Record]], dict[int, int]]:
    """All of a log: its records by partition, and the offset after them."""
    partitions = range(log.describe().partition_count)
    ends = {partition: bounds.stable_end for partition, bounds in log.bounds(partitions).items()}
    found: dict[int, list[Record]] = {partition: [] for partition in partitions}
    positions = dict.fromkeys(partitions, 0)
    reader = log.reader()
    reader.assign(positions)
    deadline = time.monotonic() + WAIT_S
    while any(positions[partition] < end for partition, end in ends.items()):
        assert time.monotonic() < deadline, f"read {positions} of {ends}"
        for batch in reader.poll(timeout_ms=200, records_max=1_000, bytes_max=8 << 20):
            found[batch.partition].extend(batch.records)
            positions[batch.partition] = batch.offset_next
    reader.close()
    return found, positions


def folded_offsets(dsn: str, *, generation: int = 1) -> dict[int, int]:
    """How far each partition is folded."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return next_offsets(connection, generation)


def eventually(condition: Callable[[], bool], what: str, *, timeout_s: float = WAIT_S) -> None:
    """Waits for a condition that nothing signals; fails with what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


def wait_until_folded(dsn: str, log: Log, *, generation: int = 1, timeout_s: float = WAIT_S) -> None:
    """Waits until all of the log is folded into a generation."""
    ends = {p: bounds.stable_end for p, bounds in log.bounds(range(log.describe().partition_count)).items()}
    eventually(
        lambda: all(
            offset >= ends[partition]
            for partition, offset in folded_offsets(dsn, generation=generation).items()
        ),
        f"the log folded up to {ends}",
        timeout_s=timeout_s,
    )
