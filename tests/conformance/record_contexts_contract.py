"""Reading the trace context of single records back from a log, whatever log it is."""

from __future__ import annotations

import threading
from dataclasses import replace
from uuid import uuid4

import pytest

from conformance.log_contract import PARTITIONS, append
from kvfold.log.port import Log
from kvfold.producers.orchestration.tracing import LogContexts
from kvfold.schemas.codec import encode
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.partitioning import partition_of

__all__ = ["RecordContextsContract"]


def traceparent(number: int) -> str:
    """A W3C trace context of its own."""
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


def append_traced(log: Log, count: int) -> list[tuple[str, int, str | None]]:
    """Scope, offset and context of records that were appended; every third has none."""
    found: list[tuple[str, int, str | None]] = []
    for number in range(count):
        scope = f"o:{number % 5}"
        mutation = Mutation("kvfold.orchestration.started.v1", scope, str(uuid4()), body=b"{}" * 500)
        context = None if number % 3 == 2 else traceparent(number)
        partition = partition_of(scope.encode(), PARTITIONS)
        (appended,) = append(log, partition, encode(replace(mutation, traceparent=context)))
        found.append((scope, appended.offset, context))
    return found


class RecordContextsContract:
    """For a log given by the fixture `log`."""

    @pytest.mark.row("O27")
    def test_any_record_is_found_in_any_order(self, log: Log) -> None:
        appended = append_traced(log, 12)
        contexts = LogContexts(log)
        for scope, offset, context in [*appended[::-1], *appended]:
            assert contexts.find(scope, offset) == context
        contexts.close()

    @pytest.mark.row("O27")
    def test_nothing_is_found_where_there_is_no_record(self, log: Log) -> None:
        contexts = LogContexts(log)
        assert contexts.find("o:0", 0) is None
        assert contexts.find("o:0", 1_000_000) is None
        ((scope, offset, context),) = append_traced(log, 1)
        assert contexts.find(scope, offset + 1_000_000) is None
        assert contexts.find(scope, offset) == context
        contexts.close()

    @pytest.mark.row("O27")
    def test_what_was_remembered_is_not_read_and_gives_way(self, log: Log) -> None:
        ((scope, offset, context),) = append_traced(log, 1)
        contexts = LogContexts(log, remembered_max=2)
        contexts.remember(scope, offset, "told")
        assert contexts.find(scope, offset) == "told"
        contexts.remember("o:a", 0, "a")
        contexts.remember("o:b", 0, "b")
        assert contexts.find(scope, offset) == context
        contexts.close()

    @pytest.mark.row("O27")
    def test_several_threads_find_what_they_ask_for(self, log: Log) -> None:
        appended = append_traced(log, 12)
        contexts = LogContexts(log, remembered_max=1)
        wrong: list[str] = []

        def ask() -> None:
            for scope, offset, context in appended:
                if contexts.find(scope, offset) != context:
                    wrong.append(f"{scope} {offset}")

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        contexts.close()
