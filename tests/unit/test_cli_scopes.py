"""SCOPE and KEY on the command line, and the URLs that they become."""

from __future__ import annotations

from urllib.parse import unquote

import httpx
import pytest

from kvfold.deploy.scopes import CapsuleScope, DeploymentScope, InstanceScope, Scope, key_url, parse_scope
from kvfold.schemas.errors import InvalidError


@pytest.mark.parametrize(
    ("text", "scope", "base"),
    [
        ("d:dep-1", DeploymentScope("dep-1"), "/deployments/dep-1"),
        ("d:a/b:c", DeploymentScope("a/b:c"), "/deployments/a%2Fb%3Ac"),
        (
            "c:alice:capsule:notes",
            CapsuleScope("alice", "notes"),
            "/v1/capsules/alice/notes",
        ),
        ("o:order 17", InstanceScope("order 17"), "/v1/instances/order%2017"),
    ],
)
def test_scopes_are_the_keys_of_the_log(text: str, scope: Scope, base: str) -> None:
    assert parse_scope(text) == scope
    assert scope.base == base


@pytest.mark.parametrize(
    "text", ["", "d", "d:", "o:", "dep-1", "c:alice:notes", "c::capsule:x", "c:a:capsule:b:c", "s:0", "d:\n"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidError) as refused:
        parse_scope(text)
    assert refused.value.code == "malformed-scope"


@pytest.mark.parametrize(
    "key",
    [
        "k",
        "a/b",
        "a%2Fb",
        "//",
        "/",
        "a//b/",
        "...",
        "a/.../b",
        "?x=1&y",
        "#",
        "+ ",
        "🚀",
        "שלום",
        "%",
        ":",
        "a;b,c",
    ],
)
def test_a_key_reaches_the_server_as_it_is(key: str) -> None:
    sent = httpx.Client(base_url="http://h").build_request("GET", key_url("/kv", key)).url
    assert unquote(sent.raw_path.decode("ascii").removeprefix("/kv/")) == key


@pytest.mark.parametrize("key", [".", "..", "a/./b", "../a", "a/..", ""])
def test_a_key_that_clients_rewrite_goes_into_the_query(key: str) -> None:
    sent = httpx.Client(base_url="http://h").build_request("GET", key_url("/kv", key)).url
    assert sent.path == "/kv"
    assert sent.params.get("key") == key


def test_a_key_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidError):
        key_url("/kv", "\udc80")
