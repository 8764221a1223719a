"""Fixtures for servers. A server starts when the first test asks for it: unit tests start none.

What runs the servers is imported by the fixtures themselves: the clients take half a second, which unit tests need not wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kvfold.deploy.embedded_postgres import EmbeddedPostgres
    from support.broker import Broker
    from support.redis_server import RedisServer

__all__: list[str] = []


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that all tests share. Nobody stops it; topics are the test's own."""
    from support.servers import shared_broker

    with shared_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_broker: Broker) -> str:
    """The shared broker's address, `host:port`."""
    return kafka_broker.bootstrap


@pytest.fixture
def own_kafka_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker for one test, which may kill it, pause it and `restart` it."""
    from support.servers import own_broker

    with own_broker(tmp_path / "kafka") as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """The PostgreSQL server that all tests share. Nobody stops it; databases are the test's own."""
    from kvfold.deploy.embedded_postgres import EmbeddedPostgres
    from support.orphans import Leash

    with EmbeddedPostgres.start(tmp_path_factory.mktemp("postgres") / "data") as server:
        leash = Leash(server.pid)
        yield server
        leash.release()


@pytest.fixture(scope="session")
def postgres_admin_dsn(request: pytest.FixtureRequest) -> str:
    """A superuser's connection string: of the server in `KVFOLD_TEST_POSTGRES`, else of `postgres_server`."""
    named = os.environ.get("KVFOLD_TEST_POSTGRES")
    if named:
        return named
    server: EmbeddedPostgres = request.getfixturevalue("postgres_server")
    return server.dsn


@pytest.fixture
def postgres_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """The connection string of an empty database, made for this test and dropped after it."""
    from support.servers import fresh_database

    with fresh_database(postgres_admin_dsn) as dsn:
        yield dsn


@pytest.fixture
def own_postgres_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server for one test, which may kill it and `restart` it."""
    from kvfold.deploy.embedded_postgres import EmbeddedPostgres

    with EmbeddedPostgres.start(tmp_path / "postgres") as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The Redis server that all tests share. Nobody stops it."""
    from support.redis_server import RedisServer

    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The shared Redis' URL; it was emptied for this test."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def own_redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis server for one test, which may kill it, pause it and `restart` it."""
    from support.redis_server import RedisServer

    with RedisServer(tmp_path / "redis") as server:
        yield server
