"""The contracts that capsules are built against never change: a new version is a new file."""

from __future__ import annotations

import hashlib
import inspect

import pytest

from kvfold.producers.capsule.errors import HostError
from kvfold.producers.capsule.sdk import CapsuleKv
from kvfold.schemas.limits import (
    CAPSULE_KEY_BYTES_MAX,
    CAPSULE_LIST_KEYS_MAX,
    CAPSULE_VALUE_BYTES_MAX,
    PAGE_LIMIT_MAX,
)
from support.contracts import CONTRACTS, KV

__all__: list[str] = []

SDK = {
    "kv-get": "get_bytes_opt",
    "kv-set": "set_bytes",
    "kv-delete": "delete",
    "kv-list-keys": "list_keys",
    "kv-list-keys-page": "list_keys_page",
    "kv-clear-prefix": "clear_prefix",
    "kv-cas": "cas",
}


@pytest.mark.row("C20")
def test_frozen_files_never_change() -> None:
    lines = (CONTRACTS / "SHA256SUMS").read_text("utf-8").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    actual = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in CONTRACTS.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert actual == listed, "a contract is frozen: add a file with a new version, and its line in SHA256SUMS"


def test_the_first_one_is_the_first_one() -> None:
    """Its digest stands here a second time, so that nobody changes file and list together."""
    digest = hashlib.sha256((CONTRACTS / "kv@1.0.0.wit").read_bytes()).hexdigest()
    assert digest == "d52ba276f3591207c0a998c76d455f4ceddf9b53f417d6d170ba10116e116078"


@pytest.mark.row("C20")
def test_the_seven_functions_and_five_codes_of_the_document() -> None:
    """002, "WIT Contract"."""
    key, prefix = ("key", "string"), ("prefix", "string")
    assert KV.package == "astrid:kv@1.0.0"
    assert {function.name: (function.parameters, function.result) for function in KV.functions} == {
        "kv-get": ((key,), "option<list<u8>>"),
        "kv-set": ((key, ("value", "list<u8>")), "_"),
        "kv-delete": ((key,), "_"),
        "kv-list-keys": ((prefix,), "list<string>"),
        "kv-list-keys-page": ((prefix, ("cursor", "option<string>"), ("limit", "u32")), "key-page"),
        "kv-clear-prefix": ((prefix,), "u64"),
        "kv-cas": ((key, ("expected", "option<list<u8>>"), ("new", "list<u8>")), "_"),
    }
    assert KV.codes == ("invalid-key", "too-large", "quota", "cas-mismatch", "unknown")


@pytest.mark.row("C11")
def test_there_is_one_exception_a_code() -> None:
    direct = [error.host_code for error in HostError.__subclasses__()]
    assert sorted(direct) == sorted(KV.codes)


@pytest.mark.row("C20")
def test_the_sdk_has_every_function_with_its_parameters() -> None:
    assert set(SDK) == {function.name for function in KV.functions}
    for function in KV.functions:
        parameters = list(inspect.signature(getattr(CapsuleKv, SDK[function.name])).parameters)
        assert parameters == ["self", *(name for name, _ in function.parameters)], function.name


def test_the_limits_are_the_contracts() -> None:
    assert (CAPSULE_KEY_BYTES_MAX, CAPSULE_VALUE_BYTES_MAX) == (256, 1_048_576)
    assert CAPSULE_LIST_KEYS_MAX == PAGE_LIMIT_MAX == 1_024
