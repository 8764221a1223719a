"""CloudEvents 1.0 over HTTP, in binary, structured and batched mode, to mutations (row X14).

Strict: what is not understood is refused, never passed over, since a misspelt `kvexpected` would be a write without a
precondition. The scope is the attribute `partitionkey`. Worked example, binary mode:

```
ce-specversion: 1.0                           → Mutation(type="kvfold.capsule.set.v1", id="0192…",
ce-type: kvfold.capsule.set.v1                           scope="c:alice:capsule:notes", subject="naïve todo",
ce-id: 0192…                                             source="/notes", body=b"hello",
ce-source: /notes                                        content_type="text/plain")
ce-partitionkey: c:alice:capsule:notes
ce-subject: na%C3%AFve%20todo
content-type: text/plain
```
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from kvfold.schemas.codec import is_mutation_id
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import CLOUDEVENTS_BATCH_EVENTS_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.precondition import ANY, Precondition
from kvfold.schemas.strict_json import decode_json, encode_json
from kvfold.schemas.types import MUTATION_TYPES, BodyKind

__all__ = [
    "BATCH_MEDIA_TYPE",
    "EVENT_MEDIA_TYPE",
    "from_batch",
    "from_binary",
    "from_structured",
    "media_type",
]

EVENT_MEDIA_TYPE: Final = "application/cloudevents+json"
BATCH_MEDIA_TYPE: Final = "application/cloudevents-batch+json"

_KEPT: Final = frozenset(
    {
        "specversion",
        "id",
        "source",
        "type",
        "subject",
        "time",
        "datacontenttype",
        "partitionkey",
        "kvnamespace",
        "kvexpected",
        "kvactor",
        "kvversion",
        "kvsnapshot",
        "traceparent",
    }
)
# Part of CloudEvents and of its tracing extension: harmless to a mutation, so they are read and not kept.
_PASSED: Final = frozenset({"dataschema", "tracestate"})
_ACCEPTED: Final = ", ".join(sorted(_KEPT | _PASSED))
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d{1,12})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_VERSION: Final = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})?")
_JSON_TYPE: Final = re.compile(r"[^/;]+/([^;]+\+)?json\s*(;.*)?", re.ASCII | re.IGNORECASE | re.DOTALL)


def from_binary(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Mutation:
    """One event in binary mode; header names are lower-case, as ASGI gives them.

    An empty body is an empty value where the type has a value, and no body elsewhere.

    Raises:
        InvalidError: `malformed-event`, or `malformed-precondition`; the text says what is accepted.
    """
    attributes: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1").lower()
        if name.startswith("ce-"):
            attribute = name[3:]
        elif name == "content-type":
            attribute = "datacontenttype"
        else:
            continue
        if name == "ce-datacontenttype":
            raise _malformed("in binary mode the header content-type stands for datacontenttype")
        if attribute in attributes:
            raise _malformed(f"the header {name[:64]!a} stands twice")
        attributes[attribute] = _header_text(name, raw_value)
    row = MUTATION_TYPES.get(attributes.get("type", ""))
    holds_value = row is not None and row.body is BodyKind.BYTES
    return _mutation(attributes, body if body or holds_value else None)


def from_structured(body: bytes) -> Mutation:
    """One event in the JSON format (`application/cloudevents+json`).

    Raises:
        InvalidError: `malformed` (no strict JSON), `malformed-event` or `malformed-precondition`.
    """
    return _event(decode_json(body))


def from_batch(body: bytes) -> list[Mutation | InvalidError]:
    """The events of a batch (`application/cloudevents-batch+json`), in order; one that is wrong is its error.

    Raises:
        InvalidError: the whole is no batch: no strict JSON, no array, or more than 1,000 events.
    """
    events = decode_json(body)
    if not isinstance(events, list):
        raise _malformed("a batch is a JSON array of events")
    if len(events) > CLOUDEVENTS_BATCH_EVENTS_MAX:
        raise InvalidError(
            f"a batch has {len(events)} events: at most {CLOUDEVENTS_BATCH_EVENTS_MAX} are accepted",
            code="too-large",
        )
    return [_event_or_error(event) for event in events]


def media_type(content_type: str | None) -> str:
    """The media type of a content-type header, in lower case and without parameters; empty if there is none."""
    return (content_type or "").partition(";")[0].strip().lower()


def _event_or_error(event: Any) -> Mutation | InvalidError:
    try:
        return _event(event)
    except InvalidError as error:
        return error


def _event(event: Any) -> Mutation:
    if not isinstance(event, dict):
        raise _malformed("an event is a JSON object")
    # A null member is an absent one (CloudEvents JSON format, 2.2 and 3.1).
    members = {name: value for name, value in event.items() if value is not None}
    data = members.pop("data", None)
    data_base64 = members.pop("data_base64", None)
    for name, value in members.items():
        if not isinstance(value, str):
            raise _malformed(f"the attribute {name[:64]!a} must be a string")
    body = _data(members.get("datacontenttype"), data, data_base64)
    if data is not None:
        # Without it, `data` is JSON (CloudEvents JSON format, 3.1): the value keeps what it is.
        members.setdefault("datacontenttype", "application/json")
    return _mutation(members, body)


def _data(content_type: str | None, data: Any, data_base64: Any) -> bytes | None:
    if data is not None and data_base64 is not None:
        raise _malformed("an event has data or data_base64, not both")
    if data_base64 is not None:
        return _base64(data_base64)
    if data is None:
        return None
    if content_type is None or _JSON_TYPE.fullmatch(content_type):
        # One canonical form, so that a sender that orders members anew repeats the same mutation.
        return encode_json(data)
    if not isinstance(data, str):
        raise _malformed("data that is not JSON by its datacontenttype must be a string")
    return data.encode()


def _base64(text: Any) -> bytes:
    if isinstance(text, str) and text.isascii():
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            pass
    raise _malformed("data_base64 must be a string in base64, RFC 4648 section 4, with its padding")


def _mutation(attributes: dict[str, str], body: bytes | None) -> Mutation:
    """The mutation of attributes by their CloudEvents names."""
    for name, text in attributes.items():
        if name not in _KEPT and name not in _PASSED:
            raise _malformed(f"unknown attribute {name[:64]!a}: {_ACCEPTED} are accepted")
        if not text:
            raise _malformed(f"the attribute {name} is empty: leave it away")
    if attributes.get("specversion") != "1.0":
        raise _malformed("specversion must be 1.0")
    for name in ("type", "source", "partitionkey"):
        if name not in attributes:
            raise _malformed(f"the attribute {name} is missing")
    if not is_mutation_id(attributes.get("id", "")):
        raise _malformed("id must be a UUID: it is the idempotency key within the scope")
    time = attributes.get("time")
    if time is not None and not _is_time(time):
        raise _malformed("time must be as RFC 3339 has it, such as 2026-01-31T12:00:00Z")
    expected = attributes.get("kvexpected")
    row = MUTATION_TYPES.get(attributes["type"])
    if row is not None and row.body is BodyKind.NONE and body == b"":
        body = None  # no body and an empty one are the same question to the fold, and one fingerprint
    return Mutation(
        attributes["type"],
        attributes["partitionkey"],
        attributes["id"].lower(),
        attributes.get("subject"),
        attributes.get("kvnamespace"),
        ANY if expected is None else Precondition.parse(expected),
        body,
        attributes.get("datacontenttype"),
        attributes["source"],
        time,
        attributes.get("kvactor"),
        attributes.get("traceparent"),
        *_restored(attributes, is_restore=row is not None and row.is_restore),
    )


def _restored(attributes: dict[str, str], *, is_restore: bool) -> tuple[int | None, str | None]:
    """Version and snapshot of a restored entry; the fold says what they must be."""
    version, snapshot = attributes.get("kvversion"), attributes.get("kvsnapshot")
    if not is_restore:
        if version is not None or snapshot is not None:
            raise _malformed("kvversion and kvsnapshot belong to restored entries only")
        return None, None
    if version is None or _VERSION.fullmatch(version) is None:
        raise _malformed("kvversion must be a whole number from 1 to 999999999999999")
    if not is_mutation_id(snapshot or ""):
        raise _malformed("kvsnapshot must be a UUID")
    return int(version), (snapshot or "").lower()


def _header_text(name: str, raw: bytes) -> str:
    """An attribute's text from its header (CloudEvents HTTP binding, 3.1.3.2): unquote once, then percent-decode once."""
    if not raw.isascii():
        raise _malformed(f"the header {name[:64]!a} is not ASCII: percent-encode its UTF-8 bytes")
    text = raw.decode("ascii").strip(" \t")
    if name == "content-type":
        return text
    if len(text) >= 2 and text[0] == '"' and text[-1] == '"':
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    if "%" not in text:
        return text
    if any(escape[1] is None for escape in _ESCAPE.finditer(text)):
        raise _malformed(f"the header {name[:64]!a} has a % that begins no escape: write it as %25")
    decoded = re.sub(rb"%([0-9A-Fa-f]{2})", lambda escape: bytes.fromhex(escape[1].decode()), text.encode())
    try:
        return decoded.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"the escapes of the header {name[:64]!a} are not UTF-8") from error


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match[1])
    except ValueError:
        return False
    return True


def _malformed(what: str) -> InvalidError:
    return InvalidError(f"malformed CloudEvent: {what}", code="malformed-event")
