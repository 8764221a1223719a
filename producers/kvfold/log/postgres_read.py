"""The read side of the embedded log: records in offset order, woken by `NOTIFY`."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, NoReturn

import psycopg
from psycopg import Connection
from psycopg.types.numeric import Int8

from kvfold.log.framing import decode_headers
from kvfold.log.port import RecordBatch
from kvfold.log.postgres_connection import GuardedConnection, Watchdog
from kvfold.log.statements import statement
from kvfold.schemas.errors import LogDivergedError
from kvfold.schemas.record import Record

__all__ = ["PostgresLogReader"]

POLL_NET_MS: Final = 100  # how often the ends are looked at although no notification came
ANSWER_TIMEOUT_S: Final = 5.0


class PostgresLogReader:
    """Reads the embedded log; implements `LogReader`. Has one connection."""

    def __init__(
        self, conninfo: str, watchdog: Watchdog, *, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._connection = GuardedConnection(
            conninfo, watchdog, statement_timeout_ms=int(answer_timeout_s * 1000), listen=True
        )
        self._answer_timeout_s = answer_timeout_s
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # as last seen, perhaps through a notification
        self._checked_at = 0.0
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Reads exactly these partitions from now on, each from the given offset."""
        self._positions = dict(offsets)
        self._ends = {}
        self._checked_at = 0.0

    def poll(self, *, timeout_ms: int, records_max: int, bytes_max: int) -> Sequence[RecordBatch]:
        """What is there, at most one batch a partition; see `LogReader.poll`."""
        deadline = monotonic() + timeout_ms / 1000
        while True:
            batches = self._read(records_max, bytes_max)
            remaining_s = deadline - monotonic()
            if batches or remaining_s <= 0 or self._wait(remaining_s):
                return batches

    def wake(self) -> None:
        """Makes a poll that waits return now."""
        # The buffer is full or the reader closed: either way nobody waits for one byte more.
        with suppress(OSError):
            self._wake_sender.send(b"\0")

    def close(self) -> None:
        """Gives up the assignment and the connection."""
        self._positions = {}
        self._connection.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def _read(self, records_max: int, bytes_max: int) -> list[RecordBatch]:
        if not self._positions:
            return []
        with self._connection.use(timeout_s=self._answer_timeout_s) as server:
            self._take_notifications(server)
            if (monotonic() - self._checked_at) * 1000 >= POLL_NET_MS:
                self._check(server)
            batches: list[RecordBatch] = []
            for partition, offset in list(self._positions.items()):
                if records_max <= 0 or (bytes_max <= 0 and batches):
                    break
                if self._ends.get(partition, 0) <= offset:
                    continue
                records = self._select(server, partition, records_max, bytes_max, oversized=not batches)
                if records:
                    batches.append(RecordBatch(partition, records, records[-1].offset + 1))
                    records_max -= len(records)
                    bytes_max -= sum(record.size() for record in records)
        # Only now, when nothing can fail any more: a position that moved has been returned.
        for batch in batches:
            # Read partitions go to the end of the line, so that a busy one never starves the others.
            del self._positions[batch.partition]
            self._positions[batch.partition] = batch.offset_next
        return batches

    def _select(
        self, server: Connection[Any], partition: int, records_max: int, bytes_max: int, *, oversized: bool
    ) -> list[Record]:
        offset = self._positions[partition]
        parameters = {
            "partition": Int8(partition),
            "offset": Int8(offset),
            "records_max": Int8(records_max),
            "bytes_max": Int8(bytes_max),
            "oversized": oversized,
        }
        rows = server.execute(statement("select_records"), parameters, prepare=True, binary=True)
        records = [
            Record(partition, at, timestamp_ms, key, decode_headers(headers), value)
            for at, timestamp_ms, key, headers, value in rows
        ]
        if records and records[-1].offset != offset + len(records) - 1:
            records = [record for place, record in enumerate(records) if record.offset == offset + place]
            if not records:
                self._refuse_hole(server, partition, offset)
        return records

    def _refuse_hole(self, server: Connection[Any], partition: int, offset: int) -> NoReturn:
        """This log has no gaps: what is missing was removed, and is never passed over."""
        self._check(server)
        raise LogDivergedError(
            f"record {partition}:{offset} of the embedded log was removed, and later ones are there",
            partitions=(partition,),
        )

    def _check(self, server: Connection[Any]) -> None:
        """Learns where the partitions begin and end, and refuses positions outside."""
        rows = server.execute(
            statement("select_bounds"), {"partitions": list(self._positions)}, prepare=True, binary=True
        )
        bounds = {partition: (start, end) for partition, start, end in rows}
        self._ends = {partition: end for partition, (_, end) in bounds.items()}
        outside = sorted(
            partition
            for partition, offset in self._positions.items()
            if partition not in bounds or not bounds[partition][0] <= offset <= bounds[partition][1]
        )
        if outside:
            raise LogDivergedError(
                f"the log does not hold the offset to read on from in partitions {outside}",
                code="offset-out-of-range",
                partitions=tuple(outside),
            )
        self._checked_at = monotonic()

    def _take_notifications(self, server: Connection[Any]) -> None:
        payloads = [notification.payload for notification in server.notifies(timeout=0)]
        # `notifies` waits for the socket first and does not see what the library has taken in already.
        while (taken_in := server.pgconn.notifies()) is not None:
            payloads.append(taken_in.extra.decode(errors="replace"))
        for payload in payloads:
            partition, _, offset = payload.partition(":")
            if partition.isdecimal() and offset.isdecimal() and int(partition) in self._positions:
                self._ends[int(partition)] = max(self._ends.get(int(partition), 0), int(offset) + 1)

    def _wait(self, remaining_s: float) -> bool:
        """Waits for a notification, a wake-up or the time to look again; True if woken."""
        server = self._connection.connected
        timeout_ms = min(remaining_s * 1000, POLL_NET_MS)
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        if server is not None and self._positions:
            with suppress(psycopg.Error):
                poll.register(server.fileno(), select.POLLIN)
        events = poll.poll(max(timeout_ms, 1))
        if not any(descriptor == self._wake_receiver.fileno() for descriptor, _ in events):
            return False
        with suppress(BlockingIOError):
            self._wake_receiver.recv(4096)
        return True
