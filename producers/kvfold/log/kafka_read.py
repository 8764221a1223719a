"""The read side of the topic: assigned partitions, committed records, positions that move over gaps."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from time import monotonic
from typing import Any, Final

import structlog
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import CorruptRecordError, KafkaError, LogTruncationError, OffsetOutOfRangeError

from kvfold.log.kafka_client import make_client, translated
from kvfold.log.kafka_records import PartitionRecords
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.log.port import Bounds, RecordBatch
from kvfold.schemas.errors import KvfoldError, LogDivergedError, LogUnavailableError
from kvfold.schemas.limits import BATCH_BYTES_MAX
from kvfold.schemas.record import Record

__all__ = ["LOG_READER_FAILED", "KafkaLogReader"]

LOG_READER_FAILED: Final = "log_reader_failed"
FETCH_WAIT_MS: Final = 100  # a broker with nothing new answers after this time
SLICE_MS: Final = 50  # how long a wake-up, or a position that moves without records, may go unseen
POSITIONS_EVERY_S: Final = 0.1
_PAUSE_S: Final = 1.0

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Assigned:
    """One partition: where the next batch begins, and what was fetched and not yet returned."""

    offset: int
    records: list[Record] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # of `records`, framing included
    place: int = 0  # in `records`: what comes before was returned
    fetched_to: int = -1  # the offset to go on from once all of `records` are returned

    def left(self) -> int:
        return len(self.records) - self.place

    def take(self, records_max: int, bytes_max: int, *, oversized: bool) -> tuple[list[Record], int]:
        """The next records within the bounds and their bytes; with `oversized` at least one if there is one."""
        begin = self.place
        sizes = self.sizes[begin : begin + max(records_max, 0)]
        if sum(sizes) > bytes_max:
            totals = list(accumulate(sizes))
            sizes = sizes[: max(bisect_right(totals, bytes_max), int(oversized))]
        self.place += len(sizes)
        records = self.records[begin : self.place]
        if not self.left():
            self.records, self.sizes, self.place = [], [], 0
        return records, sum(sizes)


class KafkaLogReader:
    """Reads the topic; implements `LogReader`. Its connection is made by the first poll.

    At most about two fetched answers of `BATCH_BYTES_MAX` bytes a broker are held in memory.
    """

    def __init__(
        self, settings: KafkaSettings, bounds: Callable[[Sequence[int]], Mapping[int, Bounds]]
    ) -> None:
        self._settings = settings
        self._bounds = bounds
        self._consumer: Any = None
        self._assigned: dict[int, _Assigned] = {}
        self._woken = threading.Event()
        self._answered_at = 0.0
        self._polled_at = 0.0
        self._positions_at = 0.0
        self._sizes: dict[int, list[int]] = {}

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Reads exactly these partitions from now on, each from the given offset (0 or more)."""
        assert all(offset >= 0 for offset in offsets.values())
        before, self._assigned = self._assigned, {}
        for partition, offset in offsets.items():
            known = before.get(partition)
            self._assigned[partition] = known if known and known.offset == offset else _Assigned(offset)
        if self._consumer is not None:
            kept = {
                partition for partition, state in self._assigned.items() if before.get(partition) is state
            }
            self._assign_consumer(kept)

    def poll(self, *, timeout_ms: int, records_max: int, bytes_max: int) -> Sequence[RecordBatch]:
        """What is there, at most one batch a partition; see `LogReader.poll`.

        A silent broker is found out after `delivery_timeout_ms`; until then polls return nothing.
        """
        now = monotonic()
        deadline = now + timeout_ms / 1000
        if now - self._polled_at > _PAUSE_S:
            self._answered_at = now  # nobody asked meanwhile, so no broker was silent
        while True:
            if not any(state.left() for state in self._assigned.values()):
                remaining_ms = max(0.0, (deadline - monotonic()) * 1000)
                self._fetch(min(remaining_ms, SLICE_MS), records_max)
            self._polled_at = monotonic()
            batches = self._batches(records_max, bytes_max)
            if batches or self._woken.is_set() or monotonic() >= deadline:
                self._woken.clear()
                return batches

    def wake(self) -> None:
        """Makes a poll that waits return, within 50 ms."""
        self._woken.set()

    def close(self) -> None:
        """Gives up the assignment and the connection."""
        self._assigned = {}
        self._drop_consumer()

    # --- fetching ---

    def _fetch(self, timeout_ms: float, records_max: int) -> None:
        if not self._assigned:
            self._woken.wait(timeout_ms / 1000)
            return
        try:
            if self._consumer is None:
                self._make_consumer()
            fetched = self._consumer.poll(timeout_ms=timeout_ms, max_records=max(records_max, 1))
            for topic_partition, records in fetched.items():
                state = self._assigned[topic_partition.partition]
                sizes = self._sizes.pop(topic_partition.partition)
                state.records, state.sizes, state.place = records, sizes, 0
                state.fetched_to = self._consumer.position(topic_partition, timeout_ms=0)
            if not fetched or monotonic() - self._positions_at > POSITIONS_EVERY_S:
                self._take_positions()
        except OffsetOutOfRangeError as error:
            raise self._out_of_range(error) from error
        except LogTruncationError as error:
            partitions = tuple(sorted(tp.partition for tp in error.divergent_offsets))
            raise LogDivergedError(
                f"the log was truncated in partitions {list(partitions)}", partitions=partitions
            ) from error
        except KafkaError as error:
            # A batch that cannot be read is among them: what came over the wire may be better the next time.
            self._drop_consumer()
            _logger.warning(LOG_READER_FAILED, reason=str(error))
            if isinstance(error, CorruptRecordError):
                raise LogUnavailableError(str(error)) from error
            raise translated(error) from error
        self._check_answers(bool(fetched))

    def _take_positions(self) -> None:
        """Learns of positions that moved without records: transaction markers, aborted transactions."""
        self._positions_at = monotonic()
        for partition, state in self._assigned.items():
            if not state.left():
                state.fetched_to = self._consumer.position(self._topic_partition(partition), timeout_ms=0)

    def _check_answers(self, fetched: bool) -> None:
        """The consumer itself goes on silently when no broker answers."""
        now = monotonic()
        if fetched or now - self._answered_at < (self._settings.delivery_timeout_ms + FETCH_WAIT_MS) / 1000:
            return
        silent_s = now - self._answered_at
        self._answered_at = now  # the next polls try again for as long
        raise LogUnavailableError(f"no broker has answered a fetch for {silent_s:.0f} s")

    def _out_of_range(self, error: OffsetOutOfRangeError) -> KvfoldError:
        """The error names one partition; the caller wants to know all of them at once."""
        outside = {topic_partition.partition for topic_partition in error.args[0]}
        with suppress(LogUnavailableError):
            for partition, bounds in self._bounds(list(self._assigned)).items():
                if not bounds.start <= self._assigned[partition].offset <= bounds.end:
                    outside.add(partition)
        return LogDivergedError(
            f"the log does not hold the offset to read on from in partitions {sorted(outside)}",
            code="offset-out-of-range",
            partitions=tuple(sorted(outside)),
        )

    # --- returning ---

    def _batches(self, records_max: int, bytes_max: int) -> list[RecordBatch]:
        batches: list[RecordBatch] = []
        for partition, state in self._assigned.items():
            records, size = state.take(records_max, bytes_max, oversized=not batches)
            offset_next = state.offset
            if records:
                offset_next = records[-1].offset + 1
            if not state.left():
                offset_next = max(offset_next, state.fetched_to)
            if offset_next == state.offset:
                continue
            batches.append(RecordBatch(partition, records, offset_next))
            state.offset = offset_next
            records_max -= len(records)
            bytes_max -= size
        return batches

    # --- the consumer ---

    def _make_consumer(self) -> None:
        self._consumer = make_client(
            KafkaConsumer,
            self._settings,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            check_crcs=True,
            allow_auto_create_topics=False,
            fetch_min_bytes=1,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            fetch_max_bytes=BATCH_BYTES_MAX,
            max_partition_fetch_bytes=BATCH_BYTES_MAX,
            request_timeout_ms=self._settings.delivery_timeout_ms + FETCH_WAIT_MS,
            retry_backoff_ms=SLICE_MS,
            metrics_enabled=False,
        )
        fetcher = self._consumer._fetcher
        fetcher.PartitionRecords = partial(PartitionRecords, sizes=self._sizes)
        handle = fetcher._handle_fetch_response

        def answered(*arguments: Any) -> None:
            self._answered_at = monotonic()
            handle(*arguments)

        fetcher._handle_fetch_response = answered
        self._answered_at = monotonic()
        self._assign_consumer(frozenset())

    def _assign_consumer(self, kept: Collection[int]) -> None:
        """Tells the consumer what to read; partitions in `kept` go on from where it stands."""
        self._consumer.assign([self._topic_partition(partition) for partition in self._assigned])
        for partition, state in self._assigned.items():
            if partition not in kept:
                self._consumer.seek(self._topic_partition(partition), max(state.offset, state.fetched_to))

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._sizes.clear()
        if consumer is not None:
            with suppress(KafkaError, OSError):
                consumer.close(autocommit=False, timeout_ms=1_000)

    def _topic_partition(self, partition: int) -> Any:
        return TopicPartition(self._settings.topic, partition)
