"""The client of the commands: CloudEvents as headers, problems as errors."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

import httpx
import pytest

from kvfold.deploy.http_client import KvfoldClient, RefusedError, ServerAwayError, event_headers
from kvfold.deploy.scopes import key_url
from kvfold.http.query_strings import parse_query
from kvfold.producers.cloudevent_http import from_binary

IDENTITY = "0197a2b4-0000-7000-8000-000000000001"


def attributes(**more: str) -> dict[str, str]:
    return {
        "specversion": "1.0",
        "type": "kvfold.deployment.put.v1",
        "source": "/kvfold/cli",
        "id": IDENTITY,
        "partitionkey": "d:dep",
        "kvnamespace": "user",
        **more,
    }


def client(handle: Callable[[httpx.Request], httpx.Response]) -> KvfoldClient:
    return KvfoldClient("http://kvfold.test", transport=httpx.MockTransport(handle))


@pytest.mark.row("X14")
@pytest.mark.parametrize(
    "key",
    ["plain", "a b", '"quoted"', "100%", "%2F", "naïve", "🚀", " both ends ", "a\\b", ",;=", "שלום", "'"],
)
def test_a_key_in_a_header_is_read_as_it_was(key: str) -> None:
    headers = httpx.Headers(event_headers(attributes(subject=key)))
    mutation = from_binary([(name.lower(), value) for name, value in headers.raw], b"value")
    assert (mutation.subject, mutation.scope, mutation.namespace) == (key, "d:dep", "user")
    assert mutation.body == b"value"


def test_a_decision_that_did_not_apply_is_an_answer() -> None:
    problem = {
        "status": 409,
        "code": "version-conflict",
        "detail": "it is at 7",
        "version": 7,
        "position": "3:9",
        "mutation_id": IDENTITY,
    }
    with client(lambda request: httpx.Response(409, json=problem)) as asked:
        decision = asked.mutate(attributes(subject="k"), b"")
    assert decision == {
        "id": IDENTITY,
        "status": "conflict",
        "code": "version-conflict",
        "detail": "it is at 7",
        "version": 7,
        "position": "3:9",
    }


def test_a_refusal_at_the_door_is_an_error_with_its_code() -> None:
    problem = {"status": 400, "code": "invalid-key", "detail": "the key holds a control character"}
    with (
        client(lambda request: httpx.Response(400, json=problem)) as asked,
        pytest.raises(RefusedError, match="control character") as refused,
    ):
        asked.mutate(attributes(subject="k"), b"")
    assert (refused.value.code, refused.value.status) == ("invalid-key", 400)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]"])
def test_an_answer_that_is_no_problem_document_is_an_error_too(body: bytes) -> None:
    with client(lambda request: httpx.Response(502, content=body)) as asked, pytest.raises(ServerAwayError):
        asked.get("/v1/anything")


def test_no_answer_may_be_asked_again() -> None:
    def cut(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("cut")

    with client(cut) as asked, pytest.raises(ServerAwayError) as away:
        asked.get("/v1/anything")
    assert away.value.retryable


def test_a_redirect_is_never_followed() -> None:
    moved = httpx.Response(307, headers={"location": "http://elsewhere.test/"})
    with client(lambda request: moved) as asked, pytest.raises(RefusedError):
        asked.get("/v1/anything")


@pytest.mark.row("X8")
@pytest.mark.parametrize("key", ["..", "", "a/./+b", "%2B", "ü&="])
def test_parameters_go_beside_a_key_in_the_query(key: str) -> None:
    asked_for: list[httpx.URL] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked_for.append(request.url)
        return httpx.Response(200)

    with client(handle) as asked:
        asked.get(key_url("/v1/instances/i/kv", key), as_of="2026-01-31T12:00:00+01:00", limit=None)
    query = parse_query(asked_for[0].query, {"as_of", "key"})
    found = query.get("key", unquote(asked_for[0].raw_path.split(b"/kv/")[-1].split(b"?")[0].decode()))
    assert (query["as_of"], found) == ("2026-01-31T12:00:00+01:00", key)
