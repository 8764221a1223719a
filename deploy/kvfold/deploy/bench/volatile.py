"""Benches `volatile-put` and `volatile-get`: the volatile tier as a runtime dials it, against bare redis-py.

Puts a second of one thread, each of another key that must be absent, compared in the server; the floor is `SET` of the same
keys and values. Gets a second of one thread, value and version; the floor is `GET`. Both on the Redis of REDIS_URL, or on
one that is started for the run.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import free_port, run_apart
from kvfold.deploy.bench.workload import VALUE_BYTES
from kvfold.log.settings import Settings
from kvfold.producers.deployment import EntriesStore
from kvfold.producers.deployment.redis_volatile import RedisVolatileTier
from kvfold.producers.deployment.volatile import VolatileTier, VolatileUnavailableError

__all__ = ["GET", "PUT", "run_get", "run_put"]

PUT: Final = Spec("volatile-put", "puts/s", target=0.5, more_is_better=True)
GET: Final = Spec("volatile-get", "gets/s", target=0.5, more_is_better=True)

_NAMESPACE: Final = "bench_volatile"
_WARM_UP: Final = 500
_START_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
_STOP_TIMEOUT_S: Final = 10.0


def run_put(settings: Settings, sizes: Sizes, tell: Tell) -> Result:
    """Puts, with the floor in turn."""
    return _run(PUT, "set", settings, sizes, tell)


def run_get(settings: Settings, sizes: Sizes, tell: Tell) -> Result:
    """Gets, with the floor in turn; every key is there."""
    return _run(GET, "get", settings, sizes, tell)


def _run(spec: Spec, command: str, settings: Settings, sizes: Sizes, tell: Tell) -> Result:
    rounds = []
    count = sizes.reads // 4
    value = secrets.token_bytes(VALUE_BYTES)
    with _redis(settings) as url, closing(RedisVolatileTier(url)) as tier:
        for number in range(1, sizes.read_rounds + 1):
            deployment_id = f"bench-{secrets.token_hex(6)}"
            store = EntriesStore(tier.entries(deployment_id))

            def put(key: str, store: EntriesStore = store) -> object:
                return store.put(_NAMESPACE, key, value)

            def get(key: str, store: EntriesStore = store) -> object:
                return store.get(_NAMESPACE, key)

            try:
                _rate(put, "warm-up", _WARM_UP)
                figure = _rate(put, "key", count)
                if spec is GET:
                    figure = _rate(get, "key", count)
            finally:
                tier.sweep(deployment_id)
            job = {
                "floor": "redis",
                "url": url,
                "command": command,
                "value_bytes": VALUE_BYTES,
                "count": count,
            }
            floor = float(run_apart("floors", job)["per_second"])
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.read_rounds}: {figure:,.0f}/s, floor {floor:,.0f}/s")
    return Result.of(spec, rounds)


def _rate(act: Callable[[str], object], prefix: str, count: int) -> float:
    begun = time.perf_counter()
    for number in range(count):
        act(f"{prefix}-{number}")
    return count / (time.perf_counter() - begun)


@contextmanager
def _redis(settings: Settings) -> Iterator[str]:
    """The URL of the Redis of the settings, or of one that is started and ended here."""
    if settings.redis_url is not None:
        yield settings.redis_url.get_secret_value()
        return
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise VolatileUnavailableError(
            "the benches of the volatile tier need a Redis: name one in REDIS_URL, or install redis-server"
        )
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kvfold-bench-") as folder:
        options = (
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            folder,
        )
        process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            with closing(RedisVolatileTier(url)) as tier:
                _await(tier)
            yield url
        finally:
            process.terminate()
            process.wait(_STOP_TIMEOUT_S)


def _await(tier: VolatileTier) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            tier.health()
            return
        except VolatileUnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
