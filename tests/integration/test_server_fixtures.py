"""The fixtures for databases: each test has an empty one, and leaves none behind."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psycopg
import pytest

from support.servers import fresh_database

if TYPE_CHECKING:
    from kvfold.deploy.embedded_postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_an_empty_database(postgres_dsn: str, turn: int) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE TABLE mine (n int)")


def test_a_database_is_dropped_although_a_client_is_still_connected(postgres_admin_dsn: str) -> None:
    with fresh_database(postgres_admin_dsn) as dsn:
        left_open = psycopg.connect(dsn)
        name = left_open.info.dbname
    with psycopg.connect(postgres_admin_dsn) as admin:
        assert admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None
    left_open.close()


def test_an_own_server_may_be_killed(own_postgres_server: EmbeddedPostgres) -> None:
    os.kill(own_postgres_server.pid, signal.SIGKILL)
    own_postgres_server.restart()
    with psycopg.connect(own_postgres_server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
