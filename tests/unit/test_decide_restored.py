"""Restored entries (row X11): into an empty scope only, with their versions, decided by the log alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as cases
from hypothesis import settings
from hypothesis import strategies as st

from kvfold.projector.batch import prepare
from kvfold.projector.memory_store import MemoryStore
from kvfold.schemas.mutation import Mutation
from support.given import Scenario, applied, conflict, fold_all, given, rejected, snapshot
from support.mutations import (
    CAPSULE,
    DEPLOYMENT,
    capsule_deleted,
    capsule_quota,
    capsule_restored,
    capsule_set,
    deployment_deleted,
    deployment_put,
    deployment_restored,
    envelope,
    namespace_cleared,
    undeployed,
)

OTHER = "0190c000-0000-7000-8000-00000000000b"

pytestmark = pytest.mark.row("X11")


def test_versions_are_kept_and_ordinary_writes_go_on_from_them() -> None:
    given(capsule_restored("a", version=7), capsule_restored("b", version=2)).when(capsule_set("a")).then(
        applied(8), capsule_entry=[{"key": "a", "version": 8}, {"key": "b", "version": 2}]
    )
    given(deployment_restored("a", version=7)).when(deployment_put("a", expected="version:7")).then(
        applied(8), deployment_entry=[{"key": "a", "version": 8}]
    )


@pytest.mark.parametrize("written", [capsule_set("x"), capsule_set("a"), capsule_deleted("a")])
def test_a_capsule_that_holds_anything_else_is_refused(written: Mutation) -> None:
    given(capsule_restored("a"), capsule_restored("b"), written).when(capsule_restored("c")).then(
        conflict("not-empty", 0)
    )


@pytest.mark.parametrize("written", [deployment_put("x"), deployment_put("a"), deployment_deleted("a")])
def test_a_deployment_that_holds_anything_else_is_refused(written: Mutation) -> None:
    given(deployment_restored("a"), deployment_restored("b"), written).when(deployment_restored("c")).then(
        conflict("not-empty", 0)
    )


def test_entries_of_another_snapshot_are_refused() -> None:
    given(capsule_restored("a")).when(capsule_restored("b", snapshot=OTHER)).then(conflict("not-empty", 0))
    given(deployment_restored("a")).when(deployment_restored("b", snapshot=OTHER)).then(
        conflict("not-empty", 0)
    )


def test_what_changes_nothing_ends_no_restore() -> None:
    given(capsule_restored("a"), capsule_deleted("x"), capsule_set("y", expected="present")).when(
        capsule_restored("b")
    ).then(applied(1), capsule_scope=[{"keys": 2}])
    given(deployment_restored("a"), deployment_deleted("x")).when(deployment_restored("b")).then(applied(1))


def test_a_quota_may_be_set_before_and_is_kept_to() -> None:
    given(capsule_quota(4)).when(capsule_restored("a", b"123"), capsule_restored("b", b"")).then(
        applied(1), rejected("quota"), capsule_scope=[{"keys": 1, "bytes": 4, "bytes_max": 4}]
    )


def test_an_entry_comes_once() -> None:
    given(capsule_restored("a", version=3)).when(capsule_restored("a", version=3)).then(
        conflict("already-exists", 3)
    )
    given(deployment_restored("a", version=3)).when(deployment_restored("a", version=3)).then(
        conflict("already-exists", 3)
    )


def test_a_scope_that_was_emptied_may_be_restored() -> None:
    given(capsule_set("a"), capsule_deleted("a")).when(capsule_restored("a", version=9)).then(applied(9))
    given(capsule_set("a"), namespace_cleared()).when(capsule_restored("a", version=9)).then(applied(9))
    scenario = given(deployment_put("a"), undeployed()).when(deployment_restored("a", version=9))
    scenario.then(applied(9), deployment_scope=[{"version_floor": 1}])


def test_tombstones_are_something() -> None:
    """Their versions would come again: only an undeploy, which remembers the highest of them, empties a deployment."""
    given(deployment_put("a"), deployment_deleted("a")).when(deployment_restored("b")).then(
        conflict("not-empty", 0)
    )


def test_after_a_restore_versions_are_above_all_that_were_swept() -> None:
    swept = [deployment_put("a"), deployment_put("a"), deployment_put("a"), undeployed()]
    given(*swept, deployment_restored("a", version=1)).when(deployment_put("a")).then(applied(4))


def test_secrets_come_as_ciphertext_only() -> None:
    sealed = envelope(3)
    given().when(deployment_restored("a", sealed, namespace="x_secrets")).then(
        applied(1), deployment_entry=[{"value": sealed}]
    )
    given().when(deployment_restored("a", b"plain", namespace="x_secrets")).then(
        rejected("secret-not-encrypted"), deployment_entry=[]
    )


def test_a_repeat_has_the_first_outcome_and_another_version_is_another_content() -> None:
    first = capsule_restored("a", version=3)
    scenario = given(first, capsule_set("a"))
    scenario.when(first).then(applied(3), capsule_entry=[{"version": 4}])
    scenario.when(replace(first, version=4)).then(rejected("id-reused"))
    scenario.when(replace(first, snapshot=OTHER)).then(rejected("id-reused"))


_WRITES = st.sampled_from(["a", "b", "ab", "é"]).flatmap(
    lambda key: st.sampled_from(
        [
            capsule_restored(key, b"r", version=5, id_="x"),
            capsule_restored(key, b"r", version=5, snapshot=OTHER, id_="x"),
            capsule_set(key, b"22", id_="x"),
            capsule_deleted(key, id_="x"),
            namespace_cleared(id_="x"),
            capsule_quota(7, id_="x"),
            deployment_restored(key, b"r", version=5, id_="x"),
            deployment_restored(key, b"r", version=5, snapshot=OTHER, id_="x"),
            deployment_put(key, id_="x"),
            deployment_deleted(key, id_="x"),
            undeployed(id_="x"),
        ]
    )
)


@settings(max_examples=150, deadline=None)
@cases(st.lists(_WRITES, max_size=25))
def test_however_records_are_cut_into_batches_and_never_into_what_holds_something(
    drawn: list[Mutation],
) -> None:
    mutations = [
        replace(mutation, id=f"0190d000-0000-7000-8000-{number:012d}")
        for number, mutation in enumerate(drawn)
    ]
    one = given()
    whole = MemoryStore()
    fold_all(whole, prepare([one.place(mutation) for mutation in mutations], 1), 0)
    single = Scenario(0, 1)
    for mutation in mutations:
        before = {table: list(single.store.rows(table)) for table in ("capsule_entry", "deployment_entry")}
        single.when(mutation)
        if "restored" not in mutation.type or single.last.status != "applied":
            continue
        scope = CAPSULE if mutation.type.startswith("kvfold.capsule") else DEPLOYMENT
        # All that was there came from a snapshot: nothing else writes these bytes.
        table, value = ("capsule_entry", 3) if scope == CAPSULE else ("deployment_entry", 4)
        assert all(row[value] == b"r" for row in before[table]), before
    assert snapshot(single.store) == snapshot(whole)
