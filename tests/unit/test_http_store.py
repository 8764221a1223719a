"""The object store over HTTP: what goes out, what each answer becomes, and what is repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, repeat
from typing import Any
from uuid import UUID

import pytest

from kvfold.producers.deployment import (
    ConflictError,
    DeploymentObject,
    DeploymentValue,
    HttpStore,
    UnexpectedAnswerError,
)
from kvfold.schemas.errors import (
    ConfigurationError,
    InvalidError,
    KvfoldError,
    RejectedError,
    UnavailableError,
)
from support.scripted_server import LOST, Reply, ScriptedServer, unused_address

__all__: list[str] = []

_PUT = Reply(201, {"X-Object-Version": "1"})
_AGAIN = Reply(503, {"Retry-After": "1"}, b'{"code": "outcome-unknown", "detail": "later"}')


@contextmanager
def _serving(
    *replies: Reply, base: str = "", deployment_id: str = "d", **options: Any
) -> Iterator[tuple[ScriptedServer, HttpStore]]:
    """A server that answers in this order, the last reply for ever, and a store there."""
    script: Iterator[Reply] = chain(replies, repeat(replies[-1]))
    with (
        ScriptedServer(lambda asked: next(script)) as server,
        closing(HttpStore(server.url + base, deployment_id, **options)) as store,
    ):
        yield server, store


def _problem(status: int, code: str, **more: Any) -> Reply:
    version = {"X-Object-Version": str(more["version"])} if "version" in more else {}
    return Reply(status, version, json.dumps({"code": code, "detail": f"about {code}", **more}).encode())


def test_what_goes_out() -> None:
    replies = (Reply(200, {"X-Object-Version": "7"}, b"v"), _PUT, Reply(204))
    with _serving(*replies, base="/base/", deployment_id="dep 1/x", token="t0ken") as (server, store):
        assert store.get("user", "a/b c") == DeploymentValue(b"v", 7)
        assert store.put("user_secrets", "é", b"\x00value", expected=7) == 1
        store.delete("user", "k")
    get, put, delete = server.asked
    assert (get.method, get.target) == ("GET", "/base/deployments/dep%201%2Fx/kv/user/a/b%20c")
    assert put.target.endswith("/kv/user_secrets/%C3%A9") and put.body == b"\x00value"
    assert put.headers["x-object-version"] == "7"
    assert (delete.method, delete.headers["x-object-version"]) == ("DELETE", "0")
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer t0ken"}
    assert UUID(put.headers["idempotency-key"]) != UUID(delete.headers["idempotency-key"])
    assert server.connections == 1, "a connection is kept"


@pytest.mark.parametrize("key", [".", "..", "a/../b", "a//b", "/a", "a/", "//"])
def test_a_key_that_is_rewritten_on_the_way_goes_into_the_query(key: str) -> None:
    with _serving(Reply(404)) as (server, store):
        assert store.get("user", key) is None
    path, _, query = server.asked[0].target.partition("?")
    assert path == "/deployments/d/kv/user" and query.startswith("key=") and "/" not in query


@pytest.mark.parametrize(
    ("reply", "error", "code"),
    [
        (_problem(400, "invalid-namespace"), InvalidError, "invalid-namespace"),
        (_problem(413, "too-large"), InvalidError, "too-large"),
        (Reply(413), InvalidError, "too-large"),
        (_problem(422, "id-reused"), RejectedError, "id-reused"),
        (_problem(409, "version-conflict", version=4), ConflictError, "version-conflict"),
        (_problem(503, "encryption-key-missing"), UnavailableError, "encryption-key-missing"),
        (_problem(503, "partition-paused"), UnavailableError, "partition-paused"),
        (Reply(404), UnexpectedAnswerError, "unexpected-answer"),
        (Reply(401), UnexpectedAnswerError, "unexpected-answer"),
        (Reply(302, {"Location": "/elsewhere"}), UnexpectedAnswerError, "unexpected-answer"),
        (Reply(202, {"X-Object-Version": "1"}), UnexpectedAnswerError, "unexpected-answer"),
        (Reply(200), UnexpectedAnswerError, "unexpected-answer"),
        (Reply(200, {"X-Object-Version": "1.0"}), UnexpectedAnswerError, "unexpected-answer"),
        (Reply(200, {"X-Object-Version": "0"}), UnexpectedAnswerError, "unexpected-answer"),
        (Reply(500, {}, b"<html>"), UnexpectedAnswerError, "unexpected-answer"),
    ],
)
def test_what_an_answer_to_a_put_becomes(reply: Reply, error: type[KvfoldError], code: str) -> None:
    with _serving(reply) as (server, store), pytest.raises(error) as caught:
        store.put("user", "k", b"v")
    assert caught.value.code == code
    assert len(server.asked) == 1, "nothing of this is tried again"


@pytest.mark.parametrize(("version", "current"), [(4, 4), (0, None)])
def test_a_conflict_has_the_current_version(version: int, current: int | None) -> None:
    with _serving(_problem(409, "version-conflict", version=version)) as (server, store):
        with pytest.raises(ConflictError) as caught:
            store.put("user", "k", b"v", expected=3)
        assert caught.value.version == current
        with pytest.raises(ConflictError) as caught:
            store.delete("user", "k", expected=3)
        assert caught.value.version == current
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    "first", [LOST, _AGAIN, Reply(502), Reply(201, {"X-Object-Version": "1"}, b"xx", cut=True)]
)
@pytest.mark.row("D7")
def test_a_write_is_repeated_with_its_own_id_after_a_lost_answer(first: Reply) -> None:
    with _serving(first, _PUT) as (server, store):
        assert store.put("user", "k", b"v") == 1
    one, two = server.asked
    assert one.headers["idempotency-key"] == two.headers["idempotency-key"]
    assert (one.target, one.body) == (two.target, two.body)


@pytest.mark.parametrize("first", [LOST, _problem(503, "volatile-unavailable"), Reply(504)])
def test_a_volatile_write_that_may_be_done_is_not_repeated(first: Reply) -> None:
    """No id is remembered there: the repeat of a create would conflict with the create itself."""
    with _serving(first, _PUT) as (server, store), pytest.raises(UnavailableError):
        store.put("user_volatile", "k", b"v")
    assert len(server.asked) == 1


def test_a_volatile_read_is_repeated() -> None:
    with _serving(LOST, Reply(404)) as (_, store):
        assert store.get("user_volatile", "k") is None


def test_after_its_time_the_last_answer_is_the_error() -> None:
    with (
        _serving(_AGAIN, timeout_s=1.0) as (server, store),
        pytest.raises(UnavailableError, match="later") as caught,
    ):
        store.put("user", "k", b"v")
    assert caught.value.code == "outcome-unknown"
    assert len(server.asked) > 1


def test_nobody_listens() -> None:
    with pytest.raises(UnavailableError, match="no answer") as caught:
        HttpStore(unused_address(), "d", timeout_s=0.2).put("user", "k", b"v")
    assert caught.value.code == "server-away"
    assert "may have been done" not in str(caught.value)


def test_a_connection_that_the_server_closed_is_made_anew() -> None:
    with _serving(Reply(404, {"Connection": "close"})) as (server, store):
        assert store.get("user", "k") is store.get("user", "k") is None
    assert server.connections == 2 and len(server.asked) == 2


def test_a_page_of_objects() -> None:
    document = {
        "objects": [{"key": "a", "version": 3, "size": 9, "updated_at": "2026-01-02T03:04:05.678Z"}],
        "next_cursor": "a",
    }
    with _serving(Reply(200, {}, json.dumps(document).encode()), Reply(200, {}, b"[]")) as (server, store):
        page = store.list("system", prefix="a&b", cursor="a+", limit=1)
        assert page.objects == (DeploymentObject("a", 3, 9, 1_767_323_045_678),)
        assert page.next_cursor == "a"
        assert server.asked[0].target == "/deployments/d/kv/system?prefix=a%26b&cursor=a%2B&limit=1"
        with pytest.raises(UnexpectedAnswerError, match="no page"):
            store.list("system")


@pytest.mark.parametrize(
    "url", ["", "host:1", "ftp://h", "http://", "http://h?x", "http://u:hush@h", "http://h:x", "http://[h"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="accepted is a URL") as caught:
        HttpStore(url, "d")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX: y", "é"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(ConfigurationError, match="accepted as a token"):
        HttpStore("http://h", "d", token=token)
