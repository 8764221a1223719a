"""The log in a topic while its broker restarts, dies, or hangs: nothing acknowledged is lost, nothing waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

import pytest

from conformance.log_contract import WAIT_S, append, opened, read, small, values
from kvfold.log.kafka import KafkaLog, KafkaSettings, create_topic
from kvfold.log.port import Appended, LogReader
from kvfold.schemas.errors import LogUnavailableError
from kvfold.schemas.record import Record

if TYPE_CHECKING:
    from support.broker import Broker

__all__: list[str] = []

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS: Final = 2
DELIVERY_TIMEOUT_MS: Final = 2_000
OUTAGE_S: Final = 120.0  # a bound against hanging


@pytest.fixture
def log(own_kafka_broker: Broker) -> Iterator[KafkaLog]:
    settings = KafkaSettings(
        bootstrap_servers=own_kafka_broker.bootstrap,
        topic="outages",
        partition_count=PARTITIONS,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
    )
    create_topic(settings)
    log = KafkaLog.open(settings)
    yield log
    log.close()


class Writers:
    """Threads that append without pause until told to stop; remembers what was acknowledged and what failed."""

    def __init__(self, log: KafkaLog, threads: int) -> None:
        self._log = log
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self.acknowledged: dict[str, Appended] = {}
        self.failed: set[str] = set()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(threads)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_for_acknowledgements(self, more: int) -> None:
        """Waits until `more` records were acknowledged from now on."""
        with self._changed:
            wanted = len(self.acknowledged) + more
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= wanted, OUTAGE_S)

    def wait_for_failures(self, more: int) -> None:
        """Waits until `more` appends failed from now on."""
        with self._changed:
            wanted = len(self.failed) + more
            assert self._changed.wait_for(lambda: len(self.failed) >= wanted, OUTAGE_S)

    def _write(self, thread: int) -> None:
        number = 0
        while not self._stopping.is_set():
            texts = [f"{thread}-{number + place}" for place in range(20)]
            number += 20
            futures = [(text, self._log.append(thread % PARTITIONS, small(text))) for text in texts]
            for text, future in futures:
                self._remember(text, future)

    def _remember(self, text: str, future: Future[Appended]) -> None:
        try:
            appended = future.result(OUTAGE_S)
        except LogUnavailableError:
            with self._changed:
                self.failed.add(text)
                self._changed.notify_all()
        else:
            with self._changed:
                self.acknowledged[text] = appended
                self._changed.notify_all()


def check(log: KafkaLog, writers: Writers) -> None:
    """All that was acknowledged is in the log at its place, once; nothing is there that nobody wrote; orders hold."""
    bounds = log.bounds(range(PARTITIONS))
    with opened(log, dict.fromkeys(range(PARTITIONS), 0)) as reader:
        found = read(reader, {partition: bound.end for partition, bound in bounds.items()})
    records = [record for partition in found for record in found[partition]]
    places = {(record.value or b"").decode(): (record.partition, record.offset) for record in records}
    acknowledged = {text: (one.partition, one.offset) for text, one in writers.acknowledged.items()}
    times = {(record.partition, record.offset): record.timestamp_ms for record in records}
    in_log = [text for text in values(records) if text in acknowledged]
    assert len(in_log) == len(acknowledged)
    assert {text: places[text] for text in acknowledged} == acknowledged
    assert all(times[one.partition, one.offset] == one.timestamp_ms for one in writers.acknowledged.values())
    assert set(places) <= set(acknowledged) | writers.failed
    _check_orders(writers)


def _check_orders(writers: Writers) -> None:
    by_thread: dict[str, list[tuple[int, int]]] = {}
    for text, one in writers.acknowledged.items():
        thread, number = text.split("-")
        by_thread.setdefault(thread, []).append((int(number), one.offset))
    for numbered in by_thread.values():
        offsets = [offset for _, offset in sorted(numbered)]
        assert offsets == sorted(offsets)


def reader_goes_on(reader: LogReader, *, past: int) -> list[Record]:
    """Polls partition 0 over an outage until the position is past an offset; gaps and repeats are failures."""
    found: list[Record] = []
    deadline = monotonic() + OUTAGE_S
    while not found or found[-1].offset < past:
        assert monotonic() < deadline
        with suppress(LogUnavailableError):
            for batch in reader.poll(timeout_ms=200, records_max=1_000, bytes_max=8 * 1024 * 1024):
                found.extend(batch.records)
    assert [record.offset for record in found] == list(range(found[0].offset, found[-1].offset + 1))
    return found


def test_a_restart_under_load(log: KafkaLog, own_kafka_broker: Broker) -> None:
    with opened(log, {0: 0}) as reader, Writers(log, 4) as writers:
        writers.wait_for_acknowledgements(500)
        own_kafka_broker.restart()
        writers.wait_for_acknowledgements(500)
        end = max(one.offset for one in writers.acknowledged.copy().values() if one.partition == 0)
        assert reader_goes_on(reader, past=end)[0].offset == 0
    check(log, writers)


def test_sigkill_under_load(log: KafkaLog, own_kafka_broker: Broker) -> None:
    with opened(log, {0: 0}) as reader, Writers(log, 4) as writers:
        for _ in range(2):
            writers.wait_for_acknowledgements(500)
            own_kafka_broker.kill()
            writers.wait_for_failures(20)
            own_kafka_broker.restart()
            writers.wait_for_acknowledgements(500)
        end = max(one.offset for one in writers.acknowledged.copy().values() if one.partition == 0)
        assert reader_goes_on(reader, past=end)[0].offset == 0
    check(log, writers)


def test_a_broker_that_hangs(log: KafkaLog, own_kafka_broker: Broker) -> None:
    append(log, 0, small("before"))
    with opened(log, {0: 1}) as reader:
        assert not reader.poll(timeout_ms=200, records_max=10, bytes_max=1_000)
        own_kafka_broker.pause()
        try:
            begun = monotonic()
            futures = [log.append(0, small(f"hanging-{number}")) for number in range(5)]
            assert monotonic() - begun < DELIVERY_TIMEOUT_MS / 1000, "append does not wait"
            for future in futures:
                with pytest.raises(LogUnavailableError):
                    future.result(OUTAGE_S)
            # Now there is no producer: what is queued fails as well.
            with pytest.raises(LogUnavailableError):
                log.append(0, small("queued")).result(OUTAGE_S)
            with pytest.raises(LogUnavailableError):
                log.bounds([0])
            with pytest.raises(LogUnavailableError):
                log.describe()
            with pytest.raises(LogUnavailableError):
                deadline = monotonic() + OUTAGE_S
                while monotonic() < deadline:
                    assert not reader.poll(timeout_ms=200, records_max=10, bytes_max=1_000)
        finally:
            own_kafka_broker.resume()
        appended = None
        deadline = monotonic() + OUTAGE_S
        while appended is None and monotonic() < deadline:
            with suppress(LogUnavailableError):
                appended = log.append(0, small("after")).result(OUTAGE_S)
        assert appended is not None
        found = values(reader_goes_on(reader, past=appended.offset))
    assert found[-1] == "after"
    assert "queued" not in found, "a record that failed in the queue is never sent"


def test_no_broker_at_the_start_of_a_reader_and_of_an_append(log: KafkaLog, own_kafka_broker: Broker) -> None:
    own_kafka_broker.kill()
    with opened(log, {0: 0}) as reader:
        with pytest.raises(LogUnavailableError):
            reader.poll(timeout_ms=200, records_max=10, bytes_max=1_000)
        with pytest.raises(LogUnavailableError):
            log.append(0, small("never")).result(OUTAGE_S)
        waiting = log.append(0, small("waits"))
        log.close()
        with pytest.raises(LogUnavailableError):
            waiting.result(WAIT_S)
