"""Capsules the whole way, for tests: a log, a running projector, and clients that write and read through both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

import psycopg

from kvfold.log.port import Log
from kvfold.producers.capsule import CapsuleClient
from kvfold.producers.producer import Producer
from kvfold.reads.executor import Reader, read_pool
from kvfold.reads.waiting import Waiter
from kvfold.schemas.outcome import Decision
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.position import Position
from kvfold.schemas.record import NewRecord
from support.projection import WAIT_S
from support.projectors import running_projector

__all__ = ["Capsules", "capsules", "foreign_decision"]

_numbers = count(1)


@dataclass(frozen=True)
class Capsules:
    """What is needed to make clients; `fresh` gives names that nobody has used."""

    log: Log
    dsn: str
    producer: Producer
    reader: Reader
    waiter: Waiter

    def client(self, principal: str, capsule_id: str = "notes") -> CapsuleClient:
        """A client of one namespace."""
        return CapsuleClient(self.producer, self.reader, principal=principal, capsule_id=capsule_id)

    def fresh(self) -> CapsuleClient:
        """A client of a namespace that no test has used."""
        return self.client(f"principal-{next(_numbers)}")

    def recount(self, clients: Sequence[CapsuleClient]) -> list[tuple[int, int]]:
        """Keys and bytes of each namespace, counted from its rows."""
        counted = (
            "SELECT count(*), coalesce(sum(octet_length(convert_to(key, 'UTF8')) + octet_length(value)), 0)::bigint "
            "FROM kvfold_g1.capsule_entry WHERE scope = %s"
        )
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            rows = [connection.execute(counted, (client.scope,)).fetchone() for client in clients]
        return [(row[0], row[1]) for row in rows if row is not None]


@contextmanager
def capsules(log: Log, dsn: str) -> Iterator[Capsules]:
    """A projector that folds the log into the database, and what clients are made of."""
    with ExitStack() as stack:
        pool = stack.enter_context(read_pool(dsn, size_max=16))
        reader = Reader(pool)
        stack.callback(reader.close)
        waiter = Waiter(dsn)
        stack.callback(waiter.close)
        stack.enter_context(running_projector(log, dsn))
        yield Capsules(log, dsn, Producer(log, waiter, source="/tests"), reader, waiter)


def foreign_decision(stack: Capsules, record: NewRecord) -> Decision:
    """What is decided about a record that a foreign producer appended straight to the log."""
    assert record.key is not None
    partition = partition_of(record.key, stack.log.describe().partition_count)
    appended = stack.log.append(partition, record).result(WAIT_S)
    return stack.waiter.decision(Position(partition, appended.offset), WAIT_S).result().decision
