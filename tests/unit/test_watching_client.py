"""The Python helper against a server that answers by a script: what it asks, hands over and keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

from kvfold.producers.watching import Cleared, Delete, Put, SnapshotEnd, watch
from kvfold.schemas.errors import GoneError, InvalidError, UnavailableError
from support.scripted_server import Asked, Reply, ScriptedServer, unused_address

__all__: list[str] = []


def event(name: str, position: str, id_: str | None = None, **data: Any) -> bytes:
    whole = {"position": position, "scope": "d:x", "version": 1, "actor": None, "time": "T", **data}
    return (
        f"event: {name}\ndata: {json.dumps(whole)}\n".encode()
        + (f"id: {id_}\n" if id_ else "").encode()
        + b"\n"
    )


def put(key: str, position: str, id_: str | None = None) -> bytes:
    return event("put", position, id_, key=key, namespace="user", value_base64="dg==")


def stream(*parts: bytes) -> Reply:
    return Reply(200, {"Content-Type": "text/event-stream"}, b"".join(parts))


def replies(*answers: Reply) -> tuple[ScriptedServer, list[Reply]]:
    left = list(answers)
    return ScriptedServer(lambda _: left.pop(0)), left


def headers_of(asked: Sequence[Asked]) -> list[str | None]:
    return [each.headers.get("last-event-id") for each in asked]


def test_it_resumes_behind_what_was_handed_over_whole() -> None:
    """Cut off within a mutation: none of it was handed over, and all of it comes again."""
    server, _ = replies(
        stream(event("progress", "0:1", "0:1"), put("a", "0:2", "0:2"), put("b", "0:3")),
        stream(event("progress", "0:2", "0:2"), put("b", "0:3"), put("c", "0:3", "0:3"), b": beat\n\n"),
        stream(event("progress", "0:3", "0:3"), put("d", "0:4", "0:4")),
    )
    with server, watch(server.url, scope="d:x", after="0:1") as changes:
        seen = list(islice(changes, 4))
        assert [each.key for each in seen if isinstance(each, Put)] == ["a", "b", "c", "d"]
        assert changes.position == "0:4"
        changes.close()
    assert headers_of(server.asked) == [None, "0:2", "0:3"]
    assert server.asked[0].target == "/v1/watch?scope=d%3Ax&after=0%3A1"


def test_the_position_moves_with_the_last_change_of_a_mutation() -> None:
    server, _ = replies(stream(event("progress", "0:1", "0:1"), put("a", "0:2"), put("b", "0:2", "0:2")))
    with server, watch(server.url) as changes:
        next(changes)
        assert changes.position == "0:1"
        next(changes)
        assert changes.position == "0:2"
        changes.close()


def test_every_kind_of_change() -> None:
    server, _ = replies(
        stream(
            event("put", "0:0", key="held", namespace="user", value_base64=None),
            event("snapshot-end", "0:1", "0:1"),
            event("delete", "0:2", "0:2", key="k", namespace="user"),
            event("cleared", "0:3", "0:3", prefix="p", removed=2),
            event("something-new", "0:4", "0:4"),
            put("k", "0:5", "0:5"),
        )
    )
    with server, watch(server.url, scope="d:x", snapshot=True) as changes:
        held, end, deleted, removed, written = islice(changes, 5)
        changes.close()
    assert isinstance(held, Put) and held.in_snapshot and held.value is None
    assert end == SnapshotEnd("0:1")
    assert isinstance(deleted, Delete) and (deleted.key, deleted.version) == ("k", 1)
    assert isinstance(removed, Cleared) and (removed.prefix, removed.removed) == ("p", 2)
    assert isinstance(written, Put) and not written.in_snapshot and written.value == b"v"


def test_gone_is_raised_in_the_stream_and_before_it() -> None:
    problem = json.dumps({"code": "gone", "detail": "trimmed"}).encode()
    for answer in (
        stream(event("progress", "0:1", "0:1"), event("gone", "0:1", code="gone", detail="trimmed")),
        Reply(410, {}, problem),
    ):
        server, _ = replies(answer)
        with server, watch(server.url) as changes, pytest.raises(GoneError, match="trimmed"):
            next(changes)


def test_a_server_that_is_away_is_said_the_first_time_and_waited_for_later() -> None:
    with pytest.raises(UnavailableError):
        next(watch(unused_address()))
    server, _ = replies(stream(put("a", "0:2", "0:2")), Reply(503, {}, b"{}"), stream(put("b", "0:3", "0:3")))
    with server, watch(server.url) as changes:
        assert [each.position for each in islice(changes, 2) if isinstance(each, Put)] == ["0:2", "0:3"]
        changes.close()
    assert headers_of(server.asked) == [None, "0:2", "0:2"]


def test_what_is_refused_is_an_error() -> None:
    server, _ = replies(Reply(400, {}, b'{"code":"malformed-scope","detail":"no scope"}'))
    with (
        server,
        watch(server.url, scope="x") as changes,
        pytest.raises(InvalidError, match="no scope") as raised,
    ):
        next(changes)
    assert raised.value.code == "malformed-scope"
    with pytest.raises(InvalidError):
        watch("ftp://somewhere")
