"""The standalone store: a deployment's store on one machine, without Postgres, Kafka and Redis (row D15)."""

from __future__ import annotations

from kvfold.producers.deployment.standalone.storage import StandaloneStorage, StorageInUseError

__all__ = ["StandaloneStorage", "StorageInUseError"]
