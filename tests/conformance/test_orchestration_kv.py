"""The provider validations on the fold in memory and on Postgres (rows O19, O20)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from conformance.orchestration_kv_contract import OrchestrationKvContract, Provider
from kvfold.producers.orchestration import ActivityContext, OrchestrationClient, Registry, system_activities
from kvfold.producers.orchestration.kv_provider import KvProvider
from kvfold.producers.producer import Producer
from kvfold.projector.tables import KvEntry
from kvfold.reads.executor import Reader, read_pool
from kvfold.reads.waiting import Waiter
from kvfold.schemas.names import orchestration_scope
from kvfold.schemas.orchestration import Event
from kvfold.schemas.outcome import DecisionStatus
from support.orchestration_world import World
from support.projectors import postgres_log, running_projector

__all__: list[str] = []


class MemoryProvider(Provider):
    """The log and the fold in memory."""

    def __init__(self) -> None:
        self._world = World(Registry())

    def _send(self, verb: str, instance_id: str, body: Mapping[str, object]) -> None:
        decision = self._world.send(verb, instance_id, body)
        assert decision.status is DecisionStatus.APPLIED, decision

    def start(self, instance_id: str) -> None:
        self._send("started", instance_id, {"name": "n", "mode": "external"})

    def append(self, instance_id: str, execution_id: int, events: Sequence[Event]) -> None:
        body = {"execution_id": execution_id, "events": [event.model_dump() for event in events]}
        self._send("events", instance_id, body)

    def prune(self, instance_id: str, execution_id: int) -> None:
        self._send("executions-pruned", instance_id, {"execution_ids": [execution_id]})

    def delete(self, instance_id: str) -> None:
        self._send("instance-deleted", instance_id, {})

    def get_kv_value(self, instance_id: str, key: str) -> str | None:
        return self._world.get_value(instance_id, key)

    def get_kv_snapshot(self, instance_id: str) -> Mapping[str, str]:
        return self._world.snapshot(instance_id)

    def writers(self, instance_id: str) -> Mapping[str, int]:
        rows: list[KvEntry] = self._world.rows("orchestration_kv", KvEntry)
        return {row.key: row.execution_id for row in rows if row.scope == orchestration_scope(instance_id)}


class ClientProvider(Provider):
    """The client over a log, a projector and the read side in Postgres."""

    def __init__(self, client: OrchestrationClient) -> None:
        self._client = client

    def start(self, instance_id: str) -> None:
        self._client.start(instance_id, "n", mode="external")

    def append(self, instance_id: str, execution_id: int, events: Sequence[Event]) -> None:
        self._client.append_events(instance_id, execution_id, events)

    def prune(self, instance_id: str, execution_id: int) -> None:
        assert self._client.prune(instance_id, [execution_id]) == 1

    def delete(self, instance_id: str) -> None:
        self._client.delete_instance(instance_id)

    def get_kv_value(self, instance_id: str, key: str) -> str | None:
        return self._client.get_value(instance_id, key)

    def get_kv_snapshot(self, instance_id: str) -> Mapping[str, str]:
        return self._client.snapshot(instance_id)

    def writers(self, instance_id: str) -> Mapping[str, int]:
        view = self._client.instance(instance_id)
        assert view is not None
        return {key: entry.execution_id for key, entry in view.kv.items()}


@pytest.mark.row("O19")
@pytest.mark.row("O20")
class TestMemory(OrchestrationKvContract):
    @pytest.fixture
    def provider(self) -> Provider:
        return MemoryProvider()


@pytest.mark.row("O19")
@pytest.mark.row("O20")
@pytest.mark.postgres
class TestPostgres(OrchestrationKvContract):
    @pytest.fixture
    def provider(self, postgres_dsn: str) -> Iterator[Provider]:
        with ExitStack() as stack:
            log = stack.enter_context(postgres_log(postgres_dsn))
            stack.enter_context(running_projector(log, postgres_dsn))
            reader = Reader(stack.enter_context(read_pool(postgres_dsn, size_max=2)))
            stack.callback(reader.close)
            waiter = Waiter(postgres_dsn)
            stack.callback(waiter.close)
            yield ClientProvider(OrchestrationClient(Producer(log, waiter, source="/tests"), reader))


class ProviderWithoutKv(KvProvider):
    """Says nothing of keys."""


@pytest.mark.row("O19")
class TestWithoutKv:
    """A provider that keeps no keys need not say so: everything is absent."""

    def test_itself(self) -> None:
        provider = ProviderWithoutKv()
        assert provider.get_kv_value("i", "a") is None
        assert provider.get_kv_snapshot("i") == {}

    def test_the_client_and_reads_of_other_instances_over_it(self) -> None:
        nobody: Any = None
        client = OrchestrationClient(nobody, nobody, kv=ProviderWithoutKv())
        assert (client.get_value("i", "a"), client.get_value_typed("i", "a", int)) == (None, None)
        assert client.snapshot("i") == {}
        context = ActivityContext("me", 0, 1, 1, "read", 1, client)
        assert system_activities.get_value(context, '{"instance_id":"i","key":"a"}') == "null"
        assert system_activities.get_values(context, '{"instance_id":"i","keys":["a"]}') == '{"a": null}'
