"""The volatile tier under the contract: in Redis, and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from conformance.object_store_contract import ObjectStoreContract, fresh_namespace
from kvfold.producers.deployment.entries import EntriesStore
from kvfold.producers.deployment.memory_volatile import MemoryVolatileTier
from kvfold.producers.deployment.redis_volatile import RedisVolatileTier
from kvfold.producers.deployment.volatile import VolatileTier

__all__: list[str] = []


class _VolatileContract(ObjectStoreContract):
    @pytest.fixture
    def store(self, tier: VolatileTier) -> EntriesStore:
        return EntriesStore(tier.entries(uuid4().hex))

    @pytest.fixture
    def other_store(self, tier: VolatileTier) -> EntriesStore:
        return EntriesStore(tier.entries(uuid4().hex))

    @pytest.fixture
    def namespace(self) -> str:
        return fresh_namespace("_volatile")

    @pytest.fixture
    def listed(self, namespace: str) -> str:
        return namespace


class TestRedisTier(_VolatileContract):
    @pytest.fixture
    def tier(self, redis_url: str) -> Iterator[VolatileTier]:
        tier = RedisVolatileTier(redis_url)
        yield tier
        tier.close()


class TestMemoryTier(_VolatileContract):
    @pytest.fixture
    def tier(self) -> VolatileTier:
        return MemoryVolatileTier()
