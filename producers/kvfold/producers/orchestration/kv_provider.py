"""Where the keys of instances are read, as a port (row O19). Adapter: `ProjectionKv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kvfold.producers.reading import OwnWritesReader
from kvfold.reads.orchestration import instance_kv, instance_value
from kvfold.schemas.names import orchestration_scope

__all__ = ["KvProvider", "ProjectionKv"]


class KvProvider(Protocol):
    """Reads of instances' keys. A provider that keeps none inherits both answers, and everything is just absent.

    Ids and keys are well-formed. A store that cannot be reached is a `StoreUnavailableError`, and never an absent value.
    """

    def get_kv_value(self, instance_id: str, key: str) -> str | None:
        """The latest value; None if the instance or the key is unknown. An empty text is a value."""
        del instance_id, key
        return None

    def get_kv_snapshot(self, instance_id: str) -> Mapping[str, str]:
        """Every key with its value; empty if the instance is unknown."""
        del instance_id
        return {}


class ProjectionKv(KvProvider):
    """The keys in the serving projection, up to the producer's own writes. Raises what `OwnWritesReader.read` raises."""

    def __init__(self, reads: OwnWritesReader) -> None:
        self._reads = reads

    def get_kv_value(self, instance_id: str, key: str) -> str | None:
        """As the port says."""
        found = self._reads.read(
            orchestration_scope(instance_id),
            lambda partition: instance_value(instance_id, key, partition=partition),
        )
        return None if found is None else found.value

    def get_kv_snapshot(self, instance_id: str) -> Mapping[str, str]:
        """As the port says."""
        found = self._reads.read(
            orchestration_scope(instance_id), lambda partition: instance_kv(instance_id, partition=partition)
        )
        return {} if found is None else {key: entry.value for key, entry in found.items()}
