"""What the capsule stores do when answers are lost and servers are away (rows C11, C15, X4)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest

from kvfold.log.port import Appended, Log
from kvfold.producers.capsule.errors import Unavailable
from kvfold.producers.capsule.log_store import LogKvStore
from kvfold.producers.capsule.store import PagedKvStore
from kvfold.producers.producer import Producer
from kvfold.reads.executor import Reader, read_pool
from kvfold.schemas.errors import LogUnavailableError
from kvfold.schemas.record import NewRecord
from support.capsule_stores import ALICE, http_store, log_store
from support.projectors import postgres_log, running_projector

__all__: list[str] = []

pytestmark = pytest.mark.postgres


class ForgetfulLog:
    """Appends every record, and loses the next `lost` answers."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.lost = 0

    def append(self, partition: int, record: NewRecord) -> Future[Appended]:
        done = self._log.append(partition, record)
        if self.lost == 0:
            return done
        self.lost -= 1
        forgotten: Future[Appended] = Future()
        done.add_done_callback(lambda _: forgotten.set_exception(LogUnavailableError("the answer was lost")))
        return forgotten

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class ForgetfulTransport(httpx.BaseTransport):
    """Passes every request on, and loses the next `lost` answers."""

    def __init__(self, transport: httpx.BaseTransport) -> None:
        self._transport = transport
        self.lost = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._transport.handle_request(request)
        if self.lost == 0:
            return answer
        self.lost -= 1
        raise httpx.ReadError("the answer was lost", request=request)


@dataclass
class Forgetful:
    """A store, and what loses its answers."""

    store: PagedKvStore
    between: ForgetfulLog | ForgetfulTransport


@pytest.fixture(params=["log", "http"])
def forgetful(request: pytest.FixtureRequest, postgres_dsn: str) -> Iterator[Forgetful]:
    with ExitStack() as parts:
        log = parts.enter_context(postgres_log(postgres_dsn))
        parts.enter_context(running_projector(log, postgres_dsn))
        if request.param == "log":
            lossy = ForgetfulLog(log)
            store, _ = parts.enter_context(log_store(cast(Log, lossy), postgres_dsn))
            yield Forgetful(store, lossy)
        else:
            between: list[ForgetfulTransport] = []

            def put_between(transport: httpx.BaseTransport) -> httpx.BaseTransport:
                between.append(ForgetfulTransport(transport))
                return between[0]

            over_http, _ = parts.enter_context(http_store(log, postgres_dsn, put_between))
            yield Forgetful(over_http, between[0])


@pytest.mark.row("C15")
@pytest.mark.row("X4")
def test_a_write_whose_answers_are_lost_is_applied_once_and_has_its_first_outcome(
    forgetful: Forgetful,
) -> None:
    store, between = forgetful.store, forgetful.between
    between.lost = 2
    assert store.compare_and_swap(ALICE, "k", None, b"1") is True
    between.lost = 2
    assert store.compare_and_swap(ALICE, "k", b"1", b"2") is True
    between.lost = 2
    assert store.compare_and_swap(ALICE, "k", b"1", b"3") is False
    between.lost = 2
    store.set(ALICE, "l", b"")
    assert store.list_keys(ALICE) == ["k", "l"]
    between.lost = 2
    assert store.delete(ALICE, "k") is True
    between.lost = 2
    assert store.clear_prefix(ALICE, "") == 1
    assert between.lost == 0


@pytest.mark.row("C11")
def test_a_write_whose_answers_are_all_lost_says_that_it_may_be_repeated(forgetful: Forgetful) -> None:
    forgetful.between.lost = 3
    with pytest.raises(Unavailable) as caught:
        forgetful.store.set(ALICE, "k", b"1")
    assert (caught.value.code, caught.value.retryable) == ("unknown", True)
    assert forgetful.between.lost == 0


@pytest.mark.row("C11")
def test_a_write_that_nobody_folds_is_unavailable_and_not_lost(postgres_dsn: str) -> None:
    with postgres_log(postgres_dsn) as log, log_store(log, postgres_dsn) as (store, _):
        with running_projector(log, postgres_dsn):
            store.set(ALICE, "k", b"1")
        with read_pool(postgres_dsn, size_max=1) as pool, closing(Reader(pool)) as reader:
            # Without a waiter nothing is waited for, so nothing here depends on time.
            hasty = LogKvStore(Producer(log, source="/tests"), reader)
            with pytest.raises(Unavailable, match="outcome-unknown"):
                hasty.set(ALICE, "k", b"2")
            with pytest.raises(Unavailable, match="not-up-to-position"):
                hasty.get(ALICE, "k")
        with running_projector(log, postgres_dsn):
            store.set(ALICE, "l", b"")  # of the same partition: all before it is folded, too
            assert store.get(ALICE, "k") == b"2"
