"""The append side of the topic: an idempotent producer that is made anew when it failed.

An append never waits. While there is no producer (at the start, and after a failure) records wait in a queue; a thread
makes a producer and sends them in order. A producer is given up after its first failure: what kafka-python does with
sequence numbers after a batch timed out costs one more failed append, and some errors leave it unusable for good.

The rule that keeps a thread's records in order: when a producer is given up, whatever it has not acknowledged fails
then and there, before the next producer sends anything. A late acknowledgement is ignored.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import structlog
from kafka import KafkaProducer
from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from kafka.serializer import Serializer

from kvfold.log.framing import check_record
from kvfold.log.kafka_client import make_client, translated
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.log.port import Appended
from kvfold.schemas.errors import InvalidError, KvfoldError, LogUnavailableError
from kvfold.schemas.limits import RECORD_BYTES_MAX
from kvfold.schemas.record import NewRecord, Record

__all__ = [
    "LOG_PRODUCER_GIVEN_UP",
    "LOG_PRODUCER_NOT_MADE",
    "KafkaAppender",
    "close_producer",
    "make_producer",
]

LOG_PRODUCER_GIVEN_UP: Final = "log_producer_given_up"
LOG_PRODUCER_NOT_MADE: Final = "log_producer_not_made"
BATCH_BYTES: Final = 256 * 1024
METADATA_TIMEOUT_MS: Final = 2_000
_TICK_S: Final = 0.1
_GRACE_S: Final = 0.5  # how much later than kafka-python we give up a record that it forgot about
_CLOSE_TIMEOUT_S: Final = 5.0

_logger = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Append:
    partition: int
    record: NewRecord
    future: Future[Appended]
    deadline: float

    def resolve(self, appended: Appended) -> None:
        with suppress(InvalidStateError):  # given up before the acknowledgement came
            self.future.set_result(appended)

    def fail(self, error: Exception) -> None:
        failure = error
        if not isinstance(error, KvfoldError) or not isinstance(error, LogUnavailableError | InvalidError):
            failure = LogUnavailableError(f"the log did not acknowledge the record: {error}")
            failure.__cause__ = error
        with suppress(InvalidStateError):
            self.future.set_exception(failure)


@dataclass(slots=True, eq=False)
class _Sending:
    """A producer, and what it has not acknowledged yet, oldest first. `failure` is set by its own thread."""

    producer: Any
    pending: dict[_Append, None] = field(default_factory=dict)
    failure: Exception | None = None


class KafkaAppender:
    """Appends records to the topic. Safe to use from several threads; connects with the first append."""

    def __init__(self, settings: KafkaSettings, *, partition_count: int) -> None:
        self._settings = settings
        self._partition_count = partition_count
        # The producer's own thread never takes this lock while it works for us, only in callbacks of our callers; it
        # holds none of kafka-python's locks then.
        self._changed = threading.Condition(threading.RLock())
        self._sending: _Sending | None = None
        self._waiting: deque[_Append] = deque()
        self._keeper: threading.Thread | None = None
        self._keeper_idle = False
        self._maker: threading.Thread | None = None
        self._last_error: Exception | None = None
        self._closed = False

    def append(self, partition: int, record: NewRecord) -> Future[Appended]:
        """Sends a record, or queues it while there is no producer; see `Log.append`.

        A record whose future failed while it was queued is never sent.
        """
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()
        append = _Append(partition, record, future, monotonic() + self._settings.delivery_timeout_ms / 1000)
        try:
            if not 0 <= partition < self._partition_count:
                raise InvalidError(f"the log has no partition {partition}", code="unknown-partition")
            check_record(record)
            with self._changed:
                if self._closed:
                    raise LogUnavailableError("the log is closed")
                self._accept(append)
        except KvfoldError as error:
            append.fail(error)
        return future

    def close(self) -> None:
        """Sends what is queued and waits for the answers, for at most 5 seconds; what is left fails."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting or self._keeper is None, _CLOSE_TIMEOUT_S)
            waiting, self._waiting = self._waiting, deque()
            sending, self._sending = self._sending, None
            self._changed.notify_all()
        if sending is not None:
            close_producer(sending.producer, timeout_s=_CLOSE_TIMEOUT_S)
            waiting.extendleft(reversed(sending.pending))
        _fail(waiting, LogUnavailableError("the log was closed before it acknowledged the record"))
        for thread in (self._keeper, self._maker):
            if thread is not None:
                thread.join(_CLOSE_TIMEOUT_S)

    # --- what follows is called with the lock held ---

    def _accept(self, append: _Append) -> None:
        sending = self._sending
        if sending is None or sending.failure is not None or self._waiting:
            self._waiting.append(append)
        else:
            self._send(sending, append)
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, name="kvfold-log-keeper", daemon=True)
            self._keeper.start()
        elif self._keeper_idle:
            self._changed.notify_all()

    def _send(self, sending: _Sending, append: _Append) -> None:
        try:
            sent = send(sending.producer, self._settings.topic, append.partition, append.record)
        except Exception as error:  # its metadata is gone, or it was closed under us
            sending.failure = error
            append.fail(error)
            return
        sending.pending[append] = None
        sent.add_callback(_acknowledged, sending, append)
        sent.add_errback(_failed, sending, append)

    def _take_given_up(self, now: float) -> _Sending | None:
        """The producer, if it failed or has forgotten a record."""
        sending = self._sending
        if sending is None:
            return None
        oldest = next(iter(sending.pending.copy()), None)
        if sending.failure is None and oldest is not None and oldest.deadline + _GRACE_S < now:
            sending.failure = LogUnavailableError("the log did not acknowledge the record in time")
        if sending.failure is None:
            return None
        self._sending, self._last_error = None, sending.failure
        return sending

    def _take_late(self, now: float) -> list[_Append]:
        late = []
        while self._waiting and self._waiting[0].deadline <= now:
            late.append(self._waiting.popleft())
        return late

    # --- the keeper: deadlines, and a producer while one is needed ---

    def _keep(self) -> None:
        while True:
            with self._changed:
                if self._closed and not self._waiting:
                    return
                now = monotonic()
                given_up, late = self._take_given_up(now), self._take_late(now)
                if given_up is not None:
                    # Before anything else is sent, and under the lock, so that nothing can be.
                    _fail(given_up.pending, given_up.failure)
                if self._waiting and self._sending is None and self._maker is None:
                    self._maker = threading.Thread(target=self._make, name="kvfold-log-maker", daemon=True)
                    self._maker.start()
                error = self._last_error
            if given_up is not None:
                _logger.warning(LOG_PRODUCER_GIVEN_UP, reason=str(given_up.failure))
                close_producer(given_up.producer, timeout_s=0)
            _fail(
                late,
                LogUnavailableError(f"the log did not take the record in time; it was not sent: {error}"),
            )
            if given_up is None and not late:
                self._rest()

    def _rest(self) -> None:
        with self._changed:
            if self._closed and not self._waiting:
                return
            busy = self._waiting or (self._sending is not None and self._sending.pending)
            self._keeper_idle = not busy
            self._changed.wait(_TICK_S if busy else None)
            self._keeper_idle = False

    def _make(self) -> None:
        """Makes a producer and sends what waits; on failure the keeper tries again with its next tick."""
        producer = None
        try:
            producer = make_producer(self._settings)
        except KvfoldError as error:
            _logger.warning(LOG_PRODUCER_NOT_MADE, reason=str(error))
            with self._changed:
                self._last_error = error
        with self._changed:
            self._maker = None
            if producer is not None and not (self._closed and not self._waiting):
                self._sending = _Sending(producer)
                now = monotonic()
                while self._waiting and self._sending.failure is None:
                    append = self._waiting.popleft()
                    if append.deadline <= now:
                        append.fail(
                            LogUnavailableError("the log did not take the record in time; it was not sent")
                        )
                    else:
                        self._send(self._sending, append)
                producer = None
            self._changed.notify_all()
        if producer is not None:
            close_producer(producer, timeout_s=0)


class _Values(Serializer):  # type: ignore[misc]
    """Lets a record with neither key nor value through, which Kafka takes and `KafkaProducer.send` does not."""

    NULL: Final = object()

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
        return None if data is self.NULL else data


def send(producer: Any, topic: str, partition: int, record: NewRecord | Record, **options: Any) -> Any:
    """Hands a record to a producer made by `make_producer`; its answer is kafka-python's future."""
    value = _Values.NULL if record.key is None and record.value is None else record.value
    headers = list(record.headers)
    return producer.send(topic, key=record.key, value=value, headers=headers, partition=partition, **options)


def make_producer(settings: KafkaSettings, **options: Any) -> Any:
    """An idempotent `KafkaProducer` that knows the topic and whose `send` does not wait.

    Raises:
        LogUnavailableError: no broker answers, or the topic has no leaders.
        LogMisconfiguredError: the settings or the topic are refused.
    """
    producer = make_client(
        KafkaProducer,
        settings,
        acks="all",
        enable_idempotence=True,
        compression_type=None,
        linger_ms=0,  # records that come while a request is under way make the next batch anyway
        batch_size=BATCH_BYTES,
        max_request_size=RECORD_BYTES_MAX,
        request_timeout_ms=settings.delivery_timeout_ms,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        max_block_ms=METADATA_TIMEOUT_MS,
        allow_auto_create_topics=False,
        metrics_enabled=False,
        value_serializer=_Values(),
        **options,
    )
    try:
        producer.partitions_for(settings.topic)
    except KafkaError as error:
        close_producer(producer, timeout_s=0)
        raise translated(error) from error
    producer.config["max_block_ms"] = 0
    return producer


def close_producer(producer: Any, *, timeout_s: float) -> None:
    """Closes a `KafkaProducer`; what it has not sent after `timeout_s` fails."""
    try:
        producer.close(timeout=timeout_s)
    except KafkaError:
        # Its close gives up when the flush takes too long (seen in 3.0.12), and leaves its thread running.
        producer._sender.force_close()
        producer._sender.join(timeout_s + _TICK_S)
        with suppress(KafkaError):
            producer.close(timeout=0)


def _acknowledged(sending: _Sending, append: _Append, metadata: Any) -> None:
    sending.pending.pop(append, None)
    if metadata.offset < 0:
        # The broker knows that it has the record and no longer where (a repeated batch).
        append.fail(LogUnavailableError("the log has the record and did not say where"))
    else:
        append.resolve(Appended(append.partition, metadata.offset, metadata.timestamp))


def _failed(sending: _Sending, append: _Append, error: Exception) -> None:
    sending.pending.pop(append, None)
    if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
        append.fail(InvalidError(f"the broker refuses the record as too large: {error}", code="too-large"))
        return
    if sending.failure is None:
        sending.failure = error
    append.fail(error)


def _fail(appends: Any, error: Exception | None) -> None:
    for append in list(appends):
        append.fail(error or LogUnavailableError("the log did not acknowledge the record"))
