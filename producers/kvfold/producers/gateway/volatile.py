"""The volatile tier from coroutines: its calls block, so they run in threads of their own.

The threads are few and belong to this tier alone: a Redis that hangs keeps them busy, and nothing else waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self, TypeVar

from kvfold.producers.deployment.volatile import (
    VolatileHealth,
    VolatileTier,
    VolatileUnavailableError,
)
from kvfold.reads.deployment import DeploymentValue, ObjectPage
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision

__all__ = ["VolatileCalls"]

T = TypeVar("T")

_THREADS_MAX: Final = 16
# The tier keeps its own times, which are shorter; this one is for what waits for a thread.
_TIMEOUT_S: Final = OPEN_WAIT_SECONDS_MAX - 0.5


class VolatileCalls:
    """The calls of a `VolatileTier` as coroutines; each raises what the tier's raises, within 8 seconds.

    Without a tier every call raises `VolatileUnavailableError`. `async with` ends the threads; the tier stays the caller's.
    """

    def __init__(self, tier: VolatileTier | None) -> None:
        self._tier = tier
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="volatile")

    @property
    def is_configured(self) -> bool:
        """Whether there is such a tier at all."""
        return self._tier is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def get(self, deployment_id: str, namespace: str, key: str) -> DeploymentValue | None:
        """As `VolatileEntries.get`."""
        return await self._run(lambda tier: tier.entries(deployment_id).get(namespace, key))

    async def write(self, deployment_id: str, mutation: Mutation) -> Decision:
        """What a put or a delete of an entry would be in the log, decided and done here."""
        namespace, key, body = mutation.namespace, mutation.subject, mutation.body
        assert namespace is not None and key is not None, "deployment mutations of an entry have both"
        expected = mutation.expected
        if body is None:
            return await self._run(
                lambda tier: tier.entries(deployment_id).delete(namespace, key, expected=expected)
            )
        return await self._run(
            lambda tier: tier.entries(deployment_id).put(namespace, key, body, expected=expected)
        )

    async def list(
        self, deployment_id: str, namespace: str, *, prefix: str, cursor: str | None, limit: int
    ) -> ObjectPage:
        """As `VolatileEntries.list`."""
        return await self._run(
            lambda tier: tier.entries(deployment_id).list(
                namespace, prefix=prefix, cursor=cursor, limit=limit
            )
        )

    async def namespaces(self, deployment_id: str) -> tuple[str, ...]:
        """As `VolatileEntries.namespaces`."""
        return await self._run(lambda tier: tier.entries(deployment_id).namespaces())

    async def sweep(self, deployment_id: str) -> int:
        """As `VolatileTier.sweep`."""
        return await self._run(lambda tier: tier.sweep(deployment_id))

    async def health(self) -> VolatileHealth:
        """As `VolatileTier.health`."""
        return await self._run(lambda tier: tier.health())

    async def _run(self, call: Callable[[VolatileTier], T]) -> T:
        tier = self._tier
        if tier is None:
            raise VolatileUnavailableError("no volatile tier is configured (REDIS_URL)")
        work = asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(tier))
        try:
            return await asyncio.wait_for(work, _TIMEOUT_S)
        except TimeoutError as error:
            raise VolatileUnavailableError("the volatile tier does not answer in time") from error
