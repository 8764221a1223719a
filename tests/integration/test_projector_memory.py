"""A projector that replays a long log needs the same memory at its end as at its beginning (Sekiban#931)."""

from __future__ import annotations

import subprocess
from collections import deque
from concurrent.futures import Future
from pathlib import Path

import pytest

from kvfold.log.kafka import KafkaLog
from kvfold.log.kafka_topic import create_topic
from kvfold.log.port import Appended
from kvfold.schemas.codec import encode
from kvfold.schemas.partitioning import partition_of
from support.kvfold_process import KvfoldProcess
from support.mutations import capsule_set, mutation_id
from support.projection import eventually, folded_offsets
from support.projectors import kafka_settings

RECORDS = 1_000_000
VALUE = b"v" * 256
RESIDENT_BYTES_MAX = 400 * 1024 * 1024
PARTITIONS = 12
_IN_FLIGHT = 5_000


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.postgres
def test_a_million_records_under_400_mib(kafka_bootstrap: str, postgres_dsn: str, tmp_path: Path) -> None:
    settings = kafka_settings(kafka_bootstrap, partitions=PARTITIONS)
    create_topic(settings)
    fill(KafkaLog.open(settings))
    environment = {
        "KVFOLD_POSTGRES": postgres_dsn,
        "KVFOLD_KAFKA": kafka_bootstrap,
        "KVFOLD_TOPIC": settings.topic,
        "KVFOLD_PARTITIONS": str(PARTITIONS),
        "KVFOLD_TELEMETRY_PORT": "0",
    }
    peak = 0
    with KvfoldProcess("projector", environment=environment, output=tmp_path / "projector.log") as projector:
        projector.wait_for_event("projector ready")

        def is_done() -> bool:
            nonlocal peak
            peak = max(peak, resident_bytes(projector.pid))
            return sum(folded_offsets(postgres_dsn).values()) >= RECORDS

        eventually(is_done, "a million records folded", timeout_s=1_200)
    print(f"peak resident memory: {peak / 1024 / 1024:.0f} MiB")
    assert 0 < peak < RESIDENT_BYTES_MAX


def fill(log: KafkaLog) -> None:
    scopes = [f"c:p{n}:capsule:notes" for n in range(2_000)]
    partitions = [partition_of(scope.encode(), PARTITIONS) for scope in scopes]
    waiting: deque[Future[Appended]] = deque()
    for number in range(RECORDS):
        at = number % len(scopes)
        key = f"k{number // len(scopes) % 10}"
        mutation = capsule_set(key, VALUE, scope=scopes[at], id_=mutation_id(number))
        waiting.append(log.append(partitions[at], encode(mutation)))
        if len(waiting) > _IN_FLIGHT:
            waiting.popleft().result(60)
    for future in waiting:
        future.result(60)
    log.close()


def resident_bytes(pid: int) -> int:
    answer = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return int(answer.stdout.strip() or 0) * 1024
