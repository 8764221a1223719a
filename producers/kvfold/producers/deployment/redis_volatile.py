"""The volatile tier in Redis or Valkey, as other runtimes read and write it, too (003, "Durability tiers"; rows D8, D9).

```
HASH  octo:kv:<deployment>:<namespace>:<key>
      v    the value
      ver  its version: microseconds of Redis' clock when it was created, then one more with each write
      ts   milliseconds of Redis' clock when it was written last
```

An entry is one key, so it is evicted as a whole. Comparing and writing is one script in the server; listing and sweeping
goes in steps of `SCAN`, between which the server serves others. A write whose answer is lost is not repeated: nobody could
tell it from a write of another's.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from time import monotonic
from typing import Any, Final

from redis import BlockingConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from kvfold.producers.deployment.volatile import (
    SweepError,
    VolatileHealth,
    VolatileUnavailableError,
    check_volatile_deployment,
    check_volatile_page,
    check_volatile_place,
)
from kvfold.reads.deployment import DeploymentObject, DeploymentValue, ObjectPage
from kvfold.reads.paging import page_range
from kvfold.schemas.errors import ConfigurationError
from kvfold.schemas.limits import PAGE_LIMIT_DEFAULT
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.precondition import Precondition
from kvfold.schemas.tiers import Tier, tier_of

__all__ = ["RedisVolatileTier"]

_PREFIX: Final = "octo:kv:"
_CONNECTIONS_MAX: Final = 128
_CONNECTION_WAIT_S: Final = 2.0
_CONNECT_TIMEOUT_S: Final = 1.0
_ANSWER_TIMEOUT_S: Final = 2.0
# An answer over HTTP has 8 seconds, of which the last step may take all that a command may.
_SCAN_TIMEOUT_S: Final = 5.0
_SCAN_COUNT: Final = 1_000
_GLOB: Final = re.compile(rb"[*?\[\]\\^-]")


class RedisVolatileTier:
    """The tier of one Redis server. Connects when it is used, and again when the server was away."""

    def __init__(self, url: str) -> None:
        """`url`: `redis://`, `rediss://` or `unix://`, with what redis-py takes in it.

        Raises:
            ConfigurationError: it is none. The text never shows it: it may hold a password.
        """
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS_MAX,
                timeout=_CONNECTION_WAIT_S,
                socket_connect_timeout=_CONNECT_TIMEOUT_S,
                socket_timeout=_ANSWER_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
                # Enough for all that is asked, and nothing is pushed in between.
                protocol=2,
            )
        except (ValueError, TypeError):
            raise ConfigurationError(
                "REDIS_URL is a value that is not shown: accepted is a URL such as redis://host:6379/0, rediss://… (TLS) "
                "or unix://…"
            ) from None
        # Values are bytes, whatever the URL says.
        pool.connection_kwargs["decode_responses"] = False
        # redis-py types a call as its answer or a coroutine of it.
        self._redis: Any = Redis(connection_pool=pool)
        self._put = self._redis.register_script(_script("put"))
        self._delete = self._redis.register_script(_script("delete"))

    def entries(self, deployment_id: str) -> _Entries:
        """As `VolatileTier.entries`."""
        check_volatile_deployment(deployment_id)
        return _Entries(self, deployment_id)

    def sweep(self, deployment_id: str) -> int:
        """As `VolatileTier.sweep`; within about seven seconds."""
        check_volatile_deployment(deployment_id)
        removed = 0
        try:
            for found in self.scanned(f"{_PREFIX}{deployment_id}:"):
                with _translated():
                    removed += self._redis.execute_command("UNLINK", *found)
        except VolatileUnavailableError as error:
            raise SweepError(str(error), removed=removed) from error
        return removed

    def health(self) -> VolatileHealth:
        """As `VolatileTier.health`: of the server, and of the database that the URL names."""
        with _translated():
            pipeline = self._redis.pipeline(transaction=False)
            memory, stats, keys = pipeline.info("memory").info("stats").dbsize().execute()
        return VolatileHealth(
            memory_used_bytes=memory["used_memory"],
            memory_max_bytes=memory["maxmemory"] or None,
            hits=stats["keyspace_hits"],
            misses=stats["keyspace_misses"],
            evicted_keys=stats["evicted_keys"],
            keys=keys,
        )

    def close(self) -> None:
        """As `VolatileTier.close`."""
        self._redis.close()
        self._redis.connection_pool.disconnect()

    # --- what the entries of a deployment do ---

    def get(self, name: bytes) -> DeploymentValue | None:
        """One entry; what has no version is none of ours."""
        with _translated():
            value, version = self._redis.execute_command("HMGET", name, "v", "ver")
        return None if version is None else DeploymentValue(value or b"", int(version))

    def put(self, name: bytes, value: bytes, expected: Precondition) -> Decision:
        """Compares and writes, as one step."""
        with _translated():
            return _decision(self._put(keys=[name], args=[value, *_arguments(expected)]))

    def delete(self, name: bytes, expected: Precondition) -> Decision:
        """Compares and removes, as one step."""
        with _translated():
            return _decision(self._delete(keys=[name], args=_arguments(expected)))

    def objects(self, base: bytes, keys: list[str]) -> Iterator[DeploymentObject]:
        """What a listing says of these keys, but for those that are gone."""
        with _translated():
            pipeline = self._redis.pipeline(transaction=False)
            for key in keys:
                name = base + key.encode()
                pipeline.execute_command("HMGET", name, "ver", "ts")
                pipeline.execute_command("HSTRLEN", name, "v")
            answers = pipeline.execute()
        for key, (version, updated_ms), size in zip(keys, answers[::2], answers[1::2], strict=True):
            if version is not None:
                yield DeploymentObject(key, int(version), size, int(updated_ms or 0))

    def scanned(self, prefix: str) -> Iterator[list[bytes]]:
        """The names that begin with a text, by batches; a name may come twice.

        Raises:
            VolatileUnavailableError: also where the database has more keys than can be looked through in time.
        """
        deadline = monotonic() + _SCAN_TIMEOUT_S
        literal = prefix.encode()
        pattern = _GLOB.sub(rb"\\\g<0>", literal) + b"*"
        cursor: Any = 0
        while True:
            with _translated():
                cursor, found = self._redis.execute_command(
                    "SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT
                )
            # The pattern says the same; what a mistake in it would remove is not ours.
            batch = [name for name in found if name.startswith(literal)]
            if batch:
                yield batch
            if int(cursor) == 0:
                return
            if monotonic() > deadline:
                raise VolatileUnavailableError("the volatile tier has too many keys to look through in time")


class _Entries:
    """`VolatileEntries` of one deployment."""

    def __init__(self, tier: RedisVolatileTier, deployment_id: str) -> None:
        self._tier = tier
        self._base = f"{_PREFIX}{deployment_id}:"

    def get(self, namespace: str, key: str) -> DeploymentValue | None:
        check_volatile_place(namespace, key)
        return self._tier.get(self._name(namespace, key))

    def put(self, namespace: str, key: str, value: bytes, *, expected: Precondition) -> Decision:
        check_volatile_place(namespace, key, value)
        return self._tier.put(self._name(namespace, key), value, expected)

    def delete(self, namespace: str, key: str, *, expected: Precondition) -> Decision:
        check_volatile_place(namespace, key)
        return self._tier.delete(self._name(namespace, key), expected)

    def list(
        self, namespace: str, *, prefix: str = "", cursor: str | None = None, limit: int = PAGE_LIMIT_DEFAULT
    ) -> ObjectPage:
        check_volatile_page(namespace, prefix=prefix, cursor=cursor, limit=limit)
        base = f"{self._base}{namespace}:"
        start, end = page_range(prefix, cursor)
        first = set[str]()
        for found in self._tier.scanned(base + prefix):
            first.update(key for key in _keys(found, base) if start <= key < end)
            # Only as many as the page can need, and one that says whether there are more.
            first = set(heapq.nsmallest(limit + 1, first))
        keys = sorted(first)
        objects = tuple(self._tier.objects(base.encode(), keys[:limit]))
        return ObjectPage(objects, keys[limit - 1] if len(keys) > limit else None)

    def namespaces(self) -> tuple[str, ...]:
        found = (
            key.partition(":")[0]
            for batch in self._tier.scanned(self._base)
            for key in _keys(batch, self._base)
        )
        return tuple(sorted({name for name in found if tier_of(name) is Tier.VOLATILE}))

    def _name(self, namespace: str, key: str) -> bytes:
        return f"{self._base}{namespace}:{key}".encode()


def _script(name: str) -> str:
    scripts = files("kvfold.producers.deployment") / "lua"
    return "\n".join((scripts / f"{part}.lua").read_text("utf-8") for part in ("holds", name))


def _arguments(expected: Precondition) -> list[str]:
    """A precondition as the scripts read it."""
    return [expected.kind.value, "1" if expected.negated else "0", *expected.values]


def _decision(answer: list[Any]) -> Decision:
    is_applied, version = answer
    if is_applied:
        return Decision(DecisionStatus.APPLIED, version=int(version))
    return Decision(DecisionStatus.CONFLICT, "version-conflict", version=int(version))


def _keys(names: list[bytes], base: str) -> Iterator[str]:
    """The keys in these names; one that is not UTF-8 was written by a stranger, and nobody can ask for it."""
    start = len(base.encode())
    for name in names:
        try:
            yield name[start:].decode()
        except UnicodeDecodeError:
            continue


@contextmanager
def _translated() -> Iterator[None]:
    """redis-py's errors as ours; without its texts, which name hosts."""
    try:
        yield
    except RedisError as error:
        raise VolatileUnavailableError(_sentence(error)) from error


def _sentence(error: RedisError) -> str:
    match error:
        case OutOfMemoryError():
            return "Redis is full and evicts nothing: its maxmemory-policy must be allkeys-lru"
        case AuthenticationError() | NoPermissionError():
            return "Redis refuses the credentials in REDIS_URL"
        case ResponseError():
            return "Redis refuses the command: the key may hold what is no entry, or the server may be no primary"
        case _:
            return "the volatile tier does not answer"
