"""The client of instances on a real log, projector and Postgres: typed values, waits, lists, bulk prunes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from kvfold.log.postgres import PostgresLog
from kvfold.producers import mutations
from kvfold.producers.orchestration import BulkPruned, OrchestrationClient, StoredValueError
from kvfold.producers.producer import Producer
from kvfold.reads.executor import Reader, read_pool
from kvfold.reads.query import Query, Read
from kvfold.reads.waiting import Waiter
from kvfold.schemas.errors import InvalidError, KvfoldError, LogUnavailableError, StoreUnavailableError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.names import orchestration_scope
from kvfold.schemas.orchestration import (
    Event,
    KeyValueSet,
    OrchestrationCompleted,
    OrchestrationContinuedAsNew,
)
from kvfold.schemas.position import Position
from kvfold.schemas.strict_json import decode_json
from support.kvfold_process import wait_until
from support.projectors import postgres_log, running_projector

__all__: list[str] = []

pytestmark = pytest.mark.postgres

T = TypeVar("T")
NEXT = OrchestrationContinuedAsNew(kind="OrchestrationContinuedAsNew")
DONE = OrchestrationCompleted(kind="OrchestrationCompleted")


def put(key: str, value: str) -> KeyValueSet:
    return KeyValueSet(kind="KeyValueSet", key=key, value=value)


class CountingReader:
    """Says how often it was asked."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.count = 0

    def read(self, query: Query[T]) -> Read[T]:
        self.count += 1
        return self._reader.read(query)


class PruningProducer(Producer):
    """Keeps the bodies of the prunes that it hands to the log; after so many the log is away."""

    def __init__(self, stack: Stack, *, prunes_max: int = 1_000) -> None:
        super().__init__(stack.log, stack.waiter, source="/tests")
        self._prunes_max = prunes_max
        self.pruned: list[dict[str, Any]] = []

    def send(self, mutation: Mutation) -> tuple[str, Future[Position]]:
        if len(self.pruned) == self._prunes_max:
            raise LogUnavailableError("the log is away")
        assert mutation.type == "kvfold.orchestration.executions-pruned.v1" and mutation.body is not None
        self.pruned.append(decode_json(mutation.body))
        return super().send(mutation)


class Stack:
    """A log, a reader and a waiter, with the clients over them."""

    def __init__(self, dsn: str, parts: ExitStack) -> None:
        self.dsn = dsn
        self.log: PostgresLog = parts.enter_context(postgres_log(dsn))
        pool = parts.enter_context(read_pool(dsn, size_max=4))
        self.reader = Reader(pool)
        parts.callback(self.reader.close)
        self.waiter = Waiter(dsn)
        parts.callback(self.waiter.close)
        self.producer = Producer(self.log, self.waiter, source="/tests")
        self.client = OrchestrationClient(self.producer, self.reader)

    def impatient(self) -> OrchestrationClient:
        """A client that fails where it would have to wait: its producer does not wait for the projection."""
        return OrchestrationClient(Producer(self.log, source="/tests"), self.reader)

    def external(self, instance_id: str, *events: Event) -> None:
        """An instance whose first execution did this."""
        self.client.start(instance_id, "n", mode="external")
        if events:
            self.client.append_events(instance_id, 1, events)

    def executions(self, instance_id: str, count: int) -> list[int]:
        """An instance whose `count` executions ended, each after it wrote a key, and went on; when they ended."""
        self.external(instance_id)
        ended = []
        for number in range(1, count + 1):
            self.client.append_events(instance_id, number, [put(f"k{number}", ""), NEXT])
            view = self.client.instance(instance_id)
            assert view is not None
            ended.append(view.updated_ms)
        return ended


@pytest.fixture
def stack(postgres_dsn: str) -> Iterator[Stack]:
    with ExitStack() as parts:
        stack = Stack(postgres_dsn, parts)
        parts.enter_context(running_projector(stack.log, postgres_dsn))
        yield stack


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


# --- typed values ---


class Point(BaseModel):
    x: int
    y: int = 0


@pytest.mark.row("O8")
def test_typed_values(stack: Stack) -> None:
    stack.external("i", put("point", '{"x":3}'), put("list", "[1,2]"), put("text", '"t"'), put("odd", "{"))
    client = stack.client
    assert client.get_value_typed("i", "point", Point) == Point(x=3)
    assert client.get_value_typed("i", "list", list[int]) == [1, 2]
    assert client.get_value_typed("i", "text", str) == "t"
    assert client.get_value_typed("i", "absent", Point) is None
    assert client.get_value_typed("nobody", "point", Point) is None


@pytest.mark.row("O8")
def test_a_value_of_another_type_is_named_and_not_shown(stack: Stack) -> None:
    stored = ["{", "", "secret-ish", '{"x":"secret-ish"}', "[]", '"secret-ish"']
    stack.external("i", *[put(str(number), text) for number, text in enumerate(stored)])
    for number in range(len(stored)):
        with pytest.raises(StoredValueError, match=f"the value of '{number}' is no Point") as caught:
            stack.client.get_value_typed("i", str(number), Point)
        assert caught.value.code == "stored-value" and "secret-ish" not in str(caught.value)


@pytest.mark.row("O8")
def test_a_store_that_is_away_is_an_error_and_never_an_absent_value(
    own_postgres_server: EmbeddedPostgres, threads: ThreadPoolExecutor
) -> None:
    with ExitStack() as parts:
        stack = Stack(own_postgres_server.dsn, parts)
        with running_projector(stack.log, stack.dsn):
            stack.external("i", put("k", "1"))
            assert stack.client.get_value("i", "k") == "1"
        own_postgres_server.stop("immediate")
        client = stack.client
        asked: list[Future[object]] = [
            threads.submit(client.get_value, "i", "k"),
            threads.submit(client.get_value_typed, "i", "k", int),
            threads.submit(client.snapshot, "i"),
            threads.submit(client.instance, "i"),
            threads.submit(client.wait, "i", 60),
            threads.submit(client.wait_for_value, "i", "other", 60),
            threads.submit(lambda: next(client.list())),
            threads.submit(client.prune_many),
        ]
        for future in asked:
            with pytest.raises(StoreUnavailableError):
                future.result(60)


# --- waiting ---


@pytest.mark.row("O8")
def test_waits_end_at_once_where_nothing_will_come(stack: Stack) -> None:
    stack.external("over", put("k", "last"), DONE)
    client = stack.impatient()
    assert client.wait_for_value("nobody", "k", 3_600) is None
    assert client.wait_for_value("over", "absent", 3_600) is None
    assert client.wait_for_value("over", "k", 3_600, accept=lambda value: value == "other") is None
    assert client.wait_for_value("over", "k", 3_600) == "last"
    assert client.wait("nobody", 3_600) is None
    view = client.wait("over", 3_600)
    assert view is not None and view.status == "Completed"
    with pytest.raises(KvfoldError, match="does not wait"):
        stack.external("goes on")
        client.wait("goes on", 3_600)


@pytest.mark.row("O8")
def test_a_value_that_is_there_is_given_without_waiting(stack: Stack) -> None:
    stack.external("i", put("k", ""))
    client = stack.impatient()
    assert client.wait_for_value("i", "k", 3_600) == ""
    assert client.wait_for_value("i", "k", 0) == ""
    assert client.wait_for_value("i", "k", -1) == ""


@pytest.mark.row("O8")
def test_a_wait_looks_again_only_when_its_own_partition_has_moved(
    stack: Stack, threads: ThreadPoolExecutor
) -> None:
    stack.external("i")
    reader = CountingReader(stack.reader)
    client = OrchestrationClient(stack.producer, reader)
    waiting = threads.submit(client.wait_for_value, "i", "k", 60)
    wait_until(lambda: reader.count == 1 and stack.waiter.waiting_count > 0, what=lambda: "nobody waits")
    own = stack.producer.partition_of(orchestration_scope("i"))
    others = [f"d:{n}" for n in range(20) if stack.producer.partition_of(f"d:{n}") != own]
    for scope in others * 3:
        stack.producer.execute(mutations.deployment_put(scope, "user", "k", b""))
    assert reader.count == 1 and not waiting.done()
    stack.client.append_events("i", 1, [put("k", "there")])
    assert waiting.result(60) == "there"


@pytest.mark.row("O8")
def test_a_wait_for_a_value_goes_on_until_it_is_accepted(stack: Stack, threads: ThreadPoolExecutor) -> None:
    stack.external("i", put("n", "0"))
    waiting = threads.submit(stack.client.wait_for_value, "i", "n", 60, accept=lambda value: int(value) >= 3)
    for number in range(1, 5):
        stack.client.append_events("i", 1, [put("n", str(number))])
    assert waiting.result(60) in ("3", "4")


@pytest.mark.row("O8")
def test_waits_that_are_under_way_end_with_the_instance(stack: Stack, threads: ThreadPoolExecutor) -> None:
    ends: list[Callable[[], None]] = [
        lambda: stack.client.append_events("i", 1, [DONE]),
        lambda: stack.client.delete_instance("i"),
    ]
    for ended in ends:
        stack.external("i")
        value = threads.submit(stack.client.wait_for_value, "i", "k", 3_600)
        view = threads.submit(stack.client.wait, "i", 3_600)
        wait_until(lambda: stack.waiter.waiting_count >= 2, what=lambda: "nobody waits")
        ended()
        assert value.result(60) is None
        found = view.result(60)
        assert found is None or found.status == "Completed"
        if found is not None:
            stack.client.delete_instance("i")


def test_a_wait_gives_what_there_is_when_the_time_is_over(stack: Stack) -> None:
    stack.external("i", put("k", "1"))
    view = stack.client.wait("i", 0.05)
    assert view is not None and view.status == "Running" and view.kv["k"].value == "1"
    assert stack.client.wait_for_value("i", "k", 0.05, accept=lambda value: value == "2") is None


# --- lists ---


@pytest.mark.row("O27")
def test_instances_are_listed_by_pages_with_own_writes(stack: Stack) -> None:
    names = ["a", "a/1", "a%", "a_", "b", "ä", "🦊", "Z", "a" * 256]
    for name in names:
        # Not waited for: a list covers them all the same.
        scope = orchestration_scope(name)
        stack.producer.append(mutations.orchestration_started(scope, "n", mode="external"))
    for page_size in (1, 2, 1_024):
        found = [item.instance_id for item in stack.client.list(page_size=page_size)]
        assert found == sorted(names, key=str.encode)
    assert [item.instance_id for item in stack.client.list(prefix="a_")] == ["a_"]
    stack.client.append_events("b", 1, [DONE])
    assert [item.instance_id for item in stack.client.list(status="Completed", page_size=1)] == ["b"]
    assert len(list(stack.client.list(status="Running", page_size=2))) == len(names) - 1
    assert list(stack.client.list(status="Failed")) == []


@pytest.mark.row("O27")
def test_a_list_loses_none_and_repeats_none_while_others_come_and_go(stack: Stack) -> None:
    stays = [f"i{number:02}" for number in range(20)]
    for name in stays:
        stack.external(name)
    seen = []
    for number, item in enumerate(stack.client.list(page_size=3)):
        seen.append(item.instance_id)
        if number < 10:
            stack.external(f"{item.instance_id}-more")
            stack.external(f"h{number}")
    assert [name for name in seen if name in stays] == stays
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda client: client.list(status="Ended"), "malformed-status"),
        (lambda client: client.list(prefix="\x00"), "malformed-prefix"),
        (lambda client: client.list(prefix="\ud800"), "malformed-prefix"),
        (lambda client: client.list(page_size=0), "malformed-limit"),
        (lambda client: client.list(page_size=1_025), "malformed-limit"),
        (lambda client: client.prune_many(keep_last=0), "malformed-keep-last"),
        (lambda client: client.prune_many(limit=0), "malformed-limit"),
        (lambda client: client.prune_many(limit=2**31), "malformed-limit"),
        (lambda client: client.prune_many(prefix="a" * 257), "malformed-prefix"),
        (lambda client: client.prune_many(older_than=datetime(2026, 1, 1)), "malformed-older-than"),
        (lambda client: client.wait_for_value("i", "\x00", 0), "invalid-key"),
        (lambda client: client.wait_for_value("", "k", 0), "malformed-name"),
        (lambda client: client.get_value_typed("i", "\x00", int), "invalid-key"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_asked(
    ask: Callable[[OrchestrationClient], object], code: str
) -> None:
    class Nobody:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    nobody: Any = Nobody()
    with pytest.raises(InvalidError) as caught:
        ask(OrchestrationClient(nobody, nobody))
    assert caught.value.code == code


# --- bulk prunes ---


@pytest.mark.row("O15")
def test_a_bulk_prune_names_the_executions_one_by_one(stack: Stack) -> None:
    stack.executions("a", 4)
    stack.executions("b", 1)
    stack.executions("other", 3)
    stack.external("a-new")
    producer = PruningProducer(stack)
    client = OrchestrationClient(producer, stack.reader)
    assert client.prune_many(prefix="a", keep_last=2) == BulkPruned(1, 3, None)
    assert client.snapshot("a") == {"k4": ""}
    assert client.prune_many() == BulkPruned(3, 1 + 1 + 3, None)
    assert client.snapshot("a") == client.snapshot("b") == client.snapshot("other") == {}
    assert client.prune_many() == BulkPruned(0, 0, None)
    assert [body["execution_ids"] for body in producer.pruned] == [[1, 2, 3], [4], [1], [1, 2, 3]]


@pytest.mark.row("O15")
def test_how_old_an_execution_is_tells_its_recorded_end(stack: Stack) -> None:
    ends = {name: stack.executions(name, 3) for name in ("a", "b")}
    bound_ms = ends["b"][1]
    older_than = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=bound_ms)
    expected = {name: sum(end < bound_ms for end in ended) for name, ended in ends.items()}
    assert 3 <= sum(expected.values()) <= 5
    pruned = stack.client.prune_many(older_than=older_than)
    assert pruned == BulkPruned(sum(count > 0 for count in expected.values()), sum(expected.values()), None)
    for name, count in expected.items():
        assert stack.client.snapshot(name) == {f"k{number}": "" for number in range(count + 1, 4)}


@pytest.mark.row("O15")
def test_a_bulk_prune_goes_on_where_its_limit_ended_it(stack: Stack) -> None:
    for name in ("a", "b", "c", "d", "e"):
        stack.executions(name, 2)
    first = stack.client.prune_many(limit=2, keep_values=True)
    assert first == BulkPruned(2, 4, "c")
    second = stack.client.prune_many(limit=2, keep_values=True, start=first.next_start)
    assert second == BulkPruned(2, 4, "e")
    assert stack.client.prune_many(limit=2, keep_values=True) == BulkPruned(1, 2, None)
    assert stack.client.snapshot("a") == {"k1": "", "k2": ""}


@pytest.mark.row("O15")
def test_a_bulk_prune_that_broke_off_is_repeated(stack: Stack) -> None:
    for name in ("a", "b", "c"):
        stack.executions(name, 2)
    breaking = OrchestrationClient(PruningProducer(stack, prunes_max=1), stack.reader)
    with pytest.raises(LogUnavailableError):
        breaking.prune_many()
    stack.client.prune_many()
    assert [stack.client.snapshot(name) for name in ("a", "b", "c")] == [{}, {}, {}]
    assert stack.client.prune_many() == BulkPruned(0, 0, None)


@pytest.mark.row("O15")
def test_an_instance_that_went_meanwhile_is_passed_over(stack: Stack) -> None:
    for name in ("gone", "made anew", "stays"):
        stack.executions(name, 1)

    class Reader(CountingReader):
        """Lets two instances go once the page is read."""

        def read(self, query: Query[T]) -> Read[T]:
            found = super().read(query)
            if self.count == 1:
                for name in ("gone", "made anew"):
                    stack.client.delete_instance(name)
                stack.external("made anew", put("k", "1"))
            return found

    client = OrchestrationClient(stack.producer, Reader(stack.reader))
    assert client.prune_many() == BulkPruned(1, 1, None)
    assert stack.client.snapshot("made anew") == {"k": "1"}
