"""Gateway, Redis, memory, standalone and a dict, driven together by chance: the same answers, step by step.

Versions are compared by order and equality: each store has its own, and the model keeps which of them belong together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvfold.producers.deployment import (
    ConflictError,
    DeploymentObject,
    EntriesStore,
    HttpStore,
    ObjectStore,
    StandaloneStorage,
)
from kvfold.producers.deployment.memory_volatile import MemoryVolatileTier
from kvfold.producers.deployment.redis_volatile import RedisVolatileTier
from support.object_stores import running_gateway

if TYPE_CHECKING:
    from support.redis_server import RedisServer

__all__: list[str] = []

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

_KEYS = st.sampled_from(["k", "k/", ".", "..", "*", "a:b", "é", "k%2F"])
_VALUES = st.one_of(st.just(b""), st.binary(max_size=40))
# None: create, or unconditional. A number: the version that the key had so many writes ago. -1: one that it never had.
_EXPECTED = st.one_of(st.none(), st.just(-1), st.integers(0, 3))


class Agreement(RuleBasedStateMachine):
    """Five stores and a dict of (value, index of its version among those given)."""

    stores: ClassVar[dict[str, tuple[ObjectStore, str]]]

    def __init__(self) -> None:
        super().__init__()
        # A deployment cannot be made anew for each example; a namespace can.
        self.run = uuid4().hex[:12]
        self.model: dict[str, tuple[bytes, int]] = {}
        # For each store and key every version that it gave, oldest first.
        self.given: dict[str, dict[str, list[int]]] = {name: {} for name in self.stores}

    def _expected(self, name: str, key: str, ago: int | None) -> int:
        versions = self.given[name].get(key, [])
        if ago is None:
            return 0
        if ago == -1 or ago >= len(versions):
            return max(versions, default=0) + 1_000
        return versions[-1 - ago]

    def _conflicts(self, key: str, ago: int | None, *, of_put: bool) -> bool:
        """What the model says."""
        count = len(next(iter(self.given.values())).get(key, []))
        if key not in self.model:
            return of_put and ago is not None
        if ago is None:
            return of_put
        return ago == -1 or ago >= count or count - 1 - ago != self.model[key][1]

    @rule(key=_KEYS, value=_VALUES, ago=_EXPECTED)
    def put(self, key: str, value: bytes, ago: int | None) -> None:
        conflicts = self._conflicts(key, ago, of_put=True)
        for name, (store, suffix) in self.stores.items():
            expected = self._expected(name, key, ago)
            versions = self.given[name].setdefault(key, [])
            try:
                version = store.put(self._namespace(suffix), key, value, expected=expected)
            except ConflictError as conflict:
                assert conflicts, name
                self._check_conflict(name, key, conflict)
                continue
            assert not conflicts and version > max(versions, default=0), name
            versions.append(version)
        if not conflicts:
            self.model[key] = value, len(next(iter(self.given.values()))[key]) - 1

    @rule(key=_KEYS, ago=_EXPECTED)
    def delete(self, key: str, ago: int | None) -> None:
        conflicts = self._conflicts(key, ago, of_put=False)
        for name, (store, suffix) in self.stores.items():
            try:
                store.delete(self._namespace(suffix), key, expected=self._expected(name, key, ago))
            except ConflictError as conflict:
                assert conflicts, name
                self._check_conflict(name, key, conflict)
                continue
            assert not conflicts, name
        if not conflicts:
            self.model.pop(key, None)

    @rule(key=_KEYS)
    def get(self, key: str) -> None:
        for name, (store, suffix) in self.stores.items():
            found = store.get(self._namespace(suffix), key)
            if key not in self.model:
                assert found is None, name
                continue
            value, index = self.model[key]
            assert found is not None and (found.value, found.version) == (
                value,
                self.given[name][key][index],
            ), name

    @precondition(lambda self: self.model)
    @rule(prefix=st.sampled_from(["", "k", "k/", "*", "%", "a:"]), limit=st.integers(1, 4))
    def list(self, prefix: str, limit: int) -> None:
        expected = sorted((key for key in self.model if key.startswith(prefix)), key=str.encode)
        for name, (store, suffix) in self.stores.items():
            found, cursor = list[DeploymentObject](), None
            while True:
                page = store.list(self._namespace(suffix), prefix=prefix, cursor=cursor, limit=limit)
                found += page.objects
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert [item.key for item in found] == expected, name
            for item in found:
                value, index = self.model[item.key]
                assert (item.size, item.version) == (len(value), self.given[name][item.key][index]), name

    @invariant()
    def every_store_gave_as_many_versions(self) -> None:
        counts = [
            {key: len(versions) for key, versions in given.items() if versions}
            for given in self.given.values()
        ]
        assert all(count == counts[0] for count in counts)

    def _check_conflict(self, name: str, key: str, conflict: ConflictError) -> None:
        current = self.given[name][key][self.model[key][1]] if key in self.model else None
        assert conflict.version == current, name

    def _namespace(self, suffix: str) -> str:
        return f"n{self.run}{suffix}"


@pytest.fixture
def stores(
    postgres_admin_dsn: str, redis_server: RedisServer, tmp_path: Path
) -> Iterator[dict[str, tuple[ObjectStore, str]]]:
    """By name: a store, and the suffix of the namespaces that it is asked about."""
    with ExitStack() as parts:
        url = parts.enter_context(running_gateway(postgres_admin_dsn, redis_server.url, tmp_path))
        gateway = parts.enter_context(closing(HttpStore(url, "dep")))
        redis = parts.enter_context(closing(RedisVolatileTier(redis_server.url)))
        standalone = parts.enter_context(closing(StandaloneStorage(tmp_path / "store")))
        yield {
            "gateway": (gateway, ""),
            "gateway, volatile": (gateway, "_volatile"),
            "redis": (EntriesStore(redis.entries("direct")), "_volatile"),
            "memory": (EntriesStore(MemoryVolatileTier().entries("dep")), "_volatile"),
            "standalone": (EntriesStore(standalone.entries("dep")), ""),
        }


@pytest.mark.row("D7", "D8", "D15")
def test_every_store_and_a_dict_agree(stores: dict[str, tuple[ObjectStore, str]]) -> None:
    machine = type("Driven", (Agreement,), {"stores": stores})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
