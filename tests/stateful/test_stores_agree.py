"""Memory store, Postgres store and a dict, driven together by Hypothesis: the same outcomes, the same entries.

The dict knows no records, no batches and no history: it is what a user believes a versioned key-value store does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kvfold.log.memory import MemoryLog
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.store import ProjectionStore
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.record import Record
from support.mutations import (
    batch_delete,
    batch_set,
    capsule_batch,
    capsule_cleared,
    capsule_deleted,
    capsule_set,
    deployment_deleted,
    deployment_put,
    record_of,
    undeployed,
)
from support.projection import content, differences, fold_records, set_up, store_for
from support.servers import fresh_database

__all__: list[str] = []

_keys = st.sampled_from(["a", "ab", "b", "é", "a/%_"])
_values = st.sampled_from([b"", b"1", b"22"])
_Outcome = tuple[str, int | None, int | None]


def _hash(value: bytes) -> str:
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


class Agreement(RuleBasedStateMachine):
    """One scope of each family. `stores` are set by the test that runs the machine."""

    stores: tuple[ProjectionStore, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.offset = max(store.state(0).offset_next for store in self.stores)
        # Each run has scopes of its own: a Postgres store outlives the run.
        self.capsule, self.deployment = f"c:p{self.offset}:capsule:x", f"d:{self.offset}"
        self.capsule_model: dict[str, tuple[int, bytes]] = {}
        self.deployment_model: dict[str, tuple[int, bytes]] = {}
        self.versions: dict[str, int] = {}
        self.floor = 0
        self.pending: list[tuple[Mutation, _Outcome]] = []

    def _do(
        self, mutation: Mutation, status: str, version: int | None = None, removed: int | None = None
    ) -> None:
        self.pending.append((mutation, (status, version, removed)))

    @rule(key=_keys, value=_values, expected=st.one_of(st.none(), st.just("absent"), _values))
    def capsule_sets(self, key: str, value: bytes, expected: bytes | str | None) -> None:
        now = self.capsule_model.get(key)
        version = now[0] if now else 0
        if isinstance(expected, bytes):
            holds, condition = (
                now is not None and now[1] == expected,
                _hash(expected),
            )
        else:
            holds, condition = expected is None or now is None, expected or "any"
        if holds:
            self.capsule_model[key] = (version + 1, value)
        mutation = capsule_set(key, value, expected=condition, scope=self.capsule)
        self._do(mutation, "applied" if holds else "conflict", version + 1 if holds else version)

    @rule(key=_keys)
    def capsule_deletes(self, key: str) -> None:
        version, _ = self.capsule_model.pop(key, (0, b""))
        self._do(capsule_deleted(key, scope=self.capsule), "applied", version)

    @rule(
        keys=st.lists(_keys, min_size=1, max_size=4, unique=True),
        values=st.lists(st.none() | _values, min_size=4, max_size=4),
        conditions=st.lists(st.tuples(_keys, st.sampled_from(["absent", "present"]) | _values), max_size=2),
    )
    def capsule_batches(
        self, keys: list[str], values: list[bytes | None], conditions: list[tuple[str, str | bytes]]
    ) -> None:
        model = self.capsule_model
        asked: list[tuple[str, str]] = []
        failed: str | None = None
        for key, expected in conditions:
            now = model.get(key)
            if isinstance(expected, bytes):
                holds, text = now is not None and now[1] == expected, _hash(expected)
            else:
                holds, text = (now is None) == (expected == "absent"), expected
            asked.append((key, text))
            failed = key if failed is None and not holds else failed
        operations = [
            batch_delete(key) if value is None else batch_set(key, value)
            for key, value in zip(keys, values, strict=False)
        ]
        mutation = capsule_batch(*operations, conditions=asked, scope=self.capsule)
        if failed is not None:
            self._do(mutation, "conflict", model.get(failed, (0, b""))[0])
            return
        removed = 0
        for key, value in zip(keys, values, strict=False):
            before = model.pop(key, None)
            removed += value is None and before is not None
            if value is not None:
                model[key] = ((before or (0, b""))[0] + 1, value)
        self._do(mutation, "applied", removed=removed)

    @rule(prefix=st.sampled_from(["", "a", "a/%", "é", "zz"]))
    def capsule_clears(self, prefix: str) -> None:
        gone = [key for key in self.capsule_model if key.startswith(prefix)]
        for key in gone:
            del self.capsule_model[key]
        self._do(capsule_cleared(prefix or None, scope=self.capsule), "applied", removed=len(gone))

    @rule(key=_keys, value=_values, expected=st.one_of(st.none(), st.integers(0, 4)))
    def deployment_puts(self, key: str, value: bytes, expected: int | None) -> None:
        version = self.deployment_model.get(key, (0, b""))[0]
        condition = "any" if expected is None else "absent" if expected == 0 else f"version:{expected}"
        if expected in (None, version):
            following = max(self.versions.get(key, 0), self.floor) + 1
            self.versions[key], self.deployment_model[key] = following, (following, value)
            outcome: _Outcome = ("applied", following, None)
        else:
            outcome = ("conflict", version, None)
        self._do(deployment_put(key, value, expected=condition, scope=self.deployment), *outcome)

    @rule(key=_keys, expected=st.one_of(st.none(), st.integers(1, 4)))
    def deployment_deletes(self, key: str, expected: int | None) -> None:
        version = self.deployment_model.get(key, (0, b""))[0]
        condition = "any" if expected is None else f"version:{expected}"
        holds = version == 0 or expected in (None, version)
        if holds:
            self.deployment_model.pop(key, None)
        mutation = deployment_deleted(key, expected=condition, scope=self.deployment)
        self._do(mutation, "applied" if holds else "conflict", version)

    @rule()
    def undeploys(self) -> None:
        self.floor = max([self.floor, *self.versions.values()])
        self._do(undeployed(scope=self.deployment), "applied", removed=len(self.deployment_model))
        self.deployment_model.clear()

    @rule(batch_size=st.sampled_from([1, 3, 100]))
    def folds(self, batch_size: int) -> None:
        """What was asked for since the last fold, in batches of a size; each store cuts it otherwise."""
        records = self._records()
        for number, store in enumerate(self.stores):
            fold_records(store, records, partition=0, partition_count=1, batch_size=batch_size + number)

    def _records(self) -> list[Record]:
        records = [
            record_of(mutation, offset=self.offset + n) for n, (mutation, _) in enumerate(self.pending)
        ]
        expected = {
            record.offset: outcome for record, (_, outcome) in zip(records, self.pending, strict=True)
        }
        self.expected = expected
        self.offset += len(records)
        self.pending = []
        return records

    expected: dict[int, _Outcome] = {}  # noqa: RUF012 - replaced, never changed

    @invariant()
    def everything_agrees(self) -> None:
        if self.pending:
            return
        for store in self.stores:
            decided = {row[1]: (row[8], row[10], row[11]) for row in store.rows("decision")}
            assert {offset: decided[offset] for offset in self.expected} == self.expected
            capsules = [row for row in store.rows("capsule_entry") if row[0] == self.capsule]
            assert {row[1]: (row[2], row[3]) for row in capsules} == self.capsule_model
            entries = [row for row in store.rows("deployment_entry") if row[0] == self.deployment]
            assert {
                row[2]: (row[3], row[4]) for row in entries if row[4] is not None
            } == self.deployment_model

    def teardown(self) -> None:
        if len(self.stores) > 1:
            first, *others = (content(store, [0]) for store in self.stores)
            assert all(differences(first, other) == {} for other in others)


@contextmanager
def _machine(*stores: ProjectionStore) -> Iterator[type[Agreement]]:
    class Driven(Agreement):
        pass

    Driven.stores = stores
    yield Driven
    for store in stores:
        store.close()


@pytest.mark.row("X2", "D2", "D3", "C15", "C21")
def test_the_store_in_memory_agrees_with_a_dict() -> None:
    class Fresh(Agreement):
        def __init__(self) -> None:
            type(self).stores = (MemoryStore(),)
            super().__init__()

    run_state_machine_as_test(
        Fresh, settings=settings(max_examples=60, stateful_step_count=25, deadline=None)
    )


@pytest.mark.postgres
@pytest.mark.row("X2")
def test_memory_and_postgres_agree(postgres_admin_dsn: str) -> None:
    with fresh_database(postgres_admin_dsn) as dsn:
        set_up(dsn, MemoryLog(partition_count=1, clock=lambda: 0))
        with _machine(MemoryStore(), store_for(dsn)) as machine:
            checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
            few = settings(
                max_examples=12, stateful_step_count=20, deadline=None, suppress_health_check=checks
            )
            run_state_machine_as_test(machine, settings=few)
