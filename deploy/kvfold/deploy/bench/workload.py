"""What the benches write: 256-byte values under the keys of many capsule namespaces, in an order that looks random."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from random import Random
from typing import Final

from kvfold.log.kafka import KafkaLog
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.producers.mutations import capsule_set
from kvfold.producers.producer import Producer
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.names import capsule_scope
from kvfold.schemas.position import Position

__all__ = ["SCOPES", "VALUE_BYTES", "fill", "mutations", "path_of"]

VALUE_BYTES: Final = 256
SCOPES: Final = 2_000
_KEYS: Final = 10
_UNACKNOWLEDGED_MAX: Final = 2_000


def _places() -> list[tuple[int, int]]:
    """Every (scope number, key number), in the same shuffled order each time."""
    places = [(scope, key) for scope in range(SCOPES) for key in range(_KEYS)]
    Random(1).shuffle(places)
    return places


def mutations(count: int) -> Iterator[Mutation]:
    """So many writes; each key is written once before any is written again."""
    values = Random(2)
    places = _places()
    for number in range(count):
        scope, key = places[number % len(places)]
        yield capsule_set(
            capsule_scope(f"user-{scope:04}", "bench"), f"entry-{key}", values.randbytes(VALUE_BYTES)
        )


def path_of(mutation: Mutation) -> str:
    """Where the query API serves the key; the names need no escapes."""
    _, principal, _, capsule_id = mutation.scope.split(":")
    return f"/v1/capsules/{principal}/{capsule_id}/kv/{mutation.subject}"


def fill(kafka: KafkaSettings, count: int) -> None:
    """Writes `count` mutations into a topic through the SDK, and returns when all are acknowledged."""
    log = KafkaLog.open(kafka)
    try:
        producer = Producer(log, source="/kvfold/bench")
        sent: deque[Future[Position]] = deque()
        for mutation in mutations(count):
            sent.append(producer.send(mutation)[1])
            if len(sent) > _UNACKNOWLEDGED_MAX:
                sent.popleft().result()
        for position in sent:
            position.result()
    finally:
        log.close()
