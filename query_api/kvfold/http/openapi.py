"""The OpenAPI 3.1 document of a list of routes, and the two routes that show it: `/openapi.json` and `/docs`.

Everything in it comes from the routes, so it is complete for whatever list an app is made of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.problems import PROBLEM_MEDIA_TYPE
from kvfold.http.routes import Answer, Body, Parameter, Route, json_answer

__all__ = ["ProblemDocument", "documentation_routes", "openapi_document"]

_SCHEMAS: Final = "#/components/schemas/{model}"
_HEADERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "X-Kvfold-Position": (
        "How far the answer is up: partition:offset of the last record covered, or a sorted list of these",
        {"type": "string", "examples": ["3:1042", "0:12,3:1042"]},
    ),
    "ETag": ("The entity tag, strong", {"type": "string"}),
    "X-Object-Version": ("The entry's version", {"type": "integer", "minimum": 0}),
    "Retry-After": ("Seconds", {"type": "integer"}),
    "Allow": ("The methods that are accepted", {"type": "string"}),
    "Location": ("Where the result is", {"type": "string"}),
}
_CODE_HEADERS: Final[Mapping[int, tuple[str, ...]]] = {
    405: ("Allow",),
    409: ("X-Object-Version",),
    503: ("Retry-After",),
}
_HTML_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "connect-src 'self'",
        "script-src 'unsafe-inline'",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
    )
)


class ProblemDocument(BaseModel):
    """RFC 9457; `code` is stable. Further members by code: `version`, `position`, `mutation_id`."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    version: int | None = None
    position: str | None = None
    mutation_id: str | None = None


def openapi_document(routes: Iterable[Route], *, title: str, version: str) -> dict[str, Any]:
    """The document of the routes, as JSON data."""
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    plain = sorted(routes, key=lambda route: route.is_key_route)
    for route in plain:
        operation = _operation(route, schemas)
        _add(paths, _shown(route.template), route.method, operation)
        if route.is_key_route:
            _add_by_key(paths, route, operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": {path: paths[path] for path in sorted(paths)},
        "components": {
            "schemas": {name: schemas[name] for name in sorted(schemas)},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        # Either: a token is accepted, and none is needed.
        "security": [{}, {"bearer": []}],
    }


def documentation_routes(routes: Sequence[Route], *, title: str, version: str) -> list[Route]:
    """`/openapi.json` and `/docs` for the routes given and for themselves."""
    shown: list[Route] = []
    body = b""
    page = files("kvfold.http").joinpath("docs.html").read_bytes()

    async def document(_: Call) -> Response:
        nonlocal body
        body = body or json.dumps(openapi_document(shown, title=title, version=version)).encode()
        return Response(body, media_type="application/json")

    async def docs(_: Call) -> Response:
        return Response(page, headers={"Content-Security-Policy": _HTML_POLICY}, media_type="text/html")

    own = [
        Route(
            "GET",
            "/openapi.json",
            document,
            "This document",
            "operations",
            answers=(json_answer("OpenAPI 3.1", dict[str, Any]),),
        ),
        Route(
            "GET",
            "/docs",
            docs,
            "This document for people",
            "operations",
            answers=(Answer(200, "A page without external resources", "text/html"),),
        ),
    ]
    shown.extend([*routes, *own])
    return own


def _shown(template: str) -> str:
    return template.replace(":rest}", "}")


def _add(paths: dict[str, dict[str, Any]], path: str, method: str, operation: dict[str, Any]) -> None:
    item = paths.setdefault(path, {})
    item[method.lower()] = operation
    if method == "GET":
        item["head"] = _head_of(operation)


def _head_of(operation: Mapping[str, Any]) -> dict[str, Any]:
    responses = {
        status: {name: part for name, part in answer.items() if name != "content"}
        for status, answer in operation["responses"].items()
    }
    summary = f"{operation['summary']} (headers only)"
    return {
        **operation,
        "operationId": "head" + operation["operationId"].removeprefix("get"),
        "summary": summary,
        "responses": responses,
    }


def _add_by_key(paths: dict[str, dict[str, Any]], route: Route, operation: Mapping[str, Any]) -> None:
    """The same route with its key as a parameter. Where that path has an operation already, `key` chooses between them."""
    path = _shown(route.template).removesuffix("/{key}")
    existing = paths.get(path, {}).get(route.method.lower())
    key = {
        "name": "key",
        "in": "query",
        "required": existing is None,
        "description": f"Makes it {route.method} {_shown(route.template)}, for keys that a client would rewrite in a path",
        "schema": {"type": "string"},
    }
    parameters = [p for p in operation["parameters"] if (p["name"], p["in"]) != ("key", "path")]
    if existing is None:
        changed = {**operation, "operationId": operation["operationId"] + "ByParameter"}
        _add(paths, path, route.method, {**changed, "parameters": [*parameters, key]})
        return
    known = {(p["name"], p["in"]) for p in existing["parameters"]}
    added = [p for p in parameters if (p["name"], p["in"]) not in known]
    responses = {**existing["responses"]}
    for status, answer in operation["responses"].items():
        responses.setdefault(status, answer)
        content = {**answer.get("content", {}), **responses[status].get("content", {})}
        if content:
            responses[status] = {**responses[status], "content": content}
    merged = {**existing, "parameters": [*existing["parameters"], *added, key], "responses": responses}
    _add(paths, path, route.method, merged)


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    words = [word.strip("{}").partition(":")[0] for word in route.segments]
    name = "".join(part.capitalize() for word in words for part in word.replace(".", "-").split("-"))
    operation: dict[str, Any] = {
        "operationId": route.method.lower() + (name or "Root"),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [
            *(_parameter(parameter, "path") for parameter in _path_parameters(route)),
            *(_parameter(parameter, "query") for parameter in route.query),
            *(_parameter(parameter, "header") for parameter in route.headers),
        ],
        "responses": _responses(route.answers, schemas),
    }
    if route.description:
        operation["description"] = route.description
    if route.body is not None:
        operation["requestBody"] = _request_body(route.body, schemas)
    return operation


def _path_parameters(route: Route) -> list[Parameter]:
    described = {parameter.name: parameter for parameter in route.path}
    names = [s.strip("{}").partition(":")[0] for s in route.segments if s.startswith("{")]
    default = {
        "key": "All the rest of the path, percent-decoded once; slashes may be encoded or not",
    }
    return [
        described.get(name) or Parameter(name, default.get(name, "Percent-decoded once")) for name in names
    ]


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "required": parameter.required or place == "path",
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


def _request_body(body: Body, schemas: dict[str, Any]) -> dict[str, Any]:
    content = {
        media: _content(model, schemas, mode="validation") for media, model in body.media_types.items()
    }
    return {"description": body.description, "required": body.required, "content": content}


def _responses(answers: Iterable[Answer], schemas: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for answer in answers:
        response: dict[str, Any] = {"description": answer.description}
        names = [*answer.headers, *(_CODE_HEADERS.get(answer.status, ()) if answer.codes else ())]
        if names:
            response["headers"] = {name: _header(name) for name in names}
        if answer.codes:
            content = _content(ProblemDocument, schemas)
            code = {"type": "object", "properties": {"code": {"enum": sorted(answer.codes)}}}
            response["content"] = {PROBLEM_MEDIA_TYPE: {"schema": {"allOf": [content["schema"], code]}}}
        elif answer.media_type is not None:
            response["content"] = {answer.media_type: _content(answer.model, schemas)}
        responses[str(answer.status)] = response
    return responses


def _header(name: str) -> dict[str, Any]:
    description, schema = _HEADERS[name]
    return {"description": description, "schema": dict(schema)}


def _content(model: Any, schemas: dict[str, Any], *, mode: Any = "serialization") -> dict[str, Any]:
    if model is None:
        return {}
    schema = TypeAdapter(model).json_schema(ref_template=_SCHEMAS, mode=mode)
    schemas.update(schema.pop("$defs", {}))
    if isinstance(model, type) and issubclass(model, BaseModel):
        schemas[model.__name__] = schema
        return {"schema": {"$ref": _SCHEMAS.format(model=model.__name__)}}
    return {"schema": schema}
