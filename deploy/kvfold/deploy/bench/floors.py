"""The floors: the same work by the bare client libraries. Nothing of kvfold is imported here; a test makes sure.

Each floor runs in a process of its own, `python -m kvfold.deploy.bench.floors`, so that it shares neither the lock nor
the heap of the process that measures. That process is given one job as JSON on standard input, `{"floor": …, …}`, and
answers with one JSON object on standard output; `serve` runs until it is terminated.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter, time
from typing import Any, Final

__all__ = [
    "commit_latency",
    "copy_rows",
    "produce_latency",
    "read_points",
    "read_topic",
    "redis_rate",
    "serve_value",
]

_POLL_RECORDS_MAX: Final = 4_000
_FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
_SILENT_POLLS_MAX: Final = 60
_WARM_UP: Final = 50


def read_topic(*, client: dict[str, Any], topic: str, partitions: int, records: int) -> dict[str, float]:
    """Records a second of a consumer that reads a topic from its beginning: committed records, checksums verified."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        **client,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        check_crcs=True,
        fetch_max_bytes=_FETCH_BYTES_MAX,
        max_partition_fetch_bytes=_FETCH_BYTES_MAX,
        metrics_enabled=False,
    )
    consumer.partitions_for_topic(topic)  # connects, so that the connection is not timed
    assigned = [TopicPartition(topic, partition) for partition in range(partitions)]
    consumer.assign(assigned)
    for topic_partition in assigned:
        consumer.seek(topic_partition, 0)
    begun = perf_counter()
    count = silent = 0
    while count < records:
        polled = consumer.poll(timeout_ms=500, max_records=_POLL_RECORDS_MAX)
        count += sum(len(found) for found in polled.values())
        silent = 0 if polled else silent + 1
        if silent > _SILENT_POLLS_MAX:
            raise RuntimeError(f"the topic gave {count} of {records} records")
    seconds = perf_counter() - begun
    consumer.close()
    return {"per_second": records / seconds}


def copy_rows(*, dsn: str, source: str, tables: Sequence[str], records: int) -> dict[str, float]:
    """Records a second of binary COPY of the rows of a schema's tables into empty tables of the same columns and keys.

    One COPY a table, one transaction, not flushed. The rows are read beforehand, which is not timed.
    """
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute("DROP SCHEMA IF EXISTS bench_floor CASCADE")
        connection.execute("CREATE SCHEMA bench_floor")
        jobs: list[tuple[str, list[str], list[tuple[Any, ...]]]] = []
        for table in tables:
            connection.execute(f"CREATE TABLE bench_floor.{table} (LIKE {source}.{table} INCLUDING ALL)")
            types = connection.execute(
                "SELECT format_type(atttypid, NULL) FROM pg_attribute"
                " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                [f"{source}.{table}"],
            ).fetchall()
            rows = connection.execute(f"SELECT * FROM {source}.{table}", binary=True).fetchall()
            jobs.append((table, [row[0] for row in types], rows))
        begun = perf_counter()
        with connection.transaction(), connection.cursor() as cursor:
            for table, names, rows in jobs:
                with cursor.copy(f"COPY bench_floor.{table} FROM STDIN (FORMAT BINARY)") as copy:
                    copy.set_types(names)
                    for row in rows:
                        copy.write_row(row)
        seconds = perf_counter() - begun
        connection.execute("DROP SCHEMA bench_floor CASCADE")
    return {"per_second": records / seconds}


def produce_latency(*, client: dict[str, Any], topic: str, value_bytes: int, count: int) -> dict[str, float]:
    """Milliseconds at the median from a send to its acknowledgement: idempotent, all replicas, one record at a time."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        **client, acks="all", enable_idempotence=True, linger_ms=0, metrics_enabled=False
    )
    value = bytes(value_bytes)

    def write() -> None:
        producer.send(topic, key=b"floor", value=value, partition=0).get(timeout=10)

    result = {"p50_ms": _p50_ms(write, count)}
    producer.close()
    return result


def commit_latency(*, dsn: str, value_bytes: int, count: int) -> dict[str, float]:
    """Milliseconds at the median of an INSERT that is flushed to disk before it is answered."""
    import psycopg

    value = bytes(value_bytes)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("CREATE SCHEMA IF NOT EXISTS bench_floor")
        connection.execute("CREATE TABLE bench_floor.entry (key bigserial PRIMARY KEY, value bytea)")
        result = _p50_ms(
            lambda: connection.execute("INSERT INTO bench_floor.entry (value) VALUES (%b)", [value]), count
        )
        connection.execute("DROP SCHEMA bench_floor CASCADE")
    return {"p50_ms": result}


def listen_latency(*, dsn: str, count: int) -> dict[str, float]:
    """Milliseconds at the median from a moment in a transaction, just before its end, to a listener's wake-up.

    Commit (not flushed) and NOTIFY go in one round trip.
    """
    from threading import Thread

    import psycopg

    write = (
        "BEGIN; SET LOCAL synchronous_commit = off; UPDATE floor_commit SET at = clock_timestamp(); COMMIT; "
        "SELECT pg_notify('floor', (SELECT extract(epoch FROM at)::text FROM floor_commit))"
    )
    times: list[float] = []
    with psycopg.connect(dsn, autocommit=True) as writer, psycopg.connect(dsn, autocommit=True) as listener:
        writer.execute("CREATE TABLE IF NOT EXISTS floor_commit (at timestamptz)")
        writer.execute("TRUNCATE floor_commit")
        writer.execute("INSERT INTO floor_commit VALUES (clock_timestamp())")
        listener.execute("LISTEN floor")
        for _ in range(_WARM_UP + count):
            thread = Thread(target=writer.execute, args=(write,))
            thread.start()
            (notification,) = listener.notifies(timeout=60.0, stop_after=1)
            times.append(time() - float(notification.payload))
            thread.join()
    return {"p50_ms": median(times[_WARM_UP:]) * 1_000}


def read_points(
    *, dsn: str, statement: str, parameters: Sequence[Sequence[Any]], count: int
) -> dict[str, float]:
    """Rows a second of one statement by one connection, prepared and binary, a round trip a row."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = psycopg.RawCursor(connection)
        query = statement.encode()

        def read(number: int) -> None:
            cursor.execute(query, parameters[number % len(parameters)], prepare=True, binary=True)
            row = cursor.fetchone()
            assert row is not None and row[2] is not None

        for number in range(_WARM_UP):
            read(number)
        begun = perf_counter()
        for number in range(count):
            read(number)
        return {"per_second": count / (perf_counter() - begun)}


def _p50_ms(act: Callable[[], object], count: int) -> float:
    times = []
    for _ in range(_WARM_UP + count):
        begun = perf_counter()
        act()
        times.append(perf_counter() - begun)
    return median(times[_WARM_UP:]) * 1_000


def serve_value(*, dsn: str, statement: str, pool_size: int, server: dict[str, Any]) -> None:
    """Serves one route that runs one statement, `$1` = 0, `$2` = scope, `$3` = key; the value is its third column."""
    import uvicorn
    from psycopg import AsyncRawCursor
    from psycopg_pool import AsyncConnectionPool
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    query = statement.encode()
    connections = AsyncConnectionPool(
        dsn, min_size=1, max_size=pool_size, kwargs={"autocommit": True}, open=False
    )

    async def value(request: Request) -> Response:
        parts = request.path_params
        scope = f"c:{parts['principal']}:capsule:{parts['capsule']}"
        async with connections.connection() as connection:
            cursor = AsyncRawCursor(connection)
            await cursor.execute(query, (0, scope, parts["key"]), binary=True)
            row = await cursor.fetchone()
        if row is None or row[2] is None:
            return Response(status_code=404)
        return Response(row[2], media_type="application/octet-stream")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await connections.open()
        yield
        await connections.close()

    route = Route("/v1/capsules/{principal}/{capsule}/kv/{key:path}", value)
    uvicorn.run(Starlette(routes=[route], lifespan=lifespan), **server)


def redis_rate(*, url: str, command: str, value_bytes: int, count: int) -> dict[str, float]:
    """SETs or GETs a second of redis-py as it is, one connection, one after the other."""
    import os

    from redis import Redis

    value = os.urandom(value_bytes)
    prefix = f"kvfold:bench:{os.urandom(6).hex()}:"
    with Redis.from_url(url) as client:
        for number in range(_WARM_UP):
            client.set(f"{prefix}{number}", value)
        begun = perf_counter()
        for number in range(count):
            client.set(f"{prefix}{number}", value)
        if command == "get":
            begun = perf_counter()
            for number in range(count):
                client.get(f"{prefix}{number}")
        seconds = perf_counter() - begun
        for number in range(max(count, _WARM_UP)):
            client.unlink(f"{prefix}{number}")
    return {"per_second": count / seconds}


_FLOORS: Final[dict[str, Callable[..., dict[str, float] | None]]] = {
    "read": read_topic,
    "copy": copy_rows,
    "produce": produce_latency,
    "commit": commit_latency,
    "listen": listen_latency,
    "point-read": read_points,
    "redis": redis_rate,
    "serve": serve_value,
}


def _main() -> None:
    # As the projector has it; collecting after every 700 objects would slow the floors, too.
    gc.set_threshold(200_000, 50, 100)
    job = json.load(sys.stdin)
    print(json.dumps(_FLOORS[job.pop("floor")](**job)))


if __name__ == "__main__":
    _main()
