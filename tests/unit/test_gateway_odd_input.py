"""Odd input to the write routes: never a 500, and what is written stands under the key of its URL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvfold.http.app import App
from kvfold.http.raw_path import Router
from kvfold.log.memory import MemoryLog
from kvfold.producers.gateway.context import build_gateway_context
from kvfold.producers.gateway.routes import write_routes
from kvfold.projector.tables import CapsuleEntry, DeploymentEntry
from kvfold.schemas.names import check_capsule_key, check_deployment_key
from support.asgi import AsgiAnswer, request
from support.folding import FoldingWaiter

__all__: list[str] = []

KNOWN_ODD = (
    "a/b",
    "//",
    "/",
    "/a/",
    ".",
    "..",
    "../../etc",
    "./a/../b",
    "%",
    "%25",
    "%2F",
    "a+b",
    "a b",
    " ",
    "?",
    "#",
    "a?key=b",
    "&=;",
    "\U0001f600",
    "שלום עולם",
    "\u202e",
    "_",
    "kv",
    "objects",
    "\\",
    '"',
)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
KEYS = st.sampled_from(KNOWN_ODD) | TEXT
METHODS = st.sampled_from(["PUT", "DELETE", "POST", "GET", "HEAD", "PATCH", "OPTIONS", "x"])
HEADER_NAMES = st.sampled_from(
    [
        "if-match",
        "if-none-match",
        "x-object-version",
        "idempotency-key",
        "content-type",
        "content-length",
        "traceparent",
        "authorization",
        "ce-id",
        "ce-type",
        "ce-source",
        "ce-specversion",
        "ce-partitionkey",
        "ce-kvexpected",
    ]
)
HEADER_VALUES = (
    st.binary(max_size=20)
    | st.sampled_from([b"*", b'"1"', b"1", b"application/cloudevents+json", b"1.0"])
    | st.from_regex(rb"[\x20-\xff]{0,20}", fullmatch=True)
)


class Written:
    """The routes, and every entry that stands after them."""

    def __init__(self) -> None:
        log = MemoryLog(partition_count=3)
        self.waiter = FoldingWaiter(log)
        self.app = App(write_routes(build_gateway_context(log, self.waiter)))

    def put(self, target: str, value: bytes = b"v") -> AsgiAnswer:
        return asyncio.run(request(self.app, "PUT", target, body=value))

    def keys(self) -> list[str]:
        self.waiter.fold()
        keys = [DeploymentEntry._make(row).key for row in self.waiter.store.rows("deployment_entry")]
        return keys + [CapsuleEntry._make(row).key for row in self.waiter.store.rows("capsule_entry")]


@pytest.fixture(scope="module")
def shared() -> Iterator[Written]:
    yield Written()


def spellings(key: str) -> list[str]:
    """Every way to write a key: as little as possible escaped, as much, and as a parameter."""
    least = quote(key, safe="/:@!$&'()*+,;=~-._")
    most = "".join(f"%{byte:02X}" for byte in key.encode())
    return [f"/{least}", f"/{quote(key, safe='')}", f"/{most}", f"?key={quote(key, safe='')}"]


@pytest.mark.row("D5")
@pytest.mark.parametrize("key", KNOWN_ODD)
def test_every_spelling_of_an_odd_key_is_that_key(key: str) -> None:
    for prefix in ("/deployments/d/kv/user", "/v1/capsules/a/b/kv"):
        for spelling in spellings(key):
            written = Written()
            answer = written.put(prefix + spelling)
            assert answer.status == 201, (spelling, answer)
            assert written.keys() == [key], spelling


@pytest.mark.row("D5")
@given(key=TEXT, route=st.sampled_from(["/deployments/d/kv/user", "/v1/capsules/a/b/kv"]))
def test_a_key_is_taken_as_it_is_or_refused(key: str, route: str) -> None:
    check = check_deployment_key if route.startswith("/deployments") else check_capsule_key
    for spelling in spellings(key):
        written = Written()
        answer = written.put(route + spelling)
        if check(key) is None:
            assert answer.status == 201 and written.keys() == [key]
        else:
            assert (answer.status, answer.json()["code"]) == (400, "invalid-key")
            assert written.keys() == []


@pytest.mark.parametrize("target", ["/deployments/d/kv/user", "/v1/capsules/a/b/kv"])
def test_a_key_that_is_missing_or_empty_is_refused(target: str) -> None:
    for tail in ("", "/", "?key=", "/%00", "?key=%00", "?key=a&key=b", "/%", "/%zz", "/%FF", "/%ED%A0%80"):
        written = Written()
        answer = written.put(target + tail)
        assert answer.status == 400, (tail, answer)
        assert written.keys() == []


@given(
    method=METHODS,
    target=st.lists(
        st.sampled_from(
            ["deployments", "v1", "capsules", "kv", "objects", "mutations", "keys", "d", "", "%", "%2F"]
        )
        | KEYS.map(lambda key: quote(key, safe="/%"))
        | st.binary(max_size=8).map(lambda raw: quote_from_bytes(raw)),
        max_size=8,
    ),
    query=st.lists(
        st.tuples(
            st.sampled_from(["key", "namespace", "version", "prefix", "wait", "x"]),
            st.text(max_size=6) | st.sampled_from(["1", "user", "0.1"]),
        ),
        max_size=3,
    ),
    headers=st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=4),
    body=st.binary(max_size=40) | st.sampled_from([b"[]", b"{}", b'{"value":"","encoding":"utf8"}']),
)
def test_never_a_500(
    shared: Written,
    method: str,
    target: list[str],
    query: list[tuple[str, str]],
    headers: list[tuple[str, bytes]],
    body: bytes,
) -> None:
    parameters = "&".join(f"{name}={quote(value, errors='surrogatepass')}" for name, value in query)
    raw = "/" + "/".join(target) + (f"?{parameters}" if parameters else "")
    answer = asyncio.run(request(shared.app, method, raw, headers=headers, body=body))
    assert answer.status < 500 or answer.json()["code"] in {"encryption-key-missing", "volatile-unavailable"}


@given(
    route=st.sampled_from(
        [
            "/deployments/d/kv/user/k",
            "/deployments/d/objects/k?namespace=user",
            "/v1/capsules/a/b/kv/k",
            "/v1/mutations",
        ]
    ),
    method=st.sampled_from(["PUT", "DELETE", "POST"]),
    headers=st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=5),
    body=st.binary(max_size=20) | st.just(b'{"value":"","encoding":"utf8"}'),
)
def test_never_a_500_on_a_known_route(
    shared: Written, route: str, method: str, headers: list[tuple[str, bytes]], body: bytes
) -> None:
    answer = asyncio.run(request(shared.app, method, route, headers=headers, body=body))
    assert answer.status < 500


def test_the_write_routes_stand_beside_each_other_in_one_router() -> None:
    log = MemoryLog()
    routes = write_routes(build_gateway_context(log, FoldingWaiter(log)))
    with suppress(AssertionError):
        Router([*routes, *routes])
        raise ValueError("the router takes the same route twice")
    assert len({(route.method, route.template) for route in routes}) == len(routes)
