"""Routing over raw paths (rows D5, D6): what is ordinary in a key, what is refused, and that nothing redirects."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.problems import MethodNotAllowedError, NotFoundError
from kvfold.http.raw_path import Router
from kvfold.http.routes import Parameter, Route
from kvfold.schemas.errors import InvalidError, KvfoldError


async def endpoint(_: Call) -> Response:
    raise NotImplementedError


def route(method: str, template: str, *query: str) -> Route:
    parameters = tuple(Parameter(name, "") for name in query)
    return Route(method, template, endpoint, "", "", query=parameters)


VALUE = route("GET", "/deployments/{id}/kv/{namespace}/{key:rest}")
PUT_VALUE = route("PUT", "/deployments/{id}/kv/{namespace}/{key:rest}")
OBJECTS = route("GET", "/deployments/{id}/objects", "namespace", "prefix")
OBJECT = route("GET", "/deployments/{id}/objects/{key:rest}", "namespace")
PUT_OBJECT = route("PUT", "/deployments/{id}/objects/{key:rest}", "namespace")
SNAPSHOT = route("GET", "/v1/instances/{id}/kv")
KV = route("GET", "/v1/instances/{id}/kv/{key:rest}")
ROOT = route("GET", "/")
HEALTH = route("GET", "/healthz")
ROUTER = Router([VALUE, PUT_VALUE, OBJECTS, OBJECT, PUT_OBJECT, SNAPSHOT, KV, ROOT, HEALTH])


def match(target: str | bytes, method: str = "GET") -> tuple[Route, dict[str, str], dict[str, str]]:
    raw = target.encode() if isinstance(target, str) else target
    path, _, query = raw.partition(b"?")
    scope: dict[str, Any] = {"method": method, "raw_path": path, "query_string": query}
    return ROUTER.match(scope)


def code_of(target: str | bytes, method: str = "GET") -> str:
    with pytest.raises(KvfoldError) as caught:
        match(target, method)
    return caught.value.code


@pytest.mark.row("D5")
@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ("a", "a"),
        ("a/b", "a/b"),
        ("a%2Fb", "a/b"),
        ("a%2fb", "a/b"),
        ("%2Fa%2F", "/a/"),
        ("/a", "/a"),
        ("a/", "a/"),
        ("//", "//"),
        ("a//b", "a//b"),
        (".", "."),
        ("..", ".."),
        ("../..", "../.."),
        ("a/./b", "a/./b"),
        ("%2e%2E", ".."),
        ("%25", "%"),
        ("%2525", "%25"),
        ("%252F", "%2F"),
        ("a+b", "a+b"),
        ("a%20b", "a b"),
        ("%F0%9F%A6%8A", "🦊"),
        ("%D7%A9%D7%9C%D7%95%D7%9D", "שלום"),
        ("a;b=c&d", "a;b=c&d"),
        ("%3Fkey%3D", "?key="),
        ("", ""),
    ],
)
def test_the_key_is_all_the_rest_decoded_once(raw: str, key: str) -> None:
    found, path, query = match(f"/deployments/d/kv/user/{raw}")
    assert found is VALUE
    assert path == {"id": "d", "namespace": "user", "key": key}
    assert query == {}


def test_an_encoded_slash_stays_in_its_part() -> None:
    assert match("/deployments/a%2Fb/kv/n%2Fm/k")[1] == {"id": "a/b", "namespace": "n/m", "key": "k"}


def test_literal_parts_may_be_encoded_too() -> None:
    assert match("/%64eployments/d/kv/user/k")[0] is VALUE


def test_raw_utf8_is_taken_as_it_is() -> None:
    assert match("/deployments/d/kv/user/é".encode())[1]["key"] == "é"


@pytest.mark.row("D5")
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")))
@example("../../etc")
@example("%00")
def test_every_key_is_found_under_its_percent_encoded_url(key: str) -> None:
    for safe in ("", "/", "/.-_~"):
        assert match(f"/deployments/d/kv/user/{quote(key, safe=safe)}")[1]["key"] == key
    for target in (quote(key, safe=""), quote_plus(key)):
        found, path, _ = match(f"/deployments/d/kv/user?key={target}")
        assert found is VALUE
        assert path["key"] == key


@given(st.binary(), st.binary())
def test_no_path_and_no_query_is_more_than_refused(rest: bytes, query: bytes) -> None:
    for prefix in (b"", b"/", b"/deployments/", b"/deployments/d/kv/user/", b"/v1/instances/"):
        scope: dict[str, Any] = {"method": "GET", "raw_path": prefix + rest, "query_string": query}
        with contextlib.suppress(InvalidError, NotFoundError, MethodNotAllowedError):
            ROUTER.match(scope)


@pytest.mark.parametrize(
    "raw", ["%", "%4", "%zz", "a%", "%%", "%C3", "%FF", "%ED%A0%80", "%C0%AF", "%F4%90%80%80"]
)
def test_bad_escapes_and_bad_utf8(raw: str) -> None:
    assert code_of(f"/deployments/d/kv/user/{raw}") == "malformed-path"
    assert code_of(f"/deployments/d/kv/user?key={raw}") == "malformed-query"


def test_nul() -> None:
    assert code_of("/deployments/d/kv/user/a%00b") == "invalid-key"
    assert code_of(b"/deployments/d/kv/user/a\x00b") == "invalid-key"
    assert code_of("/deployments/d/kv/user?key=a%00b") == "invalid-key"
    assert code_of("/deployments/d%00/kv/user/k") == "malformed-path"
    assert code_of("/deployments/d/objects?namespace=%00") == "malformed-query"


def test_a_key_parameter_makes_it_the_key_route() -> None:
    assert match("/deployments/d/objects?namespace=user")[0] is OBJECTS
    found, path, query = match("/deployments/d/objects?namespace=user&key=..")
    assert (found, path["key"], query) == (OBJECT, "..", {"namespace": "user"})
    assert match("/deployments/d/objects?%6bey=x&namespace=user")[0] is OBJECT
    assert match("/deployments/d/objects?key=", "PUT")[0] is PUT_OBJECT
    assert match("/v1/instances/i/kv")[0] is SNAPSHOT
    assert match("/v1/instances/i/kv?key=")[1] == {"id": "i", "key": ""}


def test_the_empty_key_in_a_path() -> None:
    assert match("/v1/instances/i/kv/")[0] is KV


def test_a_key_route_without_a_key() -> None:
    assert code_of("/deployments/d/kv/user") == "invalid-key"
    assert code_of("/deployments/d/kv/user?key=a&key=b") == "malformed-query"
    assert code_of("/deployments/d/kv/user/a?key=b") == "malformed-query"


def test_a_plus_in_a_query_is_a_space_as_in_forms() -> None:
    assert match("/deployments/d/kv/user?key=a+b")[1]["key"] == "a b"
    assert match("/deployments/d/kv/user?key=a%2Bb")[1]["key"] == "a+b"


@pytest.mark.parametrize("query", ["prefix=a&prefix=b", "unknown=1", "Prefix=a", "prefix=%", "=x"])
def test_repeated_unknown_and_malformed_parameters(query: str) -> None:
    assert code_of(f"/deployments/d/objects?{query}") == "malformed-query"


def test_parameters_that_are_there() -> None:
    assert match("/deployments/d/objects?prefix=&namespace=user&")[2] == {"prefix": "", "namespace": "user"}
    assert match("/deployments/d/objects?prefix")[2] == {"prefix": ""}
    assert match("/healthz?")[0] is HEALTH


@pytest.mark.parametrize(
    "path",
    [
        "",
        "*",
        "/x",
        "//",
        "/healthz/",
        "//healthz",
        "/deployments",
        "/deployments/d/kv",
        "/HEALTHZ",
        "/./healthz",
    ],
)
def test_what_is_not_there(path: str) -> None:
    assert code_of(path) == "not-found"


def test_methods() -> None:
    assert match("/", "HEAD")[0] is ROOT
    assert match("/deployments/d/kv/user/k", "PUT")[0] is PUT_VALUE
    for target in ("/deployments/d/kv/user/k", "/deployments/d/kv/user?key=k"):
        with pytest.raises(MethodNotAllowedError) as caught:
            match(target, "POST")
        assert caught.value.allow == "GET, HEAD, PUT"
    assert code_of("/healthz", "OPTIONS") == "method-not-allowed"


def test_without_a_raw_path_the_decoded_one_serves() -> None:
    scope: dict[str, Any] = {"method": "GET", "path": "/deployments/d/kv/user/ü%", "query_string": b""}
    assert ROUTER.match(scope)[1]["key"] == "ü%"


def test_two_routes_for_one_method_and_path_are_our_mistake() -> None:
    with pytest.raises(AssertionError):
        Router([HEALTH, HEALTH])
    with pytest.raises(AssertionError):
        Router([VALUE, VALUE])
