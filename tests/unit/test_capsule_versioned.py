"""The versioned envelope and its migration (rows C16, C17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kvfold.producers.capsule.errors import ApiError, JsonError, Quota
from kvfold.producers.capsule.host import CapsuleHost
from kvfold.producers.capsule.memory_store import MemoryKvStore
from kvfold.producers.capsule.sdk import CapsuleKv
from kvfold.producers.capsule.versioned import (
    SCHEMA_VERSION_MAX,
    Current,
    NeedsMigration,
    NotFound,
    Unversioned,
)

__all__: list[str] = []


@dataclass
class Profile:
    name: str
    role: str


@pytest.fixture
def store() -> MemoryKvStore:
    return MemoryKvStore()


@pytest.fixture
def kv(store: MemoryKvStore) -> Iterator[CapsuleKv]:
    host = CapsuleHost(store, capsule_id="notes")
    with host.invocation("alice"):
        yield host.kv


def migrate(raw: Any, stored_version: int) -> Profile:
    match stored_version:
        case 0 | 1:
            return Profile(raw["name"], "user")
        case _:
            raise ApiError(f"unknown version {stored_version}")


@pytest.mark.row("C16")
def test_what_a_versioned_read_finds(kv: CapsuleKv) -> None:
    assert kv.get_versioned("profile", 2) == NotFound()
    kv.set_versioned("profile", Profile("alice", "admin"), 2)
    assert kv.get_bytes("profile") == b'{"__sv":2,"data":{"name":"alice","role":"admin"}}'
    assert kv.get_versioned("profile", 2) == Current({"name": "alice", "role": "admin"})
    assert kv.get_versioned("profile", 2, Profile) == Current(Profile("alice", "admin"))
    assert kv.get_versioned("profile", 3) == NeedsMigration({"name": "alice", "role": "admin"}, 2)
    kv.set_json("profile", {"name": "alice"})
    assert kv.get_versioned("profile", 2, Profile) == Unversioned({"name": "alice"})
    kv.set_json("profile", [1])
    assert kv.get_versioned("profile", 0) == Unversioned([1])
    kv.set_versioned("profile", None, 0)
    assert kv.get_versioned("profile", 0) == Current(None)


@pytest.mark.row("C16")
def test_a_newer_version_is_a_hard_error(kv: CapsuleKv) -> None:
    kv.set_versioned("profile", {"name": "alice"}, 3)
    before = kv.get_bytes("profile")
    for read in (
        lambda: kv.get_versioned("profile", 2),
        lambda: kv.get_versioned_or_migrate("profile", 2, migrate),
    ):
        with pytest.raises(ApiError, match=r"version 3.*up to 2"):
            read()
    assert kv.get_bytes("profile") == before


@pytest.mark.row("C16")
@pytest.mark.parametrize(
    "raw",
    [
        b'{"__sv":1}',
        b'{"__sv":1,"data":1,"more":1}',
        b'{"__sv":-1,"data":1}',
        b'{"__sv":4294967296,"data":1}',
        b'{"__sv":1.0,"data":1}',
        b'{"__sv":"1","data":1}',
        b'{"__sv":true,"data":1}',
        b'{"__sv":null,"data":1}',
        b'{"__sv":1,"__sv":1,"data":1}',
    ],
)
def test_a_malformed_envelope_is_an_error(kv: CapsuleKv, raw: bytes) -> None:
    kv.set_bytes("k", raw)
    with pytest.raises(JsonError):
        kv.get_versioned("k", SCHEMA_VERSION_MAX)
    with pytest.raises(JsonError):
        kv.get_versioned_or_migrate("k", SCHEMA_VERSION_MAX, migrate)
    assert kv.get_bytes("k") == raw


@pytest.mark.row("C16")
def test_an_empty_value_is_no_missing_one(kv: CapsuleKv) -> None:
    kv.set_bytes("k", b"")
    with pytest.raises(JsonError):
        kv.get_versioned("k", 1)
    with pytest.raises(JsonError):
        kv.get_versioned_or_migrate("k", 1, migrate)


@pytest.mark.row("C16")
def test_versions_are_32_bits_without_a_sign(kv: CapsuleKv) -> None:
    for version in (0, SCHEMA_VERSION_MAX):
        kv.set_versioned("k", "data", version)
        assert kv.get_versioned("k", version) == Current("data")
    kv.delete("k")
    wrong_ones: tuple[Any, ...] = (-1, SCHEMA_VERSION_MAX + 1, True, 1.0, "1")
    for wrong in wrong_ones:
        with pytest.raises(ApiError, match="4294967295"):
            kv.set_versioned("k", "data", wrong)
        with pytest.raises(ApiError, match="4294967295"):
            kv.get_versioned("k", wrong)
    assert not kv.exists("k")


@pytest.mark.row("C17")
def test_older_data_is_migrated_and_written_back(kv: CapsuleKv) -> None:
    assert kv.get_versioned_or_migrate("profile", 2, migrate) is None
    assert not kv.exists("profile")
    writes: tuple[Callable[[], None], ...] = (
        lambda: kv.set_json("profile", {"name": "alice"}),
        lambda: kv.set_versioned("profile", {"name": "alice"}, 1),
    )
    for write in writes:
        write()
        assert kv.get_versioned_or_migrate("profile", 2, migrate, Profile) == Profile("alice", "user")
        assert kv.get_versioned("profile", 2, Profile) == Current(Profile("alice", "user"))
    kv.set_versioned("profile", Profile("bob", "admin"), 2)
    assert kv.get_versioned_or_migrate("profile", 2, migrate, Profile) == Profile("bob", "admin")


@pytest.mark.row("C17")
def test_unversioned_data_comes_as_version_0(kv: CapsuleKv) -> None:
    seen: list[tuple[Any, int]] = []

    def remember(raw: Any, stored_version: int) -> str:
        seen.append((raw, stored_version))
        return "now"

    for current in (0, 3):
        kv.set_json("k", {"old": 1})
        assert kv.get_versioned_or_migrate("k", current, remember) == "now"
    kv.set_versioned("k", "older", 4)
    assert kv.get_versioned_or_migrate("k", 5, remember) == "now"
    assert kv.get_versioned_or_migrate("k", 5, remember) == "now"
    assert seen == [({"old": 1}, 0), ({"old": 1}, 0), ("older", 4)]


@pytest.mark.row("C17")
def test_a_migration_that_fails_leaves_the_stored_value(kv: CapsuleKv, store: MemoryKvStore) -> None:
    kv.set_versioned("profile", {"name": "alice"}, 2)
    before = kv.get_bytes("profile")
    with pytest.raises(ApiError, match="unknown version 2"):
        kv.get_versioned_or_migrate("profile", 3, migrate)
    with pytest.raises(KeyError):
        kv.get_versioned_or_migrate("profile", 3, lambda raw, _: raw["none"])
    with pytest.raises(ApiError, match="None"):
        kv.get_versioned_or_migrate("profile", 3, lambda raw, _: None)
    with pytest.raises(JsonError):
        kv.get_versioned_or_migrate("profile", 3, lambda raw, _: object())
    store.set_quota("alice:capsule:notes", 1)
    with pytest.raises(Quota):
        kv.get_versioned_or_migrate("profile", 3, lambda raw, _: "long" * 100)
    assert kv.get_bytes("profile") == before


@pytest.mark.row("C17")
def test_the_write_back_is_a_plain_set_so_the_migration_wins(kv: CapsuleKv) -> None:
    kv.set_json("profile", {"name": "alice"})

    def raced(raw: Any, stored_version: int) -> Profile:
        kv.set_versioned("profile", Profile("somebody", "else"), 2)
        return migrate(raw, stored_version)

    assert kv.get_versioned_or_migrate("profile", 2, raced) == Profile("alice", "user")
    assert kv.get_versioned("profile", 2, Profile) == Current(Profile("alice", "user"))


@pytest.mark.row("C17")
def test_null_data_is_not_told_as_missing(kv: CapsuleKv) -> None:
    kv.set_versioned("k", None, 1)
    with pytest.raises(JsonError, match="null"):
        kv.get_versioned_or_migrate("k", 1, migrate)
