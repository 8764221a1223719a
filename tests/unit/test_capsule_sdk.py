"""The SDK's bytes, JSON, swaps and retries on `MemoryKvStore` (rows C12, C13, C15, C18, C19)."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel

from kvfold.producers.capsule import kv as kv_module
from kvfold.producers.capsule.errors import (
    CasMismatch,
    HostError,
    InvalidKey,
    JsonError,
    Quota,
    SysError,
    TooLarge,
    Unavailable,
    Unknown,
    host_error,
)
from kvfold.producers.capsule.host import CapsuleHost
from kvfold.producers.capsule.memory_store import MemoryKvStore
from kvfold.producers.capsule.scoped import ScopedKvStore
from kvfold.producers.capsule.sdk import CAS_RETRY_LIMIT, CapsuleKv
from kvfold.schemas.errors import (
    InvalidError,
    KvfoldError,
    OutcomeUnknownError,
    RejectedError,
    StoreUnavailableError,
)
from kvfold.schemas.limits import CAPSULE_VALUE_BYTES_MAX

__all__: list[str] = []

ALICE = "alice:capsule:notes"


@dataclass
class Config:
    model: str
    temperature: float


class Settings(BaseModel):
    n: int


@pytest.fixture
def store() -> MemoryKvStore:
    return MemoryKvStore()


@pytest.fixture
def kv(store: MemoryKvStore) -> Iterator[CapsuleKv]:
    host = CapsuleHost(store, capsule_id="notes")
    with host.invocation("alice"):
        yield host.kv


# --- bytes ---


@pytest.mark.row("C12")
def test_bytes(kv: CapsuleKv) -> None:
    assert kv.get_bytes("k") == b"" and kv.get_bytes_opt("k") is None and not kv.exists("k")
    kv.set_bytes("k", b"")
    assert kv.get_bytes("k") == b"" and kv.get_bytes_opt("k") == b"" and kv.exists("k")
    kv.set_bytes("k", b"\x00raw")
    assert kv.get_bytes("k") == kv.get_bytes_opt("k") == b"\x00raw"
    assert kv.delete("k") is None  # type: ignore[func-returns-value]
    kv.delete("k")
    assert not kv.exists("k")


@pytest.mark.row("C12")
@pytest.mark.row("C19")
def test_the_keys_of_the_standard_capsules(kv: CapsuleKv) -> None:
    keys = ["react.req2sess.r1", "react.turn.t1", "react.turn.t2", "registry_state", "session.1", "session.2"]
    for key in [*keys, "session2", "sessions.1"]:
        kv.set_bytes(key, b"x")
    assert kv.list_keys("session.") == ["session.1", "session.2"]
    assert kv.list_keys("react.turn.") == ["react.turn.t1", "react.turn.t2"]
    assert kv.clear_prefix("session.") == 2
    assert kv.clear_prefix("react.turn.") == 2
    assert kv.list_keys() == ["react.req2sess.r1", "registry_state", "session2", "sessions.1"]
    first = kv.list_keys_page("", None, 3)
    second = kv.list_keys_page("", first.next_cursor, 3)
    assert [*first.keys, *second.keys] == kv.list_keys() and second.next_cursor is None


@pytest.mark.row("C11")
@pytest.mark.row("C12")
def test_what_the_host_refuses_has_the_class_of_its_code(kv: CapsuleKv, store: MemoryKvStore) -> None:
    with pytest.raises(InvalidKey, match="1 to 256"):
        kv.set_bytes("", b"")
    with pytest.raises(TooLarge, match="1048577"):
        kv.set_bytes("k", bytes(CAPSULE_VALUE_BYTES_MAX + 1))
    with pytest.raises(TypeError, match="not str"):
        kv.set_bytes("k", "text")  # type: ignore[arg-type]
    store.set_quota(ALICE, 3)
    with pytest.raises(Quota, match="quota of 3"):
        kv.set_bytes("k", b"123")
    assert not kv.exists("k")


@pytest.mark.row("C11")
def test_errors_are_told_apart_by_code_and_never_by_text() -> None:
    codes = {error.host_code for error in (InvalidKey, TooLarge, Quota, CasMismatch, Unknown)}
    assert codes == {"invalid-key", "too-large", "quota", "cas-mismatch", "unknown"}
    cases: list[tuple[KvfoldError, type[HostError]]] = [
        (InvalidError("quota", code="invalid-key"), InvalidKey),
        (InvalidError("too-large", code="malformed-name"), Unknown),
        (RejectedError("invalid-key", code="quota"), Quota),
        (RejectedError("quota", code="too-large"), TooLarge),
        (RejectedError("quota", code="id-reused"), Unknown),
        (StoreUnavailableError("too-large"), Unavailable),
        (OutcomeUnknownError("quota", mutation_id="", position=None), Unavailable),
    ]
    for given, expected in cases:
        found = host_error(given)
        assert type(found) is expected and isinstance(found, SysError)
        assert found.code == expected.host_code
        assert found.retryable is (expected is Unavailable)
    assert str(host_error(RejectedError("text", code="id-reused"))) == "text (id-reused)"


# --- swaps ---


@pytest.mark.row("C15")
def test_cas(kv: CapsuleKv) -> None:
    assert kv.cas("lock", None, b"me") is True
    assert kv.cas("lock", None, b"you") is False
    assert kv.cas("lock", b"you", b"it") is False
    assert kv.cas("lock", kv.get_bytes_opt("lock"), b"") is True
    assert kv.cas("lock", None, b"x") is False  # an empty value is not a missing one
    assert kv.cas("lock", b"", b"x") is True
    with pytest.raises(InvalidKey):
        kv.cas("", None, b"")


@pytest.mark.row("C18")
def test_update_reads_changes_and_writes_back(kv: CapsuleKv) -> None:
    assert kv.update("n", lambda before: b"1" if before is None else b"?") == b"1"
    assert kv.update("n", lambda before: (before or b"") + b"2") == b"12"
    assert kv.get_bytes("n") == b"12"


@pytest.mark.row("C18")
def test_update_goes_on_until_its_limit_and_then_says_so(kv: CapsuleKv) -> None:
    assert CAS_RETRY_LIMIT == 8
    seen: list[bytes | None] = []

    def raced(before: bytes | None) -> bytes:
        seen.append(before)
        if len(seen) < lost + 1:
            kv.set_bytes("n", b"%d" % len(seen))
        return b"mine"

    lost = CAS_RETRY_LIMIT - 1
    assert kv.update("n", raced) == b"mine"
    assert seen == [None, *(b"%d" % n for n in range(1, 8))]
    seen.clear()
    kv.delete("n")
    lost = CAS_RETRY_LIMIT
    with pytest.raises(CasMismatch, match="8 attempts") as caught:
        kv.update("n", raced)
    assert len(seen) == CAS_RETRY_LIMIT and caught.value.code == "cas-mismatch"
    assert kv.get_bytes("n") == b"8"


def test_a_change_that_raises_writes_nothing(kv: CapsuleKv) -> None:
    kv.set_bytes("n", b"1")
    with pytest.raises(ZeroDivisionError):
        kv.update("n", lambda before: b"%d" % (1 // 0))
    assert kv.get_bytes("n") == b"1"


# --- JSON ---


@pytest.mark.row("C13")
def test_json(kv: CapsuleKv) -> None:
    kv.set_json("config", Config("gpt-4o", 0.7))
    assert kv.get_bytes("config") == b'{"model":"gpt-4o","temperature":0.7}'
    assert kv.get_json("config") == {"model": "gpt-4o", "temperature": 0.7}
    assert kv.get_json("config", Config) == kv.get_json_opt("config", Config) == Config("gpt-4o", 0.7)
    kv.set_json("settings", Settings(n=2))
    assert kv.get_json("settings", Settings) == Settings(n=2)
    kv.set_json("numbers", {"a": [1, 2**64], "b": None, "c": "\x00é"})
    assert kv.get_json("numbers") == {"a": [1, 2**64], "b": None, "c": "\x00é"}
    kv.set_json("list", [1, 2])
    assert kv.get_json("list", list[int]) == [1, 2]


@pytest.mark.row("C13")
def test_json_that_is_missing_is_an_error_or_none(kv: CapsuleKv) -> None:
    with pytest.raises(JsonError, match="missing"):
        kv.get_json("config")
    assert kv.get_json_opt("config") is None
    assert kv.get_json_opt("config", Config) is None


@pytest.mark.row("C13")
def test_none_means_missing_and_nothing_else(kv: CapsuleKv) -> None:
    kv.set_json("k", None)
    assert kv.get_json("k") is None
    with pytest.raises(JsonError, match="null"):
        kv.get_json_opt("k")
    kv.set_bytes("k", b"")
    for read in (kv.get_json, kv.get_json_opt):
        with pytest.raises(JsonError):
            read("k")


@pytest.mark.row("C13")
@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"\xff",
        b"NaN",
        b"[Infinity]",
        b'{"a":1,"a":2}',
        b"1 2",
        b"[" * 100_000,
        b"9" * 5_000,
        b"\xef\xbb\xbf1",
    ],
)
def test_bytes_that_are_no_json(kv: CapsuleKv, raw: bytes) -> None:
    kv.set_bytes("k", raw)
    for read in (kv.get_json, kv.get_json_opt):
        with pytest.raises(JsonError) as caught:
            read("k")
        assert caught.value.__cause__ is None, "the cause would quote what is stored"
    assert kv.get_bytes("k") == raw


@pytest.mark.parametrize(
    ("stored", "kind", "place"),
    [
        ({"model": "m"}, Config, "temperature"),
        ({"model": 1, "temperature": 0.5}, Config, "model"),
        ({"model": "m", "temperature": "0.5"}, Config, "temperature"),
        ([1], Config, "the whole"),
        ("1", int, "the whole"),
        ({"n": 1.5}, Settings, "n"),
    ],
)
def test_json_that_is_not_of_the_type(kv: CapsuleKv, stored: object, kind: type, place: str) -> None:
    kv.set_json("k", stored)
    with pytest.raises(JsonError, match=place):
        kv.get_json("k", kind)


def test_an_error_never_quotes_the_value(kv: CapsuleKv) -> None:
    kv.set_json("k", {"model": "hunter2-secret", "temperature": "hunter2-secret"})
    with pytest.raises(JsonError) as caught:
        kv.get_json("k", Config)
    assert "hunter2" not in str(caught.value) and caught.value.__cause__ is None


def _loop() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": object()}, "\ud800", b"\xff", _loop()])
def test_what_has_no_json_form_is_not_written(kv: CapsuleKv, value: object) -> None:
    kv.set_bytes("k", b"before")
    with pytest.raises(JsonError):
        kv.set_json("k", value)
    assert kv.get_bytes("k") == b"before"


@pytest.mark.row("C4")
def test_a_scoped_store_has_its_namespace_bound(store: MemoryKvStore) -> None:
    alice, bob = ScopedKvStore(store, ALICE), ScopedKvStore(store, "bob:capsule:notes")
    alice.set_json("k", {"a": 1})
    assert alice.get_json("k") == {"a": 1} and bob.get_json("k") is None
    assert alice.exists("k") and not bob.exists("k")
    assert bob.compare_and_swap("k", None, b"") and not alice.compare_and_swap("k", None, b"")
    assert alice.list_keys() == alice.list_keys_with_prefix("k") == ["k"]
    assert alice.list_keys_page("", cursor=None, limit=1).keys == ("k",)
    assert bob.clear_prefix("") == 1 and bob.clear_namespace() == 0 and not bob.delete("k")
    assert store.list_keys(ALICE) == ["k"]
    alice.set("k", b"{")
    with pytest.raises(JsonError):
        alice.get_json("k")
    for namespace in ("alice", "alice:capsule:", "a:b:c"):
        with pytest.raises(InvalidKey):
            ScopedKvStore(store, namespace)


@pytest.mark.row("C12")
def test_the_module_has_every_function_of_the_class() -> None:
    methods = {name for name in vars(CapsuleKv) if not name.startswith("_")}
    assert methods <= set(kv_module.__all__)
    for name in methods:
        assert getattr(kv_module, name).__func__ is getattr(CapsuleKv, name)
    tree = ast.parse(Path(str(kv_module.__file__)).read_text("utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
