"""A deployment's store, for those who run inside a deployment and for those who write the log themselves.

A runtime opens one `ObjectStore` by its environment and keeps to it, wherever it runs. `DeploymentClient` is the SDK's own
access to the persistent tier, over the log and Postgres.
"""

from __future__ import annotations

from kvfold.producers.deployment.client import DeploymentClient, Expected, Removed
from kvfold.producers.deployment.entries import EntriesStore
from kvfold.producers.deployment.http_store import HttpStore, UnexpectedAnswerError
from kvfold.producers.deployment.object_store import ObjectStore
from kvfold.producers.deployment.runtime import RuntimeStore, open_object_store
from kvfold.producers.deployment.secret_store import SecretStore
from kvfold.producers.deployment.standalone import StandaloneStorage, StorageInUseError
from kvfold.reads.deployment import DeploymentObject, DeploymentValue, ObjectPage
from kvfold.schemas.errors import ConflictError

__all__ = [
    "ConflictError",
    "DeploymentClient",
    "DeploymentObject",
    "DeploymentValue",
    "EntriesStore",
    "Expected",
    "HttpStore",
    "ObjectPage",
    "ObjectStore",
    "Removed",
    "RuntimeStore",
    "SecretStore",
    "StandaloneStorage",
    "StorageInUseError",
    "UnexpectedAnswerError",
    "open_object_store",
]
