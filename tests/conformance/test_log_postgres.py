"""The log's contract on `PostgresLog`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from conformance.log_contract import PARTITIONS, LogContract
from conformance.record_contexts_contract import RecordContextsContract
from kvfold.log.port import Log
from kvfold.log.postgres import PostgresLog

__all__: list[str] = []


@pytest.mark.postgres
class TestPostgresLog(LogContract, RecordContextsContract):
    @pytest.fixture
    def log(self, postgres_dsn: str) -> Iterator[Log]:
        self._dsn = postgres_dsn
        log = PostgresLog.open(postgres_dsn, partition_count=PARTITIONS)
        yield log
        log.close()

    def trim(self, log: Log, partition: int, offset: int) -> None:
        statement = 'DELETE FROM kvfold_log.log_record WHERE partition = %s AND "offset" < %s'
        with psycopg.connect(self._dsn) as connection:
            connection.execute(statement, (partition, offset))

    def remake(self, log: Log) -> Log:
        log.close()
        with psycopg.connect(self._dsn) as connection:
            connection.execute("DROP SCHEMA kvfold_log CASCADE")
        return PostgresLog.open(self._dsn, partition_count=PARTITIONS)
