"""What `HttpKvStore` asks for on the wire, and what it makes of answers (rows C11, X5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from kvfold.producers.capsule.errors import HostError, InvalidKey, Quota, TooLarge, Unavailable, Unknown
from kvfold.producers.capsule.http_store import HttpKvStore

__all__: list[str] = []

ALICE = "alice:capsule:notes"
Answer = Callable[[httpx.Request], httpx.Response]


def asked(answer: Answer, act: Callable[[HttpKvStore], Any]) -> list[httpx.Request]:
    """The requests that some calls lead to."""
    requests: list[httpx.Request] = []

    def remember(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return answer(request)

    with HttpKvStore("http://gateway", transport=httpx.MockTransport(remember)) as store:
        act(store)
    return requests


def at(position: str, status: int = 200, **parts: Any) -> httpx.Response:
    return httpx.Response(status, headers={"X-Kvfold-Position": position}, **parts)


@pytest.mark.parametrize(
    ("namespace", "key", "target"),
    [
        (ALICE, "a b+%2F/..", "/v1/capsules/alice/notes/kv?key=a%20b%2B%252F%2F.."),
        ("..:capsule:.", "é&?#", "/v1/capsules/%2E%2E/%2E/kv?key=%C3%A9%26%3F%23"),
        ("a b:capsule:é", "/", "/v1/capsules/a%20b/%C3%A9/kv?key=%2F"),
    ],
)
def test_names_and_keys_reach_the_wire_as_they_are(namespace: str, key: str, target: str) -> None:
    (request,) = asked(lambda _: at("0:1"), lambda store: store.get(namespace, key))
    assert request.url.raw_path.decode() == target


@pytest.mark.row("X5")
def test_a_read_demands_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = {"alice": "3:7", "bob": "1:9", "carol": "3:5"}

    def answer(request: httpx.Request) -> httpx.Response:
        name = request.url.path.split("/")[3]
        return at(positions.get(name, "0:0"), content=b"")

    def act(store: HttpKvStore) -> None:
        store.get(ALICE, "k")
        for name in ("alice", "bob", "carol"):
            store.set(f"{name}:capsule:notes", "k", b"")
        for name in ("alice", "bob", "carol", "dave"):
            store.get(f"{name}:capsule:notes", "k")

    demands = [request.headers.get("X-Kvfold-Min-Position") for request in asked(answer, act)]
    # Of dave's namespace the partition is not known yet: everything that was written is demanded.
    assert demands == [None, None, None, None, "3:7", "1:9", "3:7", "1:9,3:7"]


@pytest.mark.row("C11")
@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "invalid-key", InvalidKey),
        (413, "too-large", TooLarge),
        (422, "quota", Quota),
        (422, "id-reused", Unknown),
        (400, "malformed-name", Unknown),
        (503, "log-unavailable", Unavailable),
        (500, "internal", Unavailable),
        (502, None, Unavailable),
        (404, None, Unknown),
        (301, None, Unknown),
    ],
)
def test_a_problem_has_the_error_of_its_code(status: int, code: str | None, error: type[HostError]) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        if code is None:
            return httpx.Response(status, text="<html>quota</html>")
        return httpx.Response(status, json={"status": status, "code": code, "detail": "what is wrong"})

    calls: tuple[Callable[[HttpKvStore], Any], ...] = (
        lambda store: store.set(ALICE, "k", b""),
        lambda store: store.delete(ALICE, "k"),
        lambda store: store.compare_and_swap(ALICE, "k", None, b""),
        lambda store: store.clear_prefix(ALICE, ""),
        lambda store: store.get(ALICE, "k"),
        lambda store: store.exists(ALICE, "k"),
        lambda store: store.list_keys(ALICE),
    )
    for call in calls:
        with pytest.raises(HostError) as caught:
            asked(answer, call)
        assert type(caught.value) is error
        assert code is None or "what is wrong" in str(caught.value)


def test_an_absent_key_is_the_gateways_word_and_not_a_proxys() -> None:
    problem = {"status": 404, "code": "not-found"}

    def absent(store: HttpKvStore) -> None:
        assert store.get(ALICE, "k") is None and store.exists(ALICE, "k") is False

    asked(lambda _: at("0:1", 404, json=problem), absent)


def test_a_repeat_is_the_same_mutation() -> None:
    answers = iter([httpx.Response(503, json={"code": "outcome-unknown", "status": 503}), at("0:1", 200)])
    first, second = asked(lambda _: next(answers), lambda store: store.set(ALICE, "k", b"v"))
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert (first.url, first.content) == (second.url, second.content)

    def twice(store: HttpKvStore) -> None:
        store.set(ALICE, "k", b"v")
        store.set(ALICE, "k", b"v")

    one, other = asked(lambda _: at("0:1"), twice)
    assert one.headers["Idempotency-Key"] != other.headers["Idempotency-Key"]


def test_a_gateway_that_does_not_answer_is_unavailable() -> None:
    def nobody(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(Unavailable, match="no answer"):
        asked(nobody, lambda store: store.get(ALICE, "k"))
