"""One log, any number of workers, either kind of log: the rows of a fold in memory (rows X1, X2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kvfold.log.port import Log
from support.projection import (
    append_all,
    content,
    differences,
    eventually,
    fold_in_memory,
    read_log,
    store_for,
    wait_until_folded,
)
from support.projectors import kafka_log, postgres_log, running_projector, some_records
from support.servers import fresh_database

pytestmark = pytest.mark.postgres
PARTITIONS = 3


@pytest.fixture(params=["postgres", pytest.param("kafka", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    with ExitStack() as stack:
        if request.param == "kafka":
            opened: Log = stack.enter_context(kafka_log(request.getfixturevalue("kafka_bootstrap")))
        else:
            opened = stack.enter_context(postgres_log(request.getfixturevalue("postgres_dsn")))
        yield opened


@pytest.mark.row("X1", "X2", "X13")
def test_one_worker_and_three_fold_the_same_rows(log: Log, postgres_admin_dsn: str) -> None:
    append_all(log, some_records(1, 600))
    with ExitStack() as stack:
        one, three = (stack.enter_context(fresh_database(postgres_admin_dsn)) for _ in range(2))
        stack.enter_context(running_projector(log, one))
        for _ in range(3):
            stack.enter_context(running_projector(log, three))
        append_all(log, some_records(2, 600))
        for dsn in (one, three):
            wait_until_folded(dsn, log)
        expected = content(fold_in_memory(*read_log(log)), range(PARTITIONS))
        for dsn in (one, three):
            store = store_for(dsn)
            assert differences(expected, content(store, range(PARTITIONS))) == {}
            store.close()


def test_three_workers_share_the_partitions(log: Log, postgres_admin_dsn: str) -> None:
    with ExitStack() as stack:
        dsn = stack.enter_context(fresh_database(postgres_admin_dsn))
        projectors = [stack.enter_context(running_projector(log, dsn)) for _ in range(3)]

        def shares() -> list[int]:
            return [len(projector.telemetry.partitions()) for projector in projectors]

        eventually(lambda: shares() == [1, 1, 1], "a partition each")
        append_all(log, some_records(3, 60))
        wait_until_folded(dsn, log)
