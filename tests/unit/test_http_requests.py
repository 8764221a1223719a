"""Strict headers, bodies with a limit, problem documents, and the app around them (dapr#2320)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from structlog.testing import capture_logs

from kvfold.http.app import REQUEST_FAILED, App
from kvfold.http.bodies import read_body
from kvfold.http.call import Call
from kvfold.http.headers import object_version
from kvfold.http.problems import BodyTooLargeError, problem_of_decision, problem_of_error, status_of_code
from kvfold.http.routes import Route
from kvfold.schemas.errors import (
    ConflictError,
    GoneError,
    InvalidError,
    KvfoldError,
    LogDivergedError,
    LogUnavailableError,
    NotUpToPositionError,
    OutcomeUnknownError,
    PartitionPausedError,
    RejectedError,
    StoreUnavailableError,
)
from kvfold.schemas.limits import BODY_DRAIN_BYTES_MAX
from kvfold.schemas.outcome import CONFLICT_CODES, REJECTION_CODES, Decision, DecisionStatus
from support.asgi_client import Answered, AsgiClient


def call_with(
    headers: Sequence[tuple[str, str]] = (), chunks: Sequence[bytes] = (), *, cut: bool = False
) -> tuple[Call, list[dict[str, Any]]]:
    messages = [
        {"type": "http.request", "body": chunk, "more_body": cut or index + 1 < len(chunks)}
        for index, chunk in enumerate(chunks)
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    scope: dict[str, Any] = {"type": "http", "method": "PUT", "headers": pairs}
    return Call(scope, receive, path={}, query={}), messages


@pytest.mark.row("D3")
@pytest.mark.parametrize(("text", "version"), [("0", 0), ("1", 1), ("42", 42), (str(2**63 - 1), 2**63 - 1)])
def test_a_version(text: str, version: int) -> None:
    assert object_version(call_with([("X-Object-Version", text)])[0]) == version


def test_no_version() -> None:
    assert object_version(call_with([("X-Other", "1")])[0]) is None


@pytest.mark.row("D3")
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "+1",
        "1.0",
        "1.5",
        "01",
        "00",
        " 1",
        "1 ",
        "1\t",
        "abc",
        "1e3",
        "0x1",
        "1,2",
        "٣",
        "²",
        "None",
        str(2**63),
        "9" * 40,
    ],
)
def test_a_malformed_version_is_never_unconditional(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        object_version(call_with([("X-Object-Version", text.encode().decode("latin-1"))])[0])
    assert caught.value.code == "malformed-version"


def test_a_repeated_version() -> None:
    with pytest.raises(InvalidError) as caught:
        object_version(call_with([("X-Object-Version", "1"), ("x-object-version", "1")])[0])
    assert caught.value.code == "malformed-version"


@pytest.mark.row("D4")
def test_bodies_up_to_the_limit() -> None:
    assert asyncio.run(read_body(call_with(chunks=[b""])[0], limit=0)) == b""
    assert asyncio.run(read_body(call_with(chunks=[b"ab", b"", b"c"])[0], limit=3)) == b"abc"


@pytest.mark.row("D4")
def test_an_over_long_body_is_drained() -> None:
    call, left = call_with(chunks=[b"ab", b"cd", b"e" * 1_000_000])
    with pytest.raises(BodyTooLargeError) as caught:
        asyncio.run(read_body(call, limit=3))
    assert not left
    assert not caught.value.closes_connection
    problem = problem_of_error(caught.value)
    assert (problem.status, problem.code, dict(problem.headers)) == (413, "too-large", {})


@pytest.mark.row("D4")
def test_beyond_eight_mebibytes_the_connection_closes() -> None:
    call, left = call_with(chunks=[b"a" * 1_048_576] * 20)
    with pytest.raises(BodyTooLargeError) as caught:
        asyncio.run(read_body(call, limit=3))
    assert len(left) == 20 - 9
    assert problem_of_error(caught.value).headers == {"Connection": "close"}


def test_a_body_announced_as_far_too_long_is_not_read() -> None:
    call, left = call_with([("Content-Length", str(BODY_DRAIN_BYTES_MAX + 1))], [b"a", b"b"])
    with pytest.raises(BodyTooLargeError):
        asyncio.run(read_body(call, limit=3))
    assert len(left) == 2


def test_a_client_that_goes_away() -> None:
    with pytest.raises(ClientDisconnect):
        asyncio.run(read_body(call_with(chunks=[b"a"], cut=True)[0], limit=3))


@pytest.mark.parametrize(
    ("error", "status", "code", "headers"),
    [
        (InvalidError("x", code="invalid-key"), 400, "invalid-key", {}),
        (InvalidError("x", code="malformed-anything"), 400, "malformed-anything", {}),
        (InvalidError("x", code="secret-and-volatile"), 400, "secret-and-volatile", {}),
        (RejectedError("x", code="quota"), 422, "quota", {}),
        (RejectedError("x", code="too-large"), 413, "too-large", {}),
        (ConflictError("x", version=4), 409, "version-conflict", {"X-Object-Version": "4"}),
        (GoneError("x"), 410, "gone", {}),
        (LogUnavailableError("x"), 503, "log-unavailable", {"Retry-After": "1"}),
        (NotUpToPositionError("x"), 503, "not-up-to-position", {"Retry-After": "1"}),
        (PartitionPausedError("x"), 503, "partition-paused", {}),
        (
            OutcomeUnknownError("x", mutation_id="m", position="1:2"),
            503,
            "outcome-unknown",
            {"Retry-After": "1"},
        ),
        (LogDivergedError("secret name"), 500, "internal", {}),
    ],
)
def test_errors_as_problems(error: KvfoldError, status: int, code: str, headers: dict[str, str]) -> None:
    problem = problem_of_error(error)
    assert (problem.status, problem.code, dict(problem.headers)) == (status, code, headers)
    document = json.loads(bytes(problem.response().body))
    assert {"type", "title", "status", "code", "detail"} <= document.keys()


def test_the_driver_s_words_are_not_passed_on() -> None:
    error = StoreUnavailableError("connection to server at db.internal, user admin failed")
    assert b"internal" not in bytes(problem_of_error(error).response().body)


def test_an_unknown_outcome_names_the_mutation() -> None:
    problem = problem_of_error(OutcomeUnknownError("x", mutation_id="m", position="1:2"))
    assert problem.members == {"mutation_id": "m", "position": "1:2"}


def test_every_code_of_a_decision_has_a_status() -> None:
    for code in CONFLICT_CODES:
        assert status_of_code(code) in (404, 409, 412), code
    for code in REJECTION_CODES:
        assert status_of_code(code) in (400, 413, 422), code


def test_a_refused_mutation_as_a_problem() -> None:
    conflict = Decision(DecisionStatus.CONFLICT, "version-conflict", version=4)
    problem = problem_of_decision(conflict, position="1:2", mutation_id="m")
    assert (problem.status, problem.headers["X-Object-Version"], problem.members["version"]) == (409, "4", 4)
    assert problem_of_decision(conflict, position="1:2", is_conditional=True).status == 412


async def _fails(_: Call) -> Response:
    raise RuntimeError("the value is hunter2")


async def _hello(_: Call) -> Response:
    return Response(b"hello", media_type="text/plain")


async def _streams(_: Call) -> Response:
    return StreamingResponse(iter([b"a", b"b"]))


def ask(method: str, path: str) -> Answered:
    routes = [
        Route("GET", "/fails", _fails, "", ""),
        Route("GET", "/hello", _hello, "", ""),
        Route("GET", "/streams", _streams, "", ""),
    ]
    with AsgiClient(App(routes)) as client:
        return client.request(method, path)


def test_a_fault_of_ours_is_500_and_says_nothing() -> None:
    with capture_logs() as logs:
        answered = ask("GET", "/fails")
    assert (answered.status, answered.code) == (500, "internal")
    assert b"hunter2" not in answered.body
    (event,) = [log for log in logs if log["event"] == REQUEST_FAILED]
    assert event["error"] == "RuntimeError"
    assert "hunter2" not in str(event)


@pytest.mark.parametrize("path", ["/hello", "/streams"])
def test_head_has_the_headers_of_get_and_no_body(path: str) -> None:
    get, head = ask("GET", path), ask("HEAD", path)
    assert (head.status, head.headers, head.body) == (get.status, get.headers, b"")


def test_not_found_and_not_allowed_are_problems() -> None:
    assert ask("GET", "/nowhere").code == "not-found"
    answered = ask("DELETE", "/hello")
    assert (answered.status, answered.code, answered.headers["allow"]) == (
        405,
        "method-not-allowed",
        "GET, HEAD",
    )
