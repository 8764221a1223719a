"""The volatile tier in a real Redis: its layout, other runtimes beside it, eviction, sweeps, and a server that is away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from kvfold.producers.deployment import ConflictError, DeploymentValue, EntriesStore
from kvfold.producers.deployment.memory_volatile import MemoryVolatileTier
from kvfold.producers.deployment.redis_volatile import RedisVolatileTier
from kvfold.producers.deployment.volatile import SweepError, VolatileTier, VolatileUnavailableError
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.outcome import DecisionStatus
from kvfold.schemas.precondition import ABSENT, ANY, PRESENT, Precondition
from support.redis_server import RedisServer

__all__: list[str] = []

pytestmark = pytest.mark.row("D8")

_NAMESPACE = "user_volatile"


@pytest.fixture
def tier(redis_url: str) -> Iterator[RedisVolatileTier]:
    with closing(RedisVolatileTier(redis_url)) as tier:
        yield tier


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    """Another runtime, which knows the layout and nothing of us."""
    with Redis.from_url(redis_url) as client:
        yield client


def _store(tier: VolatileTier, deployment_id: str = "dep") -> EntriesStore:
    return EntriesStore(tier.entries(deployment_id))


# --- the layout ---


def test_an_entry_is_one_hash_under_the_documents_key(tier: RedisVolatileTier, client: Redis) -> None:
    began_us = time.time_ns() // 1_000
    version = _store(tier).put(_NAMESPACE, "a:b/c", b"\x00\xff")
    found = client.hgetall("octo:kv:dep:user_volatile:a:b/c")
    assert found.keys() == {b"v", b"ver", b"ts"}
    assert found[b"v"] == b"\x00\xff" and int(found[b"ver"]) == version
    # A create takes Redis' microseconds, which is this machine's clock here; `ts` has milliseconds.
    assert began_us <= version <= time.time_ns() // 1_000
    assert abs(int(found[b"ts"]) - version // 1_000) <= 1
    assert _store(tier).put(_NAMESPACE, "a:b/c", b"", expected=version) == version + 1
    assert client.hget("octo:kv:dep:user_volatile:a:b/c", "ver") == str(version + 1).encode()


def test_a_delete_leaves_nothing(tier: RedisVolatileTier, client: Redis) -> None:
    store = _store(tier)
    store.put(_NAMESPACE, "k", b"v")
    store.delete(_NAMESPACE, "k")
    assert client.dbsize() == 0


@pytest.mark.row("D9")
def test_another_runtime_reads_and_writes_the_same_entries(tier: RedisVolatileTier, client: Redis) -> None:
    store = _store(tier)
    client.hset("octo:kv:dep:user_volatile:theirs", mapping={"v": b"x", "ver": 41, "ts": 1_760_000_000_000})
    assert store.get(_NAMESPACE, "theirs") == DeploymentValue(b"x", 41)
    [listed] = store.list(_NAMESPACE).objects
    assert (listed.key, listed.version, listed.size, listed.updated_ms) == (
        "theirs",
        41,
        1,
        1_760_000_000_000,
    )
    assert store.put(_NAMESPACE, "theirs", b"y", expected=41) == 42
    client.delete("octo:kv:dep:user_volatile:theirs")
    assert store.get(_NAMESPACE, "theirs") is None
    with pytest.raises(ConflictError):
        store.put(_NAMESPACE, "theirs", b"z", expected=42)


def test_versions_beyond_what_a_double_holds_are_exact(tier: RedisVolatileTier, client: Redis) -> None:
    version = 2**53 + 1
    client.hset("octo:kv:dep:user_volatile:k", mapping={"v": b"", "ver": version, "ts": 1})
    with pytest.raises(ConflictError) as caught:
        _store(tier).put(_NAMESPACE, "k", b"", expected=version - 1)
    assert caught.value.version == version
    assert _store(tier).put(_NAMESPACE, "k", b"", expected=version) == version + 1


def test_what_is_no_entry_is_none_of_ours(tier: RedisVolatileTier, client: Redis) -> None:
    store = _store(tier)
    client.hset("octo:kv:dep:user_volatile:half", mapping={"v": b"x"})
    assert store.get(_NAMESPACE, "half") is None and store.list(_NAMESPACE).objects == ()
    assert store.put(_NAMESPACE, "half", b"whole") > 0
    client.set("octo:kv:dep:user_volatile:text", b"x")
    client.hset(b"octo:kv:dep:user_volatile:\xff", mapping={"v": b"x", "ver": 1, "ts": 1})
    client.hset("octo:kv:dep:user:k", mapping={"v": b"x", "ver": 1, "ts": 1})
    for call in (lambda: store.get(_NAMESPACE, "text"), lambda: store.put(_NAMESPACE, "text", b"y")):
        with pytest.raises(VolatileUnavailableError, match="no entry"):
            call()
    client.delete("octo:kv:dep:user_volatile:text")
    assert [item.key for item in store.list(_NAMESPACE).objects] == ["half"]
    assert tier.entries("dep").namespaces() == (_NAMESPACE,)


@pytest.mark.parametrize(
    ("expected", "absent", "present"),
    [
        (ANY, True, True),
        (ABSENT, True, False),
        (PRESENT, False, True),
        (Precondition.version(7), False, True),
        (Precondition.version(3, 7), False, True),
        (Precondition.version(8), False, False),
        (Precondition.version(7, negated=True), True, False),
        (Precondition.version(8, negated=True), True, True),
    ],
)
@pytest.mark.parametrize("kind", ["redis", "memory"])
def test_every_precondition_is_decided_as_in_the_log(
    kind: str, expected: Precondition, absent: bool, present: bool, tier: RedisVolatileTier, client: Redis
) -> None:
    entries = (tier if kind == "redis" else MemoryVolatileTier()).entries("dep")
    if kind == "redis":
        client.hset("octo:kv:dep:user_volatile:k", mapping={"v": b"", "ver": 7, "ts": 1})
        current = 7
    else:
        current = entries.put(_NAMESPACE, "k", b"", expected=ABSENT).version or 0
        values = tuple(str(current) if value == "7" else value for value in expected.values)
        expected = Precondition(expected.kind, values, expected.negated)
    put = entries.put(_NAMESPACE, "new", b"", expected=expected)
    assert (put.status is DecisionStatus.APPLIED, put.code) == (
        absent,
        None if absent else "version-conflict",
    )
    assert absent or put.version == 0
    removed = entries.delete(_NAMESPACE, "never", expected=expected)
    assert (removed.status, removed.version) == (DecisionStatus.APPLIED, 0)
    deleted = entries.delete(_NAMESPACE, "k", expected=expected)
    assert (deleted.status is DecisionStatus.APPLIED, deleted.version) == (present, current)


# --- names ---


@pytest.mark.parametrize("kind", ["redis", "memory"])
def test_a_colon_is_refused_on_every_verb(kind: str, tier: RedisVolatileTier) -> None:
    """Else namespace a:b with key k, and namespace a with key b:k, would be one key."""
    chosen: VolatileTier = tier if kind == "redis" else MemoryVolatileTier()
    entries = chosen.entries("dep")
    for namespace in ("a:b_volatile", ":_volatile"):
        for call in (
            lambda name=namespace: entries.get(name, "k"),
            lambda name=namespace: entries.put(name, "k", b"", expected=ANY),
            lambda name=namespace: entries.delete(name, "k", expected=ANY),
            lambda name=namespace: entries.list(name),
        ):
            with pytest.raises(InvalidError, match="holds ':'") as caught:
                call()
            assert caught.value.code == "invalid-namespace"
    for verb in (chosen.entries, chosen.sweep):
        with pytest.raises(InvalidError, match="holds ':'") as caught:
            verb("a:b")
        assert caught.value.code == "malformed-name"


@pytest.mark.parametrize("kind", ["redis", "memory"])
def test_only_volatile_namespaces_are_taken(kind: str, tier: RedisVolatileTier) -> None:
    entries = (tier if kind == "redis" else MemoryVolatileTier()).entries("dep")
    for namespace, code in {
        "user": "invalid-namespace",
        "user_secrets": "invalid-namespace",
        "user_secrets_volatile": "secret-and-volatile",
    }.items():
        with pytest.raises(InvalidError) as caught:
            entries.put(namespace, "k", b"", expected=ANY)
        assert caught.value.code == code


# --- sweeps and lists ---


@pytest.mark.row("D16")
@pytest.mark.parametrize("deployment_id", ["dep", "d*p", "d?p", "d[e]p", "d\\*", "*", "d^p", "[a-z]"])
def test_a_sweep_takes_its_deployment_and_no_neighbour(
    deployment_id: str, tier: RedisVolatileTier, client: Redis
) -> None:
    neighbours = [name for name in ("dep", "depp", "de", "d", "dep*", "x") if name != deployment_id]
    for name in (deployment_id, *neighbours):
        for namespace in (_NAMESPACE, "system_volatile"):
            _store(tier, name).put(namespace, "a:b*", b"v")
    client.set("octo:kv", b"something else")
    assert tier.sweep(deployment_id) == 2
    assert tier.sweep(deployment_id) == 0
    assert _store(tier, deployment_id).get(_NAMESPACE, "a:b*") is None
    assert all(_store(tier, name).get(_NAMESPACE, "a:b*") for name in neighbours)
    assert client.get("octo:kv") == b"something else"


def test_lists_and_sweeps_go_in_steps_that_never_block_the_server(
    tier: RedisVolatileTier, client: Redis
) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for number in range(5_000):
            pipeline.hset(f"octo:kv:dep:user_volatile:k{number:04}", mapping={"v": b"v", "ver": 1, "ts": 1})
            pipeline.set(f"other:{number}", b"")
        pipeline.execute()
    client.config_resetstat()
    store = _store(tier)
    keys, cursor = list[str](), None
    while True:
        page = store.list(_NAMESPACE, prefix="k", cursor=cursor, limit=1_024)
        keys += [item.key for item in page.objects]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert keys == [f"k{number:04}" for number in range(5_000)]
    assert tier.entries("dep").namespaces() == (_NAMESPACE,)
    assert tier.sweep("dep") == 5_000
    assert client.dbsize() == 5_000
    used = set(client.info("commandstats"))
    assert used <= {"cmdstat_scan", "cmdstat_hmget", "cmdstat_hstrlen", "cmdstat_unlink"} | {
        "cmdstat_config|resetstat",
        "cmdstat_dbsize",
        "cmdstat_info",
        "cmdstat_select",
    }
    steps = client.info("commandstats")["cmdstat_scan"]["calls"]
    assert steps >= 5 * 10, "at most a thousand keys are looked at in one step"


# --- eviction ---


def test_an_evicted_entry_is_a_miss_and_can_be_made_again(tmp_path: Path) -> None:
    options = {"maxmemory": "4mb", "maxmemory-policy": "allkeys-lru"}
    with RedisServer(tmp_path, **options) as server, closing(RedisVolatileTier(server.url)) as tier:
        store = _store(tier)
        versions = {f"k{number}": store.put(_NAMESPACE, f"k{number}", bytes(20_000)) for number in range(300)}
        health = tier.health()
        assert health.evicted_keys > 0 and health.keys < 300
        assert health.memory_max_bytes == 4 * 1024 * 1024 and health.memory_used_bytes > 0
        missing = [key for key in versions if store.get(_NAMESPACE, key) is None]
        assert missing, "some were evicted"
        key = missing[0]
        with pytest.raises(ConflictError) as caught:
            store.put(_NAMESPACE, key, b"", expected=versions[key])
        assert caught.value.version is None
        store.delete(_NAMESPACE, key, expected=versions[key])
        assert store.put(_NAMESPACE, key, b"again") > versions[key]
        rate = tier.health().hit_rate
        assert rate is not None and 0 < rate < 1


def test_memory_evicts_the_least_recently_used() -> None:
    tier = MemoryVolatileTier(bytes_max=10_000)
    store = _store(tier)
    first = store.put(_NAMESPACE, "first", bytes(2_000))
    for number in range(20):
        store.put(_NAMESPACE, f"k{number}", bytes(2_000))
        assert store.get(_NAMESPACE, "first") is not None
    health = tier.health()
    assert health.evicted_keys > 10 and health.memory_used_bytes <= 10_000 == health.memory_max_bytes
    assert store.get(_NAMESPACE, "k0") is None
    assert store.put(_NAMESPACE, "k0", b"") > first
    assert (health.hits, health.misses, health.hit_rate) == (20, 0, 1.0)


def test_a_server_that_may_not_evict_says_so(tmp_path: Path) -> None:
    options = {"maxmemory": "2mb", "maxmemory-policy": "noeviction"}
    with RedisServer(tmp_path, **options) as server, closing(RedisVolatileTier(server.url)) as tier:
        store = _store(tier)
        with pytest.raises(VolatileUnavailableError, match="must be allkeys-lru"):
            for number in range(1_000):
                store.put(_NAMESPACE, f"k{number}", bytes(20_000))
        assert store.get(_NAMESPACE, "k0") is not None


# --- a server that is away ---


def test_a_restarted_server_is_empty_and_used_again(own_redis_server: RedisServer) -> None:
    with closing(RedisVolatileTier(own_redis_server.url)) as tier:
        store = _store(tier)
        before = store.put(_NAMESPACE, "k", b"v")
        own_redis_server.restart()
        assert store.get(_NAMESPACE, "k") is None
        # The script is gone, too, and is sent again; no version comes back.
        again = store.put(_NAMESPACE, "k", b"v")
        assert again > before
        with pytest.raises(ConflictError):
            store.put(_NAMESPACE, "k", b"stale", expected=before)


def test_a_server_that_is_away_is_said_on_every_verb(own_redis_server: RedisServer) -> None:
    with closing(RedisVolatileTier(own_redis_server.url)) as tier:
        store = _store(tier)
        store.put(_NAMESPACE, "k", b"v")
        own_redis_server.kill()
        for call in (
            lambda: store.get(_NAMESPACE, "k"),
            lambda: store.put(_NAMESPACE, "k", b""),
            lambda: store.delete(_NAMESPACE, "k"),
            lambda: store.list(_NAMESPACE),
            lambda: tier.entries("dep").namespaces(),
            tier.health,
        ):
            with pytest.raises(VolatileUnavailableError) as caught:
                call()
            assert caught.value.code == "volatile-unavailable"
            assert "127.0.0.1" not in str(caught.value)
        with pytest.raises(SweepError) as failed:
            tier.sweep("dep")
        assert failed.value.removed == 0
        own_redis_server.start()
        assert store.put(_NAMESPACE, "k", b"") > 0


def test_a_server_that_hangs_is_given_up(own_redis_server: RedisServer) -> None:
    """SIGSTOP: the kernel still takes connections. What was asked may be done later, and is not asked twice."""
    with closing(RedisVolatileTier(own_redis_server.url)) as tier:
        store = _store(tier)
        version = store.put(_NAMESPACE, "k", b"v")
        own_redis_server.pause()
        try:
            with pytest.raises(VolatileUnavailableError):
                store.put(_NAMESPACE, "k", b"perhaps", expected=version)
        finally:
            own_redis_server.resume()
        found = store.get(_NAMESPACE, "k")
        assert found is not None and found.version in (version, version + 1)


def test_scripts_that_were_flushed_are_sent_again(tier: RedisVolatileTier, client: Redis) -> None:
    store = _store(tier)
    version = store.put(_NAMESPACE, "k", b"v")
    client.script_flush()
    assert store.put(_NAMESPACE, "k", b"w", expected=version) == version + 1
    client.script_flush()
    store.delete(_NAMESPACE, "k", expected=version + 1)
    assert client.dbsize() == 0


def test_a_password_is_used_and_never_said(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        with server.client() as client:
            client.config_set("requirepass", "hush")
        good = server.url.replace("redis://", "redis://:hush@")
        with closing(RedisVolatileTier(good)) as tier:
            assert _store(tier).put(_NAMESPACE, "k", b"v") > 0
        for url in (server.url, server.url.replace("redis://", "redis://:hushed@")):
            with closing(RedisVolatileTier(url)) as tier:
                with pytest.raises(VolatileUnavailableError, match="credentials in REDIS_URL") as caught:
                    _store(tier).get(_NAMESPACE, "k")
                assert "hush" not in str(caught.value) + repr(caught.value)


def test_a_url_that_asks_for_text_still_gives_bytes(redis_url: str) -> None:
    with closing(RedisVolatileTier(f"{redis_url}?decode_responses=true")) as tier:
        store = _store(tier)
        version = store.put(_NAMESPACE, "k", b"\xff")
        assert store.get(_NAMESPACE, "k") == DeploymentValue(b"\xff", version)
        assert [item.key for item in store.list(_NAMESPACE).objects] == ["k"]
