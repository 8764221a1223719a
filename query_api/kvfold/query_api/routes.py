"""All reads of the contract that this release has, as one list of routes."""

from __future__ import annotations

from kvfold.http.routes import Route
from kvfold.query_api.capsules import capsule_routes
from kvfold.query_api.context import ReadContext
from kvfold.query_api.deployments import deployment_routes
from kvfold.query_api.history import history_routes
from kvfold.query_api.instances import instance_routes
from kvfold.query_api.mutations import mutation_routes
from kvfold.query_api.operations import operation_routes
from kvfold.query_api.snapshots import snapshot_routes
from kvfold.query_api.watch.routes import watch_routes

__all__ = ["read_routes"]


def read_routes(context: ReadContext) -> list[Route]:
    """The read routes, for an app alone or beside others. Once a context: it registers the context's gauges.

    `/openapi.json` and `/docs` are not among them: whoever assembles the app adds them last, for all its routes
    (`kvfold.http.openapi.documentation_routes`).
    """
    return [
        *instance_routes(context),
        *capsule_routes(context),
        *deployment_routes(context),
        *mutation_routes(context),
        *history_routes(context),
        *watch_routes(context),
        *snapshot_routes(context),
        *operation_routes(context),
    ]
