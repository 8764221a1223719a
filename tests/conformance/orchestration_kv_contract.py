"""The eight provider validations of an instance's KV (000, "Provider validations"; rows O19, O20), for each backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kvfold.producers.orchestration.kv_provider import KvProvider
from kvfold.schemas.orchestration import (
    Event,
    KeyValueCleared,
    KeyValuesCleared,
    KeyValueSet,
    OrchestrationContinuedAsNew,
)

__all__ = ["OrchestrationKvContract", "Provider"]

NEXT = OrchestrationContinuedAsNew(kind="OrchestrationContinuedAsNew")
ALL_CLEARED = KeyValuesCleared(kind="KeyValuesCleared")


def put(key: str, value: str) -> KeyValueSet:
    """A key is set."""
    return KeyValueSet(kind="KeyValueSet", key=key, value=value)


def cleared(key: str) -> KeyValueCleared:
    """A key is removed."""
    return KeyValueCleared(kind="KeyValueCleared", key=key)


class Provider(KvProvider, Protocol):
    """A log with its projection. Each write is in force when it returns; one that is refused raises."""

    def start(self, instance_id: str) -> None:
        """Makes an `external` instance."""

    def append(self, instance_id: str, execution_id: int, events: Sequence[Event]) -> None:
        """What the instance did."""

    def prune(self, instance_id: str, execution_id: int) -> None:
        """Removes an execution."""

    def delete(self, instance_id: str) -> None:
        """Removes the instance."""

    def writers(self, instance_id: str) -> Mapping[str, int]:
        """The execution that wrote each key last."""


class OrchestrationKvContract:
    """A subclass gives the fixture `provider`, with nothing in it."""

    def test_kv_set_and_get(self, provider: Provider) -> None:
        provider.start("i")
        provider.append("i", 1, [put("a", "1"), put("empty", ""), put("é/%2F", "שלום\n")])
        assert provider.get_kv_value("i", "a") == "1"
        assert provider.get_kv_value("i", "empty") == ""
        assert provider.get_kv_value("i", "é/%2F") == "שלום\n"

    def test_kv_overwrite(self, provider: Provider) -> None:
        provider.start("i")
        provider.append("i", 1, [put("a", "1"), put("a", "2")])
        assert provider.get_kv_value("i", "a") == "2"
        provider.append("i", 1, [put("a", "3")])
        assert provider.get_kv_snapshot("i") == {"a": "3"}

    def test_kv_clear(self, provider: Provider) -> None:
        provider.start("i")
        provider.append("i", 1, [put("a", "1"), put("b", "2"), put("c", "3")])
        provider.append("i", 1, [cleared("a"), cleared("absent")])
        assert provider.get_kv_value("i", "a") is None
        assert provider.get_kv_snapshot("i") == {"b": "2", "c": "3"}
        provider.append("i", 1, [ALL_CLEARED, put("d", "4")])
        assert provider.get_kv_snapshot("i") == {"d": "4"}

    def test_kv_prune_with_execution(self, provider: Provider) -> None:
        provider.start("i")
        provider.append("i", 1, [put("old", "1"), put("again", "1"), NEXT])
        provider.append("i", 2, [put("again", "2"), put("second", "2"), NEXT])
        provider.append("i", 3, [put("third", "3")])
        provider.prune("i", 1)
        assert provider.get_kv_snapshot("i") == {"again": "2", "second": "2", "third": "3"}
        provider.prune("i", 2)
        assert provider.get_kv_snapshot("i") == {"third": "3"}

    def test_kv_delete_with_instance(self, provider: Provider) -> None:
        for instance_id in ("i", "other"):
            provider.start(instance_id)
            provider.append(instance_id, 1, [put("a", "1"), NEXT])
            provider.append(instance_id, 2, [put("b", "2")])
        provider.delete("i")
        assert (provider.get_kv_value("i", "a"), provider.get_kv_snapshot("i")) == (None, {})
        assert provider.get_kv_snapshot("other") == {"a": "1", "b": "2"}
        provider.start("i")
        assert provider.get_kv_snapshot("i") == {}

    def test_kv_execution_id_tracking(self, provider: Provider) -> None:
        provider.start("i")
        provider.append("i", 1, [put("a", "1"), put("b", "1"), NEXT])
        assert provider.writers("i") == {"a": 1, "b": 1}
        provider.append("i", 2, [put("a", "1"), put("c", "2")])
        assert provider.writers("i") == {"a": 2, "b": 1, "c": 2}

    def test_kv_snapshot_complete(self, provider: Provider) -> None:
        provider.start("i")
        wanted = {f"k{number}": "x" * number for number in range(10)}
        provider.append("i", 1, [*[put(key, wanted[key]) for key in ("k0", "k1", "k2")], NEXT])
        provider.append("i", 2, [put(key, value) for key, value in wanted.items() if key > "k2"])
        assert provider.get_kv_snapshot("i") == wanted

    def test_kv_get_nonexistent(self, provider: Provider) -> None:
        assert provider.get_kv_value("nobody", "a") is None
        assert provider.get_kv_snapshot("nobody") == {}
        provider.start("i")
        assert provider.get_kv_value("i", "a") is None
        assert provider.get_kv_snapshot("i") == {}
