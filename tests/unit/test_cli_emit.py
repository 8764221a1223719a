"""`kvfold emit` without a server: lines as they come, batches in order, repeats until there is an outcome."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
import pytest

from kvfold.deploy.emitting import BATCH_EVENTS_MAX, Emitted, Outcome, emit_lines
from kvfold.deploy.http_client import KvfoldClient, ServerAwayError
from kvfold.deploy.lines import LINE_BYTES_MAX, Line, Pause, read_lines
from kvfold.deploy.stopping import StopRequest

Answer = Callable[[list[dict[str, Any]]], httpx.Response]


def event(number: int) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "type": "kvfold.deployment.put.v1",
        "source": "/test",
        "id": str(UUID(int=number)),
        "partitionkey": "d:dep",
        "kvnamespace": "user",
        "subject": f"key-{number}",
        "datacontenttype": "text/plain",
        "data": "value",
    }


def lines(*texts: bytes) -> list[Line | Pause]:
    return [Line(number, text) for number, text in enumerate(texts, 1)]


def events(count: int) -> list[Line | Pause]:
    return lines(*(json.dumps(event(number)).encode() for number in range(count)))


def applied(batch: list[dict[str, Any]]) -> httpx.Response:
    return httpx.Response(200, json=[{"id": one["id"], "status": "applied", "version": 1} for one in batch])


class Server:
    """Answers batches by one function after the other, the last one for ever, and keeps what it was sent."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.batches: list[list[str | None]] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        batch = json.loads(request.content)
        self.batches.append([one.get("subject") for one in batch])
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer(batch)

    @contextmanager
    def client(self) -> Iterator[KvfoldClient]:
        with KvfoldClient("http://kvfold.test", transport=httpx.MockTransport(self.handle)) as client:
            yield client


def emit(
    server: Server, given: list[Line | Pause], *, patience_s: float = 60.0
) -> tuple[list[Outcome], Emitted]:
    told: list[Outcome] = []
    with server.client() as client:
        emitted = emit_lines(given, client, StopRequest(), tell=told.append, patience_s=patience_s)
    return told, emitted


def test_every_line_has_an_outcome_in_order() -> None:
    server = Server(applied)
    told, emitted = emit(server, events(BATCH_EVENTS_MAX + 1))
    assert [one.line for one in told] == list(range(1, BATCH_EVENTS_MAX + 2))
    assert [len(batch) for batch in server.batches] == [BATCH_EVENTS_MAX, 1]
    assert emitted.is_all_applied
    assert emitted.last_line == BATCH_EVENTS_MAX + 1


def test_lines_whose_order_matters_never_share_a_batch() -> None:
    put_a, put_b = {**event(1), "subject": "a"}, {**event(2), "subject": "b"}
    again = {**event(3), "subject": "a"}
    undeployed = {name: event(4)[name] for name in ("specversion", "source", "id", "partitionkey")}
    undeployed["type"] = "kvfold.deployment.undeployed.v1"
    elsewhere = {**event(5), "partitionkey": "d:other", "subject": "a"}
    after = {**event(6), "subject": "c"}
    server = Server(applied)
    emit(
        server,
        lines(*(json.dumps(one).encode() for one in (put_a, put_b, again, undeployed, elsewhere, after))),
    )
    assert server.batches == [["a", "b"], ["a"], [None, "a"], ["c"]]


def test_a_pause_in_the_input_sends_what_came() -> None:
    first, second = events(2)
    server = Server(applied)
    emit(server, [first, Pause(), second])
    assert [len(batch) for batch in server.batches] == [1, 1]


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        b'"text"',
        b"\xff",
        json.dumps({**event(1), "id": "7"}).encode(),
        json.dumps({**event(1), "kvexpect": "absent"}).encode(),
        json.dumps({**event(1), "kvexpected": "version: 1"}).encode(),
        json.dumps({**event(1), "data": float("nan")}).encode(),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_sent(text: bytes) -> None:
    good = json.dumps(event(2)).encode()
    told, emitted = emit(Server(applied), lines(good, text, good))
    bad = [one for one in told if one.status != "applied"]
    assert [(one.line, one.status) for one in bad] == [(2, "invalid")]
    assert "a line is one CloudEvent in JSON" in bad[0].facts["detail"]
    assert not emitted.is_all_applied
    assert emitted.counts == {"applied": 2, "invalid": 1}


def test_conflicts_and_rejections_are_outcomes() -> None:
    def decided(batch: list[dict[str, Any]]) -> httpx.Response:
        statuses = ("conflict", "rejected", "applied")
        return httpx.Response(
            200, json=[{"id": one["id"], "status": s} for one, s in zip(batch, statuses, strict=True)]
        )

    _, emitted = emit(Server(decided), events(3))
    assert emitted.counts == {"applied": 1, "conflict": 1, "rejected": 1}
    assert not emitted.is_all_applied


def away(batch: list[dict[str, Any]]) -> httpx.Response:
    return httpx.Response(503, json={"code": "log-unavailable", "detail": "no broker answers"})


def cut(batch: list[dict[str, Any]]) -> httpx.Response:
    raise httpx.ReadError("cut")


@pytest.mark.row("X4")
def test_a_lost_answer_is_asked_for_again_with_the_same_ids() -> None:
    server = Server(cut, away, applied)
    _, emitted = emit(server, events(3))
    assert emitted.counts == {"applied": 3}
    assert server.batches == 3 * [["key-0", "key-1", "key-2"]]


def test_only_what_has_no_outcome_is_sent_again() -> None:
    def half(batch: list[dict[str, Any]]) -> httpx.Response:
        return httpx.Response(
            200,
            json=[
                {"id": one["id"], "status": "pending" if one["subject"] == "key-1" else "applied"}
                for one in batch
            ],
        )

    server = Server(half, applied)
    told, emitted = emit(server, events(3))
    assert server.batches == [["key-0", "key-1", "key-2"], ["key-1"]]
    assert [one.line for one in told] == [1, 3, 2]
    assert emitted.counts == {"applied": 3}


def test_a_batch_that_is_refused_is_sent_line_by_line() -> None:
    def refuse_two(batch: list[dict[str, Any]]) -> httpx.Response:
        if any(one["subject"] == "key-1" for one in batch):
            return httpx.Response(413, json={"code": "too-large", "detail": "too large"})
        return applied(batch)

    told, _ = emit(Server(refuse_two), events(3))
    assert [(one.line, one.status) for one in told] == [(1, "applied"), (2, "invalid"), (3, "applied")]


def test_patience_ends() -> None:
    with pytest.raises(ServerAwayError, match="no broker answers"):
        emit(Server(away), events(1), patience_s=0)


def test_lines_are_given_as_they_come() -> None:
    read, write = os.pipe()
    found = read_lines(read, StopRequest())
    os.write(write, b"one\n\n  \ntw")
    assert next(found) == Line(1, b"one")
    assert next(found) == Pause()
    os.write(write, b"o\nthree")
    assert next(found) == Line(4, b"two")
    os.close(write)
    assert list(found) == [Line(5, b"three")]
    os.close(read)


def test_a_stop_ends_the_wait_for_more() -> None:
    read, write = os.pipe()
    stop = StopRequest()
    found = read_lines(read, stop)
    assert next(found) == Pause()
    stop.set()
    assert list(found) == []
    os.close(read)
    os.close(write)


def test_a_line_that_is_too_long_is_cut_and_the_next_one_is_whole() -> None:
    read, write = os.pipe()

    def fill() -> None:
        with os.fdopen(write, "wb") as pipe:
            pipe.write(b"x" * (LINE_BYTES_MAX + 10) + b"\n" + b"next\n")

    thread = threading.Thread(target=fill)
    thread.start()
    found = [one for one in read_lines(read, StopRequest()) if isinstance(one, Line)]
    thread.join()
    os.close(read)
    assert [(one.number, len(one.text), one.is_cut) for one in found] == [
        (1, LINE_BYTES_MAX, True),
        (2, 4, False),
    ]
