"""Fixtures of the integration tests: a log in Postgres, its catalogue, a command's settings; rows of a projection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog
from kvfold.log.settings import Settings
from support.projection import set_up
from support.projection_rows import ProjectionRows
from support.projectors import postgres_log
from support.rebuilds import settings_of

__all__: list[str] = []


@pytest.fixture
def log(postgres_dsn: str) -> Iterator[PostgresLog]:
    """An embedded log in a database of its own."""
    with postgres_log(postgres_dsn) as opened:
        yield opened


@pytest.fixture
def connection(postgres_dsn: str, log: Log) -> Iterator[psycopg.Connection[Any]]:
    """A connection in autocommit mode to the log's database, which has a generation that serves."""
    set_up(postgres_dsn, log)
    with psycopg.connect(postgres_dsn, autocommit=True) as opened:
        yield opened


@pytest.fixture
def settings(postgres_dsn: str) -> Settings:
    """What a command on that database is told."""
    return settings_of(postgres_dsn)


@pytest.fixture
def rows(postgres_dsn: str) -> Iterator[ProjectionRows]:
    """A projection whose rows the test writes itself."""
    with closing(ProjectionRows(postgres_dsn)) as rows:
        yield rows
