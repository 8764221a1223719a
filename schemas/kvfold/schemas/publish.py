"""What is published of the contract: a JSON Schema of every JSON body, and an AsyncAPI document of the topic.

Both are made from the models and the type table, and kept in `json/` beside this module; a test fails when they drift.
`published` is pure; `python -m kvfold.schemas.publish FOLDER` writes what it gives.

A schema and its model agree but in three ways: the strict decoder refuses more (duplicate members, 1.0 where an integer
is due), a kind of inner event or operation of a later release is told apart from a shape that is wrong, and so is a
capsule batch that is too long, which has a code of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from kvfold.schemas.bodies import BODY_MODELS
from kvfold.schemas.limits import (
    HEADER_TEXT_BYTES_MAX,
    JSON_BODY_BYTES_MAX,
    RECORD_BYTES_MAX,
    RECORD_KEY_BYTES_MAX,
)
from kvfold.schemas.precondition import PreconditionKind
from kvfold.schemas.types import FORMAT_LEVEL, MUTATION_TYPES, BodyKind, Family, MutationType, SubjectRule

__all__ = ["ASYNCAPI", "body_schema_name", "published"]

ASYNCAPI: Final = "asyncapi.json"
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_UUID: Final = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_SCOPES: Final = {
    Family.ORCHESTRATION: ("^o:[^\\x00-\\x1f\\x7f-\\x9f]+$", "o:{instance_id}"),
    Family.CAPSULE: ("^c:[^:/]+:capsule:[^:/]+$", "c:{principal}:capsule:{capsule_id}"),
    Family.DEPLOYMENT: ("^d:[^\\x00-\\x1f\\x7f-\\x9f]+$", "d:{deployment_id}"),
    Family.SYSTEM: ("^s:(0|[1-9][0-9]*)$", "s:{n}, the smallest n whose hash gives the partition meant"),
}
_VALUES: Final = {
    PreconditionKind.VERSION: "(not:)?version:(0|[1-9][0-9]{0,18})(,(0|[1-9][0-9]{0,18})){0,15}",
    PreconditionKind.SHA256: "(not:)?sha256:[0-9a-f]{64}(,[0-9a-f]{64}){0,15}",
}


def published() -> dict[str, str]:
    """Every published file: its name and its text."""
    documents: dict[str, Any] = {body_schema_name(name): _body_schema(name) for name in sorted(BODY_MODELS)}
    documents[ASYNCAPI] = _asyncapi()
    return {name: json.dumps(document, indent=2) + "\n" for name, document in documents.items()}


def body_schema_name(mutation_type: str) -> str:
    """The file of a type's body: `capsule.quota-set.v1.schema.json`."""
    return mutation_type.removeprefix("kvfold.") + ".schema.json"


def _body_schema(mutation_type: str) -> dict[str, Any]:
    schema: dict[str, Any] = _plain(BODY_MODELS[mutation_type].model_json_schema())
    return {"$schema": _DRAFT, "$id": f"urn:kvfold:schema:{mutation_type}"} | schema


def _plain(schema: Any) -> Any:
    """Descriptions as running text (they come from docstrings), and no `discriminator`, which is OpenAPI's own word."""
    if isinstance(schema, dict):
        items = {name: _plain(value) for name, value in schema.items() if name != "discriminator"}
        if isinstance(items.get("description"), str):
            items["description"] = " ".join(items["description"].split())
        return items
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema


def _asyncapi() -> dict[str, Any]:
    names = list(MUTATION_TYPES)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "kvfold mutations",
            "version": f"{FORMAT_LEVEL}.0.0",
            "description": "The log of kvfold: one topic of mutations, CloudEvents 1.0 in Kafka binary mode. The record key "
            "is the scope; the partition is murmur2(key) mod the partition count, as Kafka's Java client computes it. "
            "A record in another partition is rejected. The major version is the format level.",
        },
        "defaultContentType": "application/octet-stream",
        "channels": {"mutations": _channel(names)},
        "operations": {
            "append": {
                "action": "send",
                "channel": {"$ref": "#/channels/mutations"},
                "summary": "A producer appends a mutation together with its precondition.",
                "messages": [{"$ref": f"#/channels/mutations/messages/{name}"} for name in names],
            },
            "fold": {
                "action": "receive",
                "channel": {"$ref": "#/channels/mutations"},
                "summary": "The projector decides each record in order and folds what applies.",
            },
        },
        "components": {"messages": {name: _message(MUTATION_TYPES[name]) for name in names}},
    }


def _channel(names: list[str]) -> dict[str, Any]:
    return {
        "address": "kvfold.mutations",
        "description": "The topic's name and its partition count are configuration; the count never changes.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
        "bindings": {
            "kafka": {
                "topicConfiguration": {
                    "cleanup.policy": ["delete"],
                    "retention.ms": -1,
                    "max.message.bytes": RECORD_BYTES_MAX,
                },
                "bindingVersion": "0.5.0",
            }
        },
    }


def _message(row: MutationType) -> dict[str, Any]:
    pattern, form = _SCOPES[row.family]
    message: dict[str, Any] = {
        "name": row.name,
        "title": row.name,
        "summary": _summary(row),
        "tags": [{"name": row.family.value}],
        "headers": _headers(row),
        "bindings": {
            "kafka": {
                "key": {
                    "type": "string",
                    "pattern": pattern,
                    "description": f"The scope, {form}; at most {RECORD_KEY_BYTES_MAX} bytes.",
                },
                "bindingVersion": "0.5.0",
            }
        },
    }
    if row.level > 1:
        message["x-format-level"] = row.level
    match row.body:
        case BodyKind.JSON:
            description = f"At most {JSON_BODY_BYTES_MAX} bytes, strict JSON."
            payload = {"$ref": f"./{body_schema_name(row.name)}"}
            return message | {
                "contentType": "application/json",
                "description": description,
                "payload": payload,
            }
        case BodyKind.BYTES:
            payload = {"description": "The value, any bytes; empty is a value, a null value is malformed."}
            return message | {"payload": payload}
        case BodyKind.NONE:
            return message | {"payload": {"const": "", "description": "No body: null or empty."}}


def _summary(row: MutationType) -> str:
    if row.body is BodyKind.JSON:
        return " ".join((BODY_MODELS[row.name].__doc__ or "").split())
    what = {
        SubjectRule.KEY: "a key",
        SubjectRule.PREFIX: "the keys under a prefix",
        SubjectRule.NONE: "the whole scope",
    }
    return f"{row.family.value.capitalize()}: {row.name.split('.')[2]}, of {what[row.subject]}."


def _headers(row: MutationType) -> dict[str, Any]:
    """The CloudEvents attributes of a type. Headers that are no attributes are passed over by the fold."""
    properties: dict[str, Any] = {
        "ce_specversion": {"const": "1.0"},
        "ce_id": _text("The mutation id, a UUID: the idempotency key within its scope.", pattern=_UUID),
        "ce_source": _text("URI reference of the producer.", minLength=1),
        "ce_type": {"const": row.name},
        "ce_time": _text("The producer's clock, RFC 3339; informational."),
        "ce_partitionkey": _text("The scope again; where it is present it equals the record key."),
        "ce_kvactor": _text("Who asked, where known."),
        "ce_traceparent": _text("W3C trace context."),
        "content-type": _text("Of the body.", **{"not": {"pattern": "^[Aa]pplication/[Cc]loud[Ee]vents"}}),
    }
    required = ["ce_specversion", "ce_id", "ce_source", "ce_type"]
    absent: list[str] = []
    match row.subject:
        case SubjectRule.KEY:
            properties["ce_subject"] = _text("The key.")
            required.append("ce_subject")
        case SubjectRule.PREFIX:
            properties["ce_subject"] = _text("The prefix, literal; absent is the empty one.")
        case SubjectRule.NONE:
            absent.append("ce_subject")
    if row.has_namespace:
        properties["ce_kvnamespace"] = _text("The deployment's namespace.")
        required.append("ce_kvnamespace")
    else:
        absent.append("ce_kvnamespace")
    if row.is_restore:
        properties["ce_kvversion"] = _text("The version that the entry had.", pattern="^[1-9][0-9]{0,14}$")
        properties["ce_kvsnapshot"] = _text("The snapshot's UUID: a scope is filled from one.", format="uuid")
        required += ["ce_kvversion", "ce_kvsnapshot"]
    properties["ce_kvexpected"] = _text("The precondition; absent is any.", pattern=_expected_pattern(row))
    # A header that has no meaning for the type makes the record malformed.
    properties |= dict.fromkeys(absent, False)
    return {"type": "object", "required": required, "properties": properties}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "maxLength": HEADER_TEXT_BYTES_MAX, "description": description} | more


def _expected_pattern(row: MutationType) -> str:
    kinds = sorted(row.preconditions, key=list(PreconditionKind).index)
    return "^(" + "|".join(_VALUES.get(kind, kind.value) for kind in kinds) + ")$"


if __name__ == "__main__":
    for _name, _document in published().items():
        Path(sys.argv[1], _name).write_text(_document, "utf-8")
