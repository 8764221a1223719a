"""Differential tests: memory, the log and a dictionary give the same results, errors and listings (rows C3 to C10, C15).

Each example works in a namespace of its own, on one stack for the module.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kvfold.log.port import Log
from kvfold.producers.capsule.log_store import LogKvStore
from kvfold.producers.capsule.memory_store import MemoryKvStore
from kvfold.producers.producer import Producer
from support.capsule_model import CapsuleModel, Operation, operations, outcome, run_on
from support.capsule_stores import log_store, set_quota
from support.projectors import postgres_log, running_projector
from support.servers import fresh_database

__all__: list[str] = []

_WAIT_S = 60.0
_numbers = itertools.count()


@dataclass
class Stack:
    """A log-backed store with a projector that can be started anew."""

    log: Log
    dsn: str
    store: LogKvStore
    producer: Producer
    projector: ExitStack

    def restart_projector(self) -> None:
        """Ends the projector and starts another."""
        self.projector.close()
        self.projector.enter_context(running_projector(self.log, self.dsn))


@pytest.fixture(scope="module")
def stack(postgres_admin_dsn: str) -> Iterator[Stack]:
    with (
        fresh_database(postgres_admin_dsn) as dsn,
        postgres_log(dsn) as log,
        ExitStack() as projector,
        log_store(log, dsn, timeout_s=_WAIT_S) as (store, producer),
    ):
        projector.enter_context(running_projector(log, dsn))
        yield Stack(log, dsn, store, producer, projector)


@dataclass
class Compared:
    """The three of one example."""

    stack: Stack
    namespace: str = field(default_factory=lambda: f"user-{next(_numbers)}:capsule:notes")
    memory: MemoryKvStore = field(default_factory=MemoryKvStore)
    model: CapsuleModel = field(default_factory=CapsuleModel)

    def run(self, given_operations: list[Operation]) -> None:
        """Does all, each on the three, and compares what they gave."""
        for operation in given_operations:
            expected = outcome(lambda: self.model.run(operation))  # noqa: B023
            assert outcome(lambda: self._memory(operation)) == expected, operation  # noqa: B023
            assert outcome(lambda: self._log(operation)) == expected, operation  # noqa: B023

    def check_state(self) -> None:
        """Everything that is in them."""
        keys = self.model.list_keys()
        for store in (self.memory, self.stack.store):
            assert store.list_keys(self.namespace) == keys
            assert {key: store.get(self.namespace, key) for key in keys} == self.model.values
        usage = self.memory.usage(self.namespace)
        assert (usage.keys, usage.bytes, usage.bytes_max) == (
            len(keys),
            self.model.bytes_used(),
            self.model.quota,
        )

    def _memory(self, operation: Operation) -> object:
        return run_on(self.memory, self.namespace, operation)

    def _log(self, operation: Operation) -> object:
        if operation.name == "set_quota":
            set_quota(self.stack.producer, self.namespace, **operation.arguments)
            return None
        return run_on(self.stack.store, self.namespace, operation)


@pytest.mark.postgres
@pytest.mark.row("C3")
@pytest.mark.row("C5")
@settings(max_examples=60, deadline=None)
@given(first=st.lists(operations(), min_size=5, max_size=40))
def test_memory_log_and_model_agree(stack: Stack, first: list[Operation]) -> None:
    compared = Compared(stack)
    compared.run(first)
    compared.check_state()


@pytest.mark.postgres
@pytest.mark.row("C3")
@settings(max_examples=3, deadline=None, phases=(Phase.generate,))
@given(
    first=st.lists(operations(), min_size=10, max_size=30),
    second=st.lists(operations(), min_size=10, max_size=30),
)
def test_they_agree_across_a_restart_of_the_projector(
    stack: Stack, first: list[Operation], second: list[Operation]
) -> None:
    compared = Compared(stack)
    compared.run(first)
    with ThreadPoolExecutor(1) as threads:
        # Writes and reads go on while nobody folds.
        going_on = threads.submit(compared.run, second)
        stack.restart_projector()
        going_on.result(4 * _WAIT_S)
    compared.check_state()
