"""`copy_log`: moves an embedded log into a topic, with the same offsets and the same times.

Writers have to be stopped. While records are copied the topic keeps the times it is given (`CreateTime`); once every
record was read back and found equal, it is switched to `LogAppendTime` and is a log like any other. There are no
transactions, since their markers would take offsets. A copy that was interrupted goes on where it stopped, after what is
there was compared with the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from kafka.errors import KafkaError

from kvfold.log.kafka_append import close_producer, make_producer, send
from kvfold.log.kafka_read import KafkaLogReader
from kvfold.log.kafka_settings import KafkaSettings, keep_values_out_of_logs
from kvfold.log.kafka_topic import APPEND_TIME, CREATE_TIME, TopicAdmin, topic_config
from kvfold.log.port import Bounds, LogDescription, LogReader
from kvfold.log.postgres import PostgresLog
from kvfold.schemas.errors import LogDivergedError, LogMisconfiguredError, LogUnavailableError
from kvfold.schemas.record import Record

__all__ = ["CopyProgress", "copy_log"]

BATCH_RECORDS: Final = 1_000
BATCH_BYTES: Final = 8 * 1024 * 1024
DELIVERY_TIMEOUT_MS: Final = 60_000  # nobody waits for a single record here
_POLL_TIMEOUT_MS: Final = 1_000
_POLLS_WITHOUT_RECORDS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy is: `done` of `total` records in this step; `total` is of all partitions.

    Steps: `compare` what an interrupted copy left, `copy`, `verify`.
    """

    step: Literal["compare", "copy", "verify"]
    done: int
    total: int


def copy_log(
    source: PostgresLog,
    target: KafkaSettings,
    *,
    progress: Callable[[CopyProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> LogDescription:
    """Copies the embedded log into the topic, which is made if it does not exist, and answers what the topic is then.

    A topic that exists has to be empty, or to hold the beginning of the same log (a copy that was interrupted). Memory
    is bounded by a few batches of 8 MiB. `should_stop` is asked between batches.

    Raises:
        CancelledError: `should_stop` said so; the same call later goes on from there.
        LogMisconfiguredError: the topic has another partition count, other settings, or the source does not begin at
            offset 0; nothing was changed.
        LogDivergedError: the topic holds something else, or a record got another offset (somebody writes into it), or
            the source grew while it was copied.
        LogUnavailableError: a server does not answer; the same call later goes on.
    """
    keep_values_out_of_logs()
    target = replace(target, delivery_timeout_ms=max(target.delivery_timeout_ms, DELIVERY_TIMEOUT_MS))
    admin = TopicAdmin(target)
    try:
        ends = _source_ends(source)
        _prepare_topic(admin, target, partition_count=len(ends))
        copied = _target_ends(admin, ends)
        copy = _Copy(source, target, admin, progress, should_stop)
        copy.compare("compare", copied)
        copy.copy(copied, ends)
        copy.compare("verify", ends)
        if _source_ends(source) != ends:
            raise LogDivergedError(
                "the embedded log grew while it was copied: stop every writer and copy again"
            )
        admin.alter({"message.timestamp.type": APPEND_TIME})
        return admin.describe()
    finally:
        admin.close()


def _source_ends(source: PostgresLog) -> dict[int, int]:
    """The end of each partition of the source, which has to be whole."""
    count = source.describe().partition_count
    bounds = source.bounds(range(count))
    trimmed = [partition for partition, bound in bounds.items() if bound.start != 0]
    if trimmed:
        raise LogMisconfiguredError(
            f"partitions {trimmed} of the embedded log do not begin at offset 0: a topic cannot begin elsewhere, so their "
            "offsets would change; rebuild from a snapshot instead"
        )
    return {partition: bounds[partition].end for partition in range(count)}


def _prepare_topic(admin: TopicAdmin, target: KafkaSettings, *, partition_count: int) -> None:
    """Makes the topic for copying, or brings one that exists back to it."""
    if partition_count != target.partition_count:
        raise LogMisconfiguredError(
            f"the embedded log has {partition_count} partitions and {target.partition_count} are configured for the topic: "
            f"set KVFOLD_PARTITIONS={partition_count}"
        )
    if admin.create(topic_config(target, timestamp_type=CREATE_TIME)):
        return
    name = "message.timestamp.type"
    problems = [problem for problem in admin.problems() if not problem.startswith(name)]
    if problems:
        raise LogMisconfiguredError("\n".join(problems))
    if admin.config()[name] != CREATE_TIME:
        if any(bounds.end for bounds in admin.bounds(range(partition_count)).values()):
            raise LogDivergedError(
                f"topic {target.topic} is in use: it has records and its times are its own ({name}={APPEND_TIME}); "
                "copy into an empty topic"
            )
        admin.alter({name: CREATE_TIME})


def _target_ends(admin: TopicAdmin, ends: Mapping[int, int]) -> dict[int, int]:
    """How far an earlier copy came in each partition."""
    bounds: Mapping[int, Bounds] = admin.bounds(list(ends))
    wrong = [
        partition for partition, bound in bounds.items() if bound.start != 0 or bound.end > ends[partition]
    ]
    if wrong:
        raise LogDivergedError(
            f"partitions {wrong} of the topic hold more than the embedded log, or not its beginning: copy into an empty "
            "topic",
            partitions=tuple(wrong),
        )
    return {partition: bound.end for partition, bound in bounds.items()}


@dataclass(frozen=True, slots=True)
class _Copy:
    """The steps, partition by partition: at any time one batch of each side is held."""

    source: PostgresLog
    target: KafkaSettings
    admin: TopicAdmin
    progress: Callable[[CopyProgress], None]
    should_stop: Callable[[], bool]

    def copy(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Appends the source's records from `begins` to `ends`, and checks the offset that each is given."""
        done, total = 0, sum(ends.values()) - sum(begins.values())
        producer = make_producer(self.target)
        try:
            with _closing(self.source.reader()) as reader:
                for partition, end in ends.items():
                    for records in _batches(reader, partition, begins[partition], end):
                        self._check_stop()
                        self._append(producer, records)
                        done += len(records)
                        self.progress(CopyProgress("copy", done, total))
        finally:
            close_producer(producer, timeout_s=0)

    def compare(self, step: Literal["compare", "verify"], ends: Mapping[int, int]) -> None:
        """Reads both logs up to `ends` and refuses the first difference."""
        done, total = 0, sum(ends.values())
        reader = KafkaLogReader(self.target, self.admin.bounds)
        with _closing(self.source.reader()) as expected, _closing(reader) as actual:
            for partition, end in ends.items():
                copies = (record for batch in _batches(actual, partition, 0, end) for record in batch)
                for records in _batches(expected, partition, 0, end):
                    self._check_stop()
                    for record in records:
                        _check_equal(record, next(copies, None))
                    done += len(records)
                    self.progress(CopyProgress(step, done, total))

    def _append(self, producer: Any, records: list[Record]) -> None:
        try:
            sent = [
                send(producer, self.target.topic, record.partition, record, timestamp_ms=record.timestamp_ms)
                for record in records
            ]
            for record, answer in zip(records, sent, strict=True):
                offset = answer.get(timeout=2 * DELIVERY_TIMEOUT_MS / 1000).offset
                if offset != record.offset:
                    raise LogDivergedError(
                        f"record {record.position} was given offset {offset} in the topic: somebody else writes into it; "
                        "stop them, delete the topic and copy again",
                        partitions=(record.partition,),
                    )
        except KafkaError as error:
            raise LogUnavailableError(f"Kafka did not take the records: {error}") from error

    def _check_stop(self) -> None:
        if self.should_stop():
            raise CancelledError("the copy was stopped; the same command goes on from here")


def _batches(reader: LogReader, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
    """The records of a partition from `begin` up to `end`, in batches."""
    reader.assign({partition: begin})
    without = 0
    while begin < end:
        polled = reader.poll(timeout_ms=_POLL_TIMEOUT_MS, records_max=BATCH_RECORDS, bytes_max=BATCH_BYTES)
        for batch in polled:
            begin = batch.offset_next
            records = [record for record in batch.records if record.offset < end]
            if records:
                yield records
        without = 0 if polled else without + 1
        if without > _POLLS_WITHOUT_RECORDS_MAX:
            raise LogUnavailableError(f"partition {partition} does not give its records up to offset {end}")


def _check_equal(record: Record, copied: Record | None) -> None:
    if record != copied:
        raise LogDivergedError(
            f"record {record.position} of the embedded log and the topic's differ: the topic holds another log; copy into "
            "an empty topic",
            partitions=(record.partition,),
        )


@contextmanager
def _closing(reader: Any) -> Iterator[LogReader]:
    try:
        yield reader
    finally:
        with suppress(KafkaError):
            reader.close()
