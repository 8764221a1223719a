"""The standalone store under the contract: every tier, in files and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.object_store_contract import ObjectStoreContract, fresh_namespace
from kvfold.producers.deployment.entries import EntriesStore
from kvfold.producers.deployment.standalone import StandaloneStorage

__all__: list[str] = []


class _StandaloneContract(ObjectStoreContract):
    @pytest.fixture
    def store(self, storage: StandaloneStorage) -> EntriesStore:
        return EntriesStore(storage.entries("dep"))

    @pytest.fixture
    def other_store(self, storage: StandaloneStorage) -> EntriesStore:
        return EntriesStore(storage.entries("Dep"))

    @pytest.fixture(params=["", "_secrets", "_volatile"])
    def namespace(self, request: pytest.FixtureRequest) -> str:
        return fresh_namespace(request.param)

    @pytest.fixture(params=["", "_volatile"])
    def listed(self, request: pytest.FixtureRequest) -> str:
        return fresh_namespace(request.param)


@pytest.mark.row("D15")
class TestInFiles(_StandaloneContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[StandaloneStorage]:
        storage = StandaloneStorage(tmp_path / "store")
        yield storage
        storage.close()


@pytest.mark.row("D15")
class TestInMemory(_StandaloneContract):
    @pytest.fixture
    def storage(self) -> Iterator[StandaloneStorage]:
        storage = StandaloneStorage(None)
        yield storage
        storage.close()
