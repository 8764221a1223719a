"""The published schemas: fresh, closed, and of one mind with the models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from kvfold.schemas.bodies import BODY_MODELS
from kvfold.schemas.codec import encode
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.publish import ASYNCAPI, body_schema_name, published
from kvfold.schemas.types import MUTATION_TYPES, BodyKind
from support.bodies import ACCEPTED, REFUSED
from support.golden import GoldenFile, golden_files
from support.mutations import (
    batch_set,
    capsule_batch,
    capsule_cleared,
    capsule_deleted,
    capsule_quota,
    capsule_set,
    deployment_deleted,
    deployment_put,
    format_raised,
    instance_deleted,
    instance_events,
    instance_pruned,
    instance_pruned_before,
    instance_started,
    key_set,
    namespace_cleared,
    undeployed,
)

__all__: list[str] = []

DOCUMENTS: dict[str, Any] = {name: json.loads(text) for name, text in published().items()}
TOPIC: dict[str, Any] = DOCUMENTS[ASYNCAPI]
GOOD = [
    *(capsule_set("k", expected="not:sha256:" + "a" * 64), capsule_deleted("k", expected="present")),
    *(capsule_cleared("k"), capsule_cleared(None), namespace_cleared(), capsule_quota(1)),
    capsule_batch(batch_set("k"), conditions={"k": "absent"}),
    *(deployment_put("k", expected="version:1,2"), deployment_deleted("k", expected="absent"), undeployed()),
    *(
        instance_started(),
        instance_events(key_set("k")),
        instance_pruned([1]),
        instance_pruned_before(1),
        instance_deleted(),
        format_raised(2),
    ),
]


def test_the_files_are_fresh() -> None:
    """Write them again with: python -m kvfold.schemas.publish schemas/kvfold/schemas/json"""
    folder = resources.files("kvfold.schemas") / "json"
    kept = {item.name: item.read_text("utf-8") for item in folder.iterdir() if item.name.endswith(".json")}
    assert kept == published()


def test_there_is_a_schema_of_every_json_body() -> None:
    assert set(DOCUMENTS) == {body_schema_name(name) for name in BODY_MODELS} | {ASYNCAPI}


def _validator(type_: str) -> jsonschema.Draft202012Validator:
    schema = DOCUMENTS[body_schema_name(type_)]
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("type_", sorted(BODY_MODELS))
def test_a_schema_accepts_and_refuses_what_the_model_does(type_: str) -> None:
    validator = _validator(type_)
    for body in ACCEPTED[type_]:
        validator.validate(json.loads(body))
    for body in REFUSED[type_]:
        assert not validator.is_valid(json.loads(body)), body


def test_every_golden_body_that_was_read_fits_its_schema() -> None:
    read = 0
    for path in golden_files():
        file = GoldenFile(path)
        for entry, record in zip(file.entries, file.records, strict=True):
            type_, code = entry["decision"]["type"], entry["decision"]["code"]
            if type_ in BODY_MODELS and entry["decision"]["status"] != "rejected":
                assert record.value is not None
                _validator(type_).validate(json.loads(record.value))
                read += 1
            elif (
                type_ in BODY_MODELS
                and "shape" in (entry["decision"]["detail"] or "")
                and code == "malformed"
            ):
                value = json.loads(record.value or b"")
                assert "1.0" in str(value) or not _validator(type_).is_valid(value)
    assert read > 20


def test_asyncapi_names_every_type_once() -> None:
    assert TOPIC["asyncapi"] == "3.0.0"
    assert list(TOPIC["components"]["messages"]) == list(MUTATION_TYPES)
    assert list(TOPIC["channels"]["mutations"]["messages"]) == list(MUTATION_TYPES)
    sent = {ref["$ref"].rsplit("/", 1)[1] for ref in TOPIC["operations"]["append"]["messages"]}
    assert sent == set(MUTATION_TYPES)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_every_reference_leads_somewhere() -> None:
    for reference in _references(TOPIC):
        if reference.startswith("./"):
            assert reference.removeprefix("./") in DOCUMENTS
            continue
        node: Any = TOPIC
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        assert node


def test_a_json_body_is_told_by_its_schema() -> None:
    for name, row in MUTATION_TYPES.items():
        message = TOPIC["components"]["messages"][name]
        assert ("$ref" in message["payload"]) == (row.body is BodyKind.JSON)


def _fits(mutation: Mutation, *, headers: dict[str, str] | None = None) -> bool:
    message = TOPIC["components"]["messages"][mutation.type]
    record = encode(mutation)
    assert record.key is not None
    jsonschema.Draft202012Validator.check_schema(message["headers"])
    texts = {name: raw.decode() for name, raw in record.headers} | (headers or {})
    key = message["bindings"]["kafka"]["key"]
    headers_fit: bool = jsonschema.Draft202012Validator(message["headers"]).is_valid(texts)
    key_fits: bool = jsonschema.Draft202012Validator(key).is_valid(record.key.decode())
    return headers_fit and key_fits


@pytest.mark.parametrize("mutation", GOOD, ids=lambda mutation: mutation.type)
def test_headers_and_key_of_each_type(mutation: Mutation) -> None:
    row = MUTATION_TYPES[mutation.type]
    assert _fits(mutation)
    assert not _fits(mutation, headers={"ce_type": "other"})
    assert not _fits(mutation, headers={"ce_id": "1"})
    assert not _fits(mutation, headers={"content-type": "application/cloudevents+json"})
    assert not _fits(mutation, headers={"ce_kvexpected": "version:01"})
    assert _fits(mutation, headers={"ce_kvnamespace": "n"}) == row.has_namespace
    assert _fits(mutation, headers={"ce_kvexpected": "absent"}) == (len(row.preconditions) > 1)
