"""The log in a topic while its broker restarts, dies, or hangs: nothing acknowledged is lost, nothing waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Final

import pytest

from conformance.log_contract import WAIT_S, append, opened, small, values
from conformance.log_load import OUTAGE_S, Writers, append_again, check_log, read_on
from kvfold.log.kafka import KafkaLog, KafkaSettings, create_topic
from kvfold.schemas.errors import LogUnavailableError

if TYPE_CHECKING:
    from support.broker import Broker

__all__: list[str] = []

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS: Final = 2
DELIVERY_TIMEOUT_MS: Final = 2_000


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


def test_a_restart_under_load(log: KafkaLog, own_kafka_broker: Broker) -> None:
    with opened(log, {0: 0}) as reader, Writers(log, threads=4, partition_count=PARTITIONS) as writers:
        writers.wait_for_acknowledgements(500)
        own_kafka_broker.restart()
        writers.wait_for_acknowledgements(500)
        assert read_on(reader, past=writers.end(0))[0].offset == 0
    check_log(log, writers, range(PARTITIONS))


@pytest.mark.row("D17")
def test_sigkill_under_load(log: KafkaLog, own_kafka_broker: Broker) -> None:
    with opened(log, {0: 0}) as reader, Writers(log, threads=4, partition_count=PARTITIONS) as writers:
        for _ in range(2):
            writers.wait_for_acknowledgements(500)
            failed = len(writers.failed)
            own_kafka_broker.kill()
            writers.wait_for_failures(20, since=failed)
            own_kafka_broker.restart()
            writers.wait_for_acknowledgements(500)
        assert read_on(reader, past=writers.end(0))[0].offset == 0
    check_log(log, writers, range(PARTITIONS))


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
        appended = append_again(log, 0, "after")
        found = values(read_on(reader, past=appended.offset))
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
