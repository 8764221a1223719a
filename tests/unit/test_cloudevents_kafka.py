"""The official CloudEvents SDK and our codec read each other's Kafka records (row X14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from kvfold.schemas.codec import Malformed, decode, encode
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.precondition import ABSENT
from kvfold.schemas.record import Record
from support.given import applied, given, rejected
from support.mutations import (
    CAPSULE,
    DEPLOYMENT,
    capsule_quota,
    capsule_set,
    deployment_deleted,
    deployment_put,
    instance_started,
    mutation_id,
)

__all__: list[str] = []

pytestmark = pytest.mark.row("X14")
ID = mutation_id(7)


def _event(type_: str, scope: str, data: Any = None, **more: Any) -> CloudEvent:
    base = {"specversion": "1.0", "id": ID, "source": "/sdk", "type": type_, "partitionkey": scope}
    return CloudEvent(base | more, data)


def _record(message: KafkaMessage) -> Record:
    key = message.key.encode() if isinstance(message.key, str) else message.key
    return Record(0, 0, 0, key, tuple(message.headers.items()), message.value)


def test_what_the_sdk_writes_is_read() -> None:
    event = _event(
        "kvfold.deployment.put.v1",
        DEPLOYMENT,
        b"\x00\xff",
        subject="a/é",
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        datacontenttype="application/octet-stream",
        kvnamespace="user",
        kvexpected="absent",
        kvactor="ops",
    )
    decoded = decode(_record(to_binary(event, JSONFormat())))
    assert decoded == Mutation(
        "kvfold.deployment.put.v1",
        DEPLOYMENT,
        ID,
        "a/é",
        "user",
        ABSENT,
        b"\x00\xff",
        "application/octet-stream",
        "/sdk",
        "2026-01-02T03:04:05Z",
        "ops",
    )


def test_what_the_sdk_writes_is_folded() -> None:
    events = [
        _event("kvfold.capsule.set.v1", CAPSULE, b"v", subject="k", id=mutation_id(9)),
        _event("kvfold.capsule.deleted.v1", CAPSULE, None, subject="k", id=mutation_id(8)),
        _event("kvfold.capsule.quota-set.v1", CAPSULE, {"bytes_max": 9}, datacontenttype="application/json"),
    ]
    given(*(_record(to_binary(event, JSONFormat())) for event in events)).then(
        applied(1), applied(1), applied(), capsule_scope=[{"keys": 0, "bytes_max": 9}]
    )


def test_a_repeat_through_the_sdk_is_a_repeat() -> None:
    ours = deployment_deleted("k", id_=ID)
    theirs = _event("kvfold.deployment.deleted.v1", DEPLOYMENT, subject="k", kvnamespace="user")
    assert given(ours).when(_record(to_binary(theirs, JSONFormat()))).last.repeat_of == 0


@pytest.mark.parametrize(
    ("mutation", "data"),
    [
        (capsule_set("k/é", b"\x00\xff", expected="present", actor="a"), b"\x00\xff"),
        (deployment_put("k", b"", expected="version:1,2"), None),
        (deployment_deleted("k"), None),
        (capsule_quota(9), {"bytes_max": 9}),
        (instance_started(data="é"), {"name": "order", "mode": "external", "input": "é"}),
    ],
    ids=lambda value: value.type if isinstance(value, Mutation) else "",
)
def test_what_we_write_the_sdk_reads(mutation: Mutation, data: object) -> None:
    new = encode(mutation)
    message = KafkaMessage(dict(new.headers), new.key, new.value or b"")
    event = from_kafka(message, JSONFormat())
    assert (event.get_id(), event.get_type(), event.get_source()) == (mutation.id, mutation.type, "kvfold")
    assert (event.get_specversion(), event.get_subject()) == ("1.0", mutation.subject)
    assert event.get_extension("partitionkey") == mutation.scope
    assert event.get_extension("kvnamespace") == mutation.namespace
    assert event.get_extension("kvexpected") == (
        None if str(mutation.expected) == "any" else str(mutation.expected)
    )
    assert event.get_data() == data


def test_there_and_back_again_is_the_same_mutation() -> None:
    # The SDK adds a time where there is none.
    mutation = replace(capsule_set("k", b"\x00\xff", expected="absent", id_=ID), time="2026-01-02T03:04:05Z")
    new = encode(mutation)
    event = from_kafka(KafkaMessage(dict(new.headers), new.key, new.value or b""), JSONFormat())
    assert decode(_record(to_binary(event, JSONFormat()))) == mutation


def test_structured_mode_in_a_record_is_malformed() -> None:
    event = _event("kvfold.capsule.set.v1", CAPSULE, b"v", subject="k")
    record = _record(to_structured(event, JSONFormat()))
    decoded = decode(record)
    assert isinstance(decoded, Malformed) and decoded.scope == CAPSULE
    detail = "structured mode inside a Kafka record is not accepted: use binary mode"
    given().when(record).then(rejected("malformed", detail), capsule_entry=[])
