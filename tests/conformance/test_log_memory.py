"""The log's contract on `MemoryLog`, without and with gaps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from conformance.log_contract import PARTITIONS, LogContract
from conformance.record_contexts_contract import RecordContextsContract
from kvfold.log.memory import MemoryLog
from kvfold.log.port import Log

__all__: list[str] = []


class TestMemoryLog(LogContract, RecordContextsContract):
    @pytest.fixture
    def log(self) -> Iterator[Log]:
        ticks = count(1_700_000_000_000)
        yield MemoryLog(partition_count=PARTITIONS, clock=lambda: next(ticks))

    def trim(self, log: Log, partition: int, offset: int) -> None:
        assert isinstance(log, MemoryLog)
        log.trim(partition, offset)

    def remake(self, log: Log) -> Log:
        assert isinstance(log, MemoryLog)
        log.remake()
        return log
