"""The OpenAPI document: of every route, parameter, status and header; for whatever list an app is made of."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from kvfold.http.app import App
from kvfold.http.openapi import documentation_routes, openapi_document
from kvfold.http.routes import Route
from kvfold.query_api.routes import read_routes
from kvfold.query_api.serve import read_context
from support.asgi_client import AsgiClient


@pytest.fixture
def routes() -> list[Route]:
    own = read_routes(read_context("host=nowhere.invalid"))
    return [*own, *documentation_routes(own, title="kvfold", version="1")]


@pytest.fixture
def document(routes: list[Route]) -> dict[str, Any]:
    return openapi_document(routes, title="kvfold", version="1")


def test_every_route_is_there_with_head(routes: list[Route], document: dict[str, Any]) -> None:
    for route in routes:
        path = route.template.replace(":rest}", "}")
        item = document["paths"][path]
        assert route.method.lower() in item
        assert ("head" in item) == ("get" in item)
        if route.is_key_route:
            by_key = document["paths"][path.removesuffix("/{key}")]["get"]
            assert ("key", "query") in {(p["name"], p["in"]) for p in by_key["parameters"]}


def test_every_operation_is_complete(document: dict[str, Any]) -> None:
    ids = []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            ids.append(operation["operationId"])
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["responses"], where
            names = [(p["name"], p["in"]) for p in operation["parameters"]]
            assert len(names) == len(set(names)), where
            in_path = {part[1:-1] for part in path.split("/") if part.startswith("{")}
            assert {name for name, place in names if place == "path"} == in_path, where
            assert all(p["description"] for p in operation["parameters"]), where
            assert all(answer["description"] for answer in operation["responses"].values()), where
    assert len(ids) == len(set(ids))


def test_the_value_route(document: dict[str, Any]) -> None:
    operation = document["paths"]["/deployments/{id}/kv/{namespace}/{key}"]["get"]
    assert set(operation["responses"]) == {"200", "304", "400", "404", "405", "410", "412", "500", "503"}
    assert set(operation["responses"]["200"]["headers"]) == {"X-Kvfold-Position", "X-Object-Version", "ETag"}
    codes = str(operation["responses"]["503"])
    for code in ("encryption-key-missing", "volatile-unavailable", "partition-paused", "store-unavailable"):
        assert code in codes


def test_a_collection_and_its_key_share_one_path(document: dict[str, Any]) -> None:
    for collection in ("/v1/instances/{id}/kv", "/deployments/{id}/kv/{namespace}"):
        (key,) = [p for p in document["paths"][collection]["get"]["parameters"] if p["name"] == "key"]
        assert not key["required"]
    alone = document["paths"]["/v1/capsules/{principal}/{capsule_id}/kv"]["get"]["parameters"]
    assert [p["required"] for p in alone if p["name"] == "key"] == [True]


def test_its_schemas_are_schemas_and_its_references_lead_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [found for child in node.values() for found in references(child)]
        return [found for child in node for found in references(child)] if isinstance(node, list) else []

    found = set(references(document))
    assert {"#/components/schemas/Instance", "#/components/schemas/ProblemDocument"} <= found
    assert {name.removeprefix("#/components/schemas/") for name in found} <= schemas.keys()


def test_the_routes_that_show_it() -> None:
    own = read_routes(read_context("host=nowhere.invalid"))
    with AsgiClient(App([*own, *documentation_routes(own, title="kvfold", version="1")])) as client:
        shown = client.get("/openapi.json")
        assert shown.json["openapi"] == "3.1.0"
        assert {"/openapi.json", "/docs", "/healthz", "/metrics"} <= shown.json["paths"].keys()
        page = client.get("/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "content-security-policy" in page.headers
        assert b"http://" not in page.body
        assert b"https://" not in page.body
