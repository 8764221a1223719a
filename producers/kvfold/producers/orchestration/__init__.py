"""Durable orchestrations: the client from outside, and what an application registers for workers to run."""

from __future__ import annotations

from kvfold.producers.orchestration.activity import ActivityContext, PermanentError
from kvfold.producers.orchestration.bulk_prune import BulkPruned
from kvfold.producers.orchestration.client import OrchestrationClient
from kvfold.producers.orchestration.context import OrchestrationContext
from kvfold.producers.orchestration.errors import (
    ActivityError,
    ChildError,
    OrchestrationCancelledError,
    StoredValueError,
)
from kvfold.producers.orchestration.registry import Registry
from kvfold.schemas.orchestration import RetryPolicy

__all__ = [
    "ActivityContext",
    "ActivityError",
    "BulkPruned",
    "ChildError",
    "OrchestrationCancelledError",
    "OrchestrationClient",
    "OrchestrationContext",
    "PermanentError",
    "Registry",
    "RetryPolicy",
    "StoredValueError",
]
