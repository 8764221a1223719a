"""Bench `deployment-put`: a persistent put as a runtime makes it, over HTTP, against the same put by the SDK.

Milliseconds at the median of one writer. Over HTTP: `HttpStore` in this process, `kvfold gateway` in another. The SDK:
`DeploymentClient` in this process. Both on one topic, folded by one `kvfold projector`. The floor is kvfold's own here: what
is measured is what HTTP adds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from statistics import median
from typing import Final

from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, free_port, kvfold_process
from kvfold.deploy.bench.workload import VALUE_BYTES
from kvfold.log.kafka import KafkaLog
from kvfold.producers.client import Client
from kvfold.producers.deployment import HttpStore

__all__ = ["SPEC", "run"]

SPEC: Final = Spec("deployment-put", "ms", target=1.5, more_is_better=False)

_NAMESPACE: Final = "bench"
_HOST: Final = "127.0.0.1"
_WARM_UP: Final = 50
_START_TIMEOUT_S: Final = 60.0


def run(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Puts over HTTP and by the SDK in turn."""
    rounds = []
    value = bytes(VALUE_BYTES)
    numbers = itertools.count()
    port = free_port()
    with (
        stage.topic() as kafka,
        stage.database() as dsn,
        kvfold_process("projector", kafka=kafka, dsn=dsn),
        kvfold_process("gateway", kafka=kafka, dsn=dsn, HOST=_HOST, PORT=str(port)),
        Client(KafkaLog.open(kafka), dsn, source="/kvfold/bench") as client,
        closing(HttpStore(f"http://{_HOST}:{port}", "bench", timeout_s=_START_TIMEOUT_S)) as store,
    ):
        deployment = client.deployment("bench")

        def by_http() -> None:
            store.put(_NAMESPACE, f"http-{next(numbers)}", value)

        def by_sdk() -> None:
            deployment.put(_NAMESPACE, f"sdk-{next(numbers)}", value, expected=0)

        # The store waits until gateway and projector are up.
        _p50_ms(by_http, _WARM_UP)
        _p50_ms(by_sdk, _WARM_UP)
        for number in range(1, sizes.write_rounds + 1):
            figure, floor = _p50_ms(by_http, sizes.writes), _p50_ms(by_sdk, sizes.writes)
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.write_rounds}: {figure:.2f} ms, the SDK {floor:.2f} ms")
    return Result.of(SPEC, rounds)


def _p50_ms(act: Callable[[], None], count: int) -> float:
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    return median(times) * 1_000
