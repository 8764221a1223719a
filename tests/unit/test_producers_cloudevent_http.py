"""CloudEvents over HTTP: what the official SDK sends is read, what is not understood is refused (row X14)."""

from __future__ import annotations

import base64
import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings import http as cloudevents_http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from kvfold.producers.cloudevent_http import from_batch, from_binary, from_structured, media_type
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import CLOUDEVENTS_BATCH_EVENTS_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.precondition import ABSENT, Precondition

__all__: list[str] = []

ID = "01920000-0000-7000-8000-000000000001"
SCOPE = "c:alice:capsule:notes"
ATTRIBUTES = {
    "specversion": "1.0",
    "type": "kvfold.capsule.set.v1",
    "id": ID,
    "source": "/notes",
    "partitionkey": SCOPE,
    "subject": "todo",
}
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1)


def headers_of(attributes: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(b"ce-" + name.encode(), text.encode()) for name, text in attributes.items()]


def refused(call: Any, *arguments: Any) -> str:
    with pytest.raises(InvalidError) as caught:
        call(*arguments)
    assert caught.value.code in {"malformed-event", "malformed", "malformed-precondition", "too-large"}
    return str(caught.value)


def sdk_message(mode: str, attributes: dict[str, Any], data: Any) -> Mutation:
    event = CloudEvent(dict(attributes), data)
    if mode == "binary":
        message = cloudevents_http.to_binary(event, JSONFormat())
        return from_binary(
            [(name.lower().encode(), text.encode()) for name, text in message.headers.items()], message.body
        )
    return from_structured(cloudevents_http.to_structured(event, JSONFormat()).body)


@pytest.mark.row("X14")
@pytest.mark.parametrize("mode", ["binary", "structured"])
@given(subject=TEXT, value=st.binary())
def test_what_the_official_sdk_sends_is_read(mode: str, subject: str, value: bytes) -> None:
    attributes = ATTRIBUTES | {
        "subject": subject,
        "datacontenttype": "application/octet-stream",
        "kvexpected": "absent",
        "time": datetime(2026, 1, 31, 12, 0, tzinfo=UTC),
    }
    mutation = sdk_message(mode, attributes, value)
    # A header loses blanks at its ends only where they are not escaped; the SDK escapes them.
    assert mutation == Mutation(
        "kvfold.capsule.set.v1",
        SCOPE,
        ID,
        subject=subject,
        expected=ABSENT,
        body=value,
        content_type="application/octet-stream",
        source="/notes",
        time="2026-01-31T12:00:00Z",
    )


@pytest.mark.row("X14")
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_json_data_of_the_official_sdk_is_the_body(mode: str) -> None:
    attributes = ATTRIBUTES | {"type": "kvfold.orchestration.started.v1", "partitionkey": "o:1"}
    del attributes["subject"]
    body = sdk_message(mode, attributes, {"name": "order", "input": {"b": 1, "a": "ü"}}).body
    assert body is not None
    assert json.loads(body) == {"name": "order", "input": {"a": "ü", "b": 1}}


def test_json_data_has_one_canonical_form() -> None:
    first = from_structured(json.dumps(ATTRIBUTES | {"data": {"b": 1.5, "a": [None]}}).encode())
    second = from_structured(json.dumps(ATTRIBUTES | {"data": {"a": [None], "b": 1.5}}).encode())
    assert first == second
    assert first.body == b'{"a":[null],"b":1.5}'
    assert first.content_type == "application/json"


@pytest.mark.parametrize(
    ("members", "body"),
    [
        ({"data": "text"}, b'"text"'),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text"),
        ({"data": "text", "datacontenttype": "application/vnd.x+json; charset=utf-8"}, b'"text"'),
        ({"data": 0}, b"0"),
        ({"data": False}, b"false"),
        ({"data": ""}, b'""'),
        ({"data": "", "datacontenttype": "text/plain"}, b""),
        ({"data_base64": ""}, b""),
        ({"data_base64": "AP8="}, b"\x00\xff"),
        ({"data": None}, None),
        ({}, None),
    ],
)
def test_the_body_of_structured_mode(members: dict[str, Any], body: bytes | None) -> None:
    assert from_structured(json.dumps(ATTRIBUTES | members).encode()).body == body


def test_an_empty_body_in_binary_mode_is_an_empty_value_or_none() -> None:
    assert from_binary(headers_of(ATTRIBUTES), b"").body == b""
    deleted = ATTRIBUTES | {"type": "kvfold.capsule.deleted.v1"}
    assert from_binary(headers_of(deleted), b"").body is None
    assert from_structured(json.dumps(deleted | {"data_base64": ""}).encode()).body is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a%20b", "a b"),
        (b"a b", "a b"),
        (b" a ", "a"),
        (b"%20a%20", " a "),
        (b"a%2525", "a%25"),
        (b"a+b", "a+b"),
        (b"na%C3%AFve", "naïve"),
        (b'"quoted \\"%20x"', 'quoted " x'),
        (b"%F0%9F%98%80", "\U0001f600"),
        (b"%00", "\x00"),  # the door refuses it as an invalid key
    ],
)
def test_header_values_are_unquoted_and_percent_decoded_once(raw: bytes, text: str) -> None:
    headers = headers_of({name: value for name, value in ATTRIBUTES.items() if name != "subject"})
    assert from_binary([*headers, (b"ce-subject", raw)], b"").subject == text


@pytest.mark.parametrize(
    "raw", [b"", b" ", b"%", b"a%2", b"%zz", b"%FF", b"%C3", b"\xc3\xaf", b'""', b"%ED%A0%80"]
)
def test_a_header_value_that_does_not_decode_is_refused(raw: bytes) -> None:
    headers = headers_of({name: value for name, value in ATTRIBUTES.items() if name != "subject"})
    refused(from_binary, [*headers, (b"ce-subject", raw)], b"")


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize(
    "change",
    [
        {"specversion": "0.3"},
        {"specversion": None},
        {"id": "not-a-uuid"},
        {"id": None},
        {"id": ID.replace("-", "")},
        {"source": None},
        {"type": None},
        {"partitionkey": None},
        {"kvexpectd": "absent"},  # a misspelt precondition must never be an unconditional write
        {"kvexpected": "Absent"},
        {"kvexpected": "version:-1"},
        {"kvexpected": "version:1.5"},
        {"kvexpected": "version:01"},
        {"kvexpected": "version:1,1"},
        {"kvexpected": ""},
        {"time": "yesterday"},
        {"time": "2026-02-30T00:00:00Z"},
        {"time": "2026-01-01"},
    ],
)
def test_what_is_not_understood_is_refused(mode: str, change: dict[str, str | None]) -> None:
    attributes = {name: text for name, text in (ATTRIBUTES | change).items() if text is not None}
    if mode == "binary":
        refused(from_binary, headers_of(attributes), b"x")
    else:
        refused(from_structured, json.dumps(attributes | {"data_base64": ""}).encode())


def test_a_repeated_header_is_refused() -> None:
    headers = [*headers_of(ATTRIBUTES), (b"ce-kvexpected", b"absent"), (b"ce-kvexpected", b"any")]
    assert "twice" in refused(from_binary, headers, b"")
    refused(from_binary, [*headers_of(ATTRIBUTES), (b"ce-datacontenttype", b"text/plain")], b"")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"1",
        b"null",
        b"{",
        b"\xff",
        b'{"id":1}',
        json.dumps(ATTRIBUTES | {"data": 1, "data_base64": ""}).encode(),
        json.dumps(ATTRIBUTES | {"data_base64": "AP8"}).encode(),
        json.dumps(ATTRIBUTES | {"data_base64": "A P8="}).encode(),
        json.dumps(ATTRIBUTES | {"data_base64": 7}).encode(),
        json.dumps(ATTRIBUTES | {"data": {}, "datacontenttype": "text/plain"}).encode(),
        json.dumps(ATTRIBUTES | {"kvexpected": 7}).encode(),
        json.dumps(ATTRIBUTES).encode()[:-1] + b',"id":"x"}',
        json.dumps(ATTRIBUTES | {"subject": "\ud800"}).encode(),
    ],
)
def test_a_malformed_event_is_refused(body: bytes) -> None:
    refused(from_structured, body)


def test_a_batch_is_read_event_by_event() -> None:
    good = ATTRIBUTES | {"data_base64": base64.b64encode(b"v").decode(), "kvexpected": "version:3"}
    outcomes = from_batch(json.dumps([good, {"id": 1}, 7, good]).encode())
    assert [type(outcome) for outcome in outcomes] == [Mutation, InvalidError, InvalidError, Mutation]
    first = outcomes[0]
    assert isinstance(first, Mutation)
    assert first.expected == Precondition.version(3)
    assert from_batch(b"[]") == []


def test_a_whole_that_is_no_batch_is_refused() -> None:
    refused(from_batch, b"{}")
    refused(from_batch, json.dumps([{}] * (CLOUDEVENTS_BATCH_EVENTS_MAX + 1)).encode())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from([*ATTRIBUTES, "data", "data_base64", "time"]) | st.text(), inner
            )
        ),
    )
)
def test_any_json_is_an_event_or_refused(value: Any) -> None:
    body = json.dumps(value).encode()
    for read in (from_structured, from_batch):
        with contextlib.suppress(InvalidError):
            read(body)


@given(st.dictionaries(st.sampled_from(sorted(ATTRIBUTES)), st.binary()), st.binary())
def test_any_headers_are_an_event_or_refused(changes: dict[str, bytes], body: bytes) -> None:
    headers = {name: text.encode() for name, text in ATTRIBUTES.items()} | changes
    with contextlib.suppress(InvalidError):
        from_binary([(b"ce-" + name.encode(), raw) for name, raw in headers.items()], body)


def test_media_type() -> None:
    assert media_type("Application/CloudEvents+JSON; charset=utf-8") == "application/cloudevents+json"
    assert media_type(None) == ""
