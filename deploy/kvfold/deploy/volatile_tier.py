"""The volatile tier of a process: the Redis that REDIS_URL names, or memory where one process is all there is."""

from __future__ import annotations

import structlog

from kvfold.log.settings import Settings
from kvfold.producers.deployment.memory_volatile import MemoryVolatileTier
from kvfold.producers.deployment.redis_volatile import RedisVolatileTier
from kvfold.producers.deployment.volatile import VolatileTier

__all__ = ["memory_or_redis_tier", "redis_tier"]

_log = structlog.get_logger(__name__)


def redis_tier(settings: Settings) -> VolatileTier | None:
    """The tier in Redis, None where no server is named. Asks nobody: a process starts while Redis is away.

    Raises:
        ConfigurationError: REDIS_URL is no URL of a Redis.
    """
    return None if settings.redis_url is None else RedisVolatileTier(settings.redis_url.get_secret_value())


def memory_or_redis_tier(settings: Settings) -> VolatileTier:
    """The tier in Redis, or in memory where no server is named, which the log then says. Raises as `redis_tier`."""
    tier = redis_tier(settings)
    if tier is None:
        _log.info("volatile tier in memory", hint="set REDIS_URL to keep it in a Redis")
        return MemoryVolatileTier()
    return tier
