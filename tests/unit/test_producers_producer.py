"""The producer: what it appends, when its futures are done, and what it remembers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from uuid import UUID

import pytest

from kvfold.log.memory import AppendFault, MemoryLog
from kvfold.log.port import Appended as LogAppended
from kvfold.log.port import LogDescription
from kvfold.producers import mutations
from kvfold.producers.errors import AppendUnacknowledgedError
from kvfold.producers.gateway.writing import Sent, Undecided, send, write
from kvfold.producers.outcomes import Decided
from kvfold.producers.producer import Producer
from kvfold.reads.decisions import DecisionView
from kvfold.schemas.codec import decode
from kvfold.schemas.errors import (
    GoneError,
    InvalidError,
    LogUnavailableError,
    NotUpToPositionError,
    OutcomeUnknownError,
    PartitionPausedError,
    StoreUnavailableError,
    UnavailableError,
)
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.position import Position
from kvfold.schemas.record import NewRecord, Record

__all__: list[str] = []

SCOPE = "c:alice:capsule:notes"
SET = mutations.capsule_set(SCOPE, "key", b"value")
APPLIED = Decision(DecisionStatus.APPLIED, version=1)


class FakeWaiter:
    """Answers with what it is told: a decision, where it was made, or an error."""

    def __init__(
        self, answer: Decision | BaseException | None = APPLIED, first: Position | None = None
    ) -> None:
        self.answer = answer
        self.first = first
        self.asked: list[tuple[Position, float]] = []
        self.pending: list[Future[DecisionView]] = []

    def decision(self, position: Position, timeout_s: float) -> Future[DecisionView]:
        self.asked.append((position, timeout_s))
        future: Future[DecisionView] = Future()
        match self.answer:
            case None:
                self.pending.append(future)
            case Decision():
                future.set_result(found(self.first or position, self.answer))
            case _:
                future.set_exception(self.answer)
        return future

    def position_reached(self, positions: Mapping[int, int], timeout_s: float) -> Future[None]:
        raise NotImplementedError


def found(position: Position, decision: Decision) -> DecisionView:
    return DecisionView(position, SCOPE, None, SET.type, decision, 0)


class HangingLog(MemoryLog):
    """A log that takes records and never answers, until told to."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[Future[LogAppended]] = []

    def append(self, partition: int, record: NewRecord) -> Future[LogAppended]:
        self.pending.append(Future())
        return self.pending[-1]


class ClosingLog(MemoryLog):
    """A log that is closing: it refuses instead of answering later."""

    def append(self, partition: int, record: NewRecord) -> Future[LogAppended]:
        raise LogUnavailableError("the log is closed")


class AwayLog(MemoryLog):
    """A log whose server does not answer."""

    def describe(self) -> LogDescription:
        raise LogUnavailableError("nobody there")


def producer_of(log: MemoryLog | None = None, waiter: FakeWaiter | None = None) -> Producer:
    return Producer(log or MemoryLog(), waiter or FakeWaiter(), source="/tests")


def records_of(log: MemoryLog) -> list[Record]:
    reader = log.reader()
    reader.assign(dict.fromkeys(range(log.describe().partition_count), 0))
    batches = reader.poll(timeout_ms=0, records_max=1_000, bytes_max=10**9)
    return [record for batch in batches for record in batch.records]


@pytest.mark.row("X1")
def test_a_mutation_is_stamped_and_appended_to_its_partition() -> None:
    log = MemoryLog(partition_count=12)
    given_id = UUID("01920000-0000-7000-8000-000000000001")
    producer = Producer(
        log,
        FakeWaiter(),
        source="/tests",
        new_id=lambda: given_id,
        now=lambda: datetime(2026, 1, 31, 12, tzinfo=UTC),
    )
    appended = producer.append(SET)
    (record,) = records_of(log)
    assert appended.position == record.position
    mutation = decode(record)
    assert isinstance(mutation, Mutation)
    assert (mutation.id, mutation.source, mutation.time) == (
        str(given_id),
        "/tests",
        "2026-01-31T12:00:00.000Z",
    )
    assert (mutation.type, mutation.subject, mutation.body) == (SET.type, SET.subject, SET.body)
    assert appended.outcome.result(0) == Decided(str(given_id), APPLIED, appended.position)


def test_ids_are_uuids_of_version_7_and_given_ones_stay() -> None:
    producer = producer_of()
    first, second = producer.append(SET), producer.append(SET)
    assert first.mutation_id < second.mutation_id
    assert UUID(first.mutation_id).version == 7
    given = mutations.capsule_set(SCOPE, "key", b"", mutation_id=first.mutation_id)
    assert producer.append(given).mutation_id == first.mutation_id


@pytest.mark.row("X5")
def test_the_highest_acknowledged_offset_is_remembered_before_the_caller_knows() -> None:
    log = MemoryLog(partition_count=3, gap=lambda _partition, _offset: 1)
    producer = producer_of(log)
    assert producer.acknowledged(0) is None
    seen: list[bool] = []
    for n in range(30):
        submitted = producer.submit(mutations.deployment_put(f"d:{n}", "user", "k", b""))
        position = submitted.position.result(0)
        seen.append(producer.acknowledged(position.partition) == position.offset)
    assert all(seen)


def test_what_the_door_refuses_is_not_appended() -> None:
    log = MemoryLog()
    with pytest.raises(InvalidError) as caught:
        producer_of(log).submit(mutations.capsule_set(SCOPE, "", b""))
    assert caught.value.code == "invalid-key"
    with pytest.raises(UnavailableError):
        producer_of(log).execute(mutations.deployment_put("d:1", "user_secrets", "k", b"secret"))
    assert records_of(log) == []


def test_system_records_are_refused_unless_the_producer_is_an_operators() -> None:
    raised = Mutation("kvfold.system.format-raised.v1", "s:0", "", body=b'{"level":2}')
    with pytest.raises(InvalidError):
        producer_of().submit(raised)
    operator = Producer(MemoryLog(), FakeWaiter(), source="/tests", allow_system=True)
    assert operator.append(raised).position == Position(0, 0)


@pytest.mark.row("X4")
def test_a_repeat_gives_the_first_outcome_and_position() -> None:
    waiter = FakeWaiter(first=Position(0, 0))
    producer = producer_of(waiter=waiter)
    first = producer.append(SET)
    repeat = producer.execute(mutations.capsule_set(SCOPE, "key", b"value", mutation_id=first.mutation_id))
    assert repeat == Decided(first.mutation_id, APPLIED, Position(0, 0), repeated_at=Position(0, 1))


@pytest.mark.parametrize(
    "decision",
    [
        Decision(DecisionStatus.CONFLICT, "cas-mismatch", version=3),
        Decision(DecisionStatus.REJECTED, "quota", detail="full"),
    ],
)
def test_conflicts_and_rejections_are_values(decision: Decision) -> None:
    assert producer_of(waiter=FakeWaiter(decision)).execute(SET).decision == decision


@pytest.mark.parametrize("fault", list(AppendFault))
def test_a_log_that_does_not_acknowledge_names_the_mutation(fault: AppendFault) -> None:
    producer = producer_of(MemoryLog(fault=lambda _partition, _record: fault))
    with pytest.raises(AppendUnacknowledgedError) as caught:
        producer.append(SET)
    assert caught.value.code == "log-unavailable"
    assert caught.value.scope == SCOPE
    assert UUID(caught.value.mutation_id).version == 7
    submitted = producer.submit(SET)
    for future in (submitted.position, submitted.outcome):
        assert isinstance(future.exception(0), AppendUnacknowledgedError)
    assert producer.acknowledged(0) is None


def test_a_log_that_refuses_at_once_names_the_mutation() -> None:
    producer = producer_of(ClosingLog())
    with pytest.raises(AppendUnacknowledgedError):
        producer.submit(SET)
    written = asyncio.run(write(producer, SET, timeout_s=1.0))
    assert isinstance(written, Undecided)
    assert (written.position, written.error.code) == (None, "log-unavailable")


def test_a_log_that_never_answers_is_left_in_time() -> None:
    log = HangingLog()
    producer = producer_of(log)
    with pytest.raises(AppendUnacknowledgedError):
        producer.append(SET, timeout_s=0.01)
    # The late acknowledgement still counts for reads.
    log.pending[0].set_result(LogAppended(0, 7, 0))
    assert producer.acknowledged(0) == 7


@pytest.mark.parametrize(
    "error",
    [
        NotUpToPositionError("late"),
        StoreUnavailableError("away"),
        GoneError("trimmed"),
    ],
)
def test_an_outcome_that_is_not_known_names_id_and_position(error: Exception) -> None:
    producer = producer_of(waiter=FakeWaiter(error))
    with pytest.raises(OutcomeUnknownError) as caught:
        producer.execute(SET, timeout_s=0.01)
    assert caught.value.position == "0:0"
    assert UUID(caught.value.mutation_id).version == 7


def test_a_paused_partition_is_told_as_such() -> None:
    with pytest.raises(PartitionPausedError):
        producer_of(waiter=FakeWaiter(PartitionPausedError("log-diverged"))).execute(SET)


def test_a_producer_without_a_waiter_only_appends() -> None:
    log = MemoryLog()
    producer = Producer(log, source="/tests")
    appended = producer.append(SET)
    assert len(records_of(log)) == 1
    assert isinstance(appended.outcome.exception(0), OutcomeUnknownError)
    assert producer.send(SET)[1].result(0) == Position(0, 1)


def test_futures_cannot_be_cancelled() -> None:
    log = HangingLog()
    waiter = FakeWaiter(None)
    submitted = producer_of(log, waiter).submit(SET)
    assert not submitted.position.cancel()
    assert not submitted.outcome.cancel()
    log.pending[0].set_result(LogAppended(0, 0, 0))
    waiter.pending[0].set_result(found(Position(0, 0), APPLIED))
    assert submitted.outcome.result(0).decision == APPLIED


def test_many_threads_share_a_producer() -> None:
    log = MemoryLog()
    producer = producer_of(log)
    threads = [threading.Thread(target=lambda: [producer.append(SET) for _ in range(20)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.acknowledged(0) == 159
    assert (
        len({mutation.id for record in records_of(log) if isinstance(mutation := decode(record), Mutation)})
        == 160
    )


# --- the same from a coroutine ---


def test_a_write_awaits_its_decision() -> None:
    waiter = FakeWaiter()
    written = asyncio.run(write(producer_of(waiter=waiter), SET, timeout_s=8.0))
    assert isinstance(written, Decided)
    (asked,) = waiter.asked
    assert asked[0] == Position(0, 0)
    assert 7.0 < asked[1] <= 8.0


def test_a_write_without_a_decision_in_time_is_undecided() -> None:
    producer = producer_of(waiter=FakeWaiter(None))
    written = asyncio.run(write(producer, SET, timeout_s=5.0, outcome_timeout_s=0.01))
    assert isinstance(written, Undecided)
    assert written.position == Position(0, 0)
    assert written.error.code == "outcome-unknown"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotUpToPositionError("late"), "outcome-unknown"),
        (PartitionPausedError("stopped"), "partition-paused"),
    ],
)
def test_a_write_that_is_appended_and_not_decided_has_its_position(error: Exception, code: str) -> None:
    written = asyncio.run(write(producer_of(waiter=FakeWaiter(error)), SET, timeout_s=1.0))
    assert isinstance(written, Undecided)
    assert (written.position, written.error.code) == (Position(0, 0), code)


@pytest.mark.parametrize(
    "log", [HangingLog(), AwayLog(), MemoryLog(fault=lambda _partition, _record: AppendFault.ANSWER_LOST)]
)
def test_a_write_without_an_acknowledgement_has_its_id_and_no_position(log: MemoryLog) -> None:
    written = asyncio.run(write(producer_of(log), SET, timeout_s=0.05))
    assert isinstance(written, Undecided)
    assert written.position is None
    assert written.error.code == "log-unavailable"
    assert UUID(written.mutation_id).version == 7


def test_sending_waits_for_the_log_alone() -> None:
    waiter = FakeWaiter()
    sent = asyncio.run(send(producer_of(waiter=waiter), SET, timeout_s=1.0))
    assert isinstance(sent, Sent)
    assert sent.position == Position(0, 0)
    assert waiter.asked == []
