"""CloudEvents 1.0 in Kafka binary mode: a mutation to a record and back (contract, "A log record").

`decode` is total: what it cannot read is a `Malformed` value that says why. It looks at form only, in an order that
never changes: the fold's rules (names, limits, versions) are `decide`'s. Worked example:

```
Record(key=b"c:alice:capsule:notes", value=b"hello", headers=(
    ("ce_specversion", b"1.0"), ("ce_id", b"0192…"), ("ce_source", b"/notes"),
    ("ce_type", b"kvfold.capsule.set.v1"), ("ce_subject", b"todo"), ("ce_partitionkey", b"c:alice:capsule:notes")))
→ Mutation(type="kvfold.capsule.set.v1", scope="c:alice:capsule:notes", id="0192…", subject="todo", body=b"hello", …)
```
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import HEADER_TEXT_BYTES_MAX, RECORD_KEY_BYTES_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.precondition import ANY, Precondition
from kvfold.schemas.record import Headers, NewRecord, Record
from kvfold.schemas.types import MUTATION_TYPES

__all__ = ["Malformed", "decode", "encode", "fingerprint", "is_mutation_id"]

_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
# Up to 10**15 - 1: far below what a version counter can hold, so that ordinary writes go on from it.
_VERSION: Final = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_STRUCTURED: Final = "application/cloudevents"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that is no mutation: why, and as much of it as could be read (for the decision's row)."""

    detail: str
    scope: str | None = None
    id: str | None = None
    type: str | None = None


def is_mutation_id(text: str) -> bool:
    """True for a UUID of any version in canonical text (8-4-4-4-12 hex digits, either case)."""
    return _ID.fullmatch(text.lower()) is not None


def encode(mutation: Mutation) -> NewRecord:
    """The record of a mutation. The caller has checked it: this asserts only what the codec itself relies on."""
    assert is_mutation_id(mutation.id), "a mutation id is a UUID"
    attributes = (
        ("ce_specversion", "1.0"),
        ("ce_id", mutation.id),
        ("ce_source", mutation.source),
        ("ce_type", mutation.type),
        ("ce_subject", mutation.subject or None),
        ("ce_time", mutation.time),
        ("ce_partitionkey", mutation.scope),
        ("ce_kvnamespace", mutation.namespace),
        ("ce_kvexpected", None if mutation.expected is ANY else str(mutation.expected)),
        ("ce_kvactor", mutation.actor),
        ("ce_kvversion", None if mutation.version is None else str(mutation.version)),
        ("ce_kvsnapshot", mutation.snapshot),
        ("ce_traceparent", mutation.traceparent),
        ("content-type", mutation.content_type),
    )
    headers: Headers = tuple((name, text.encode()) for name, text in attributes if text is not None)
    return NewRecord(mutation.scope.encode(), headers, mutation.body)


def decode(record: Record) -> Mutation | Malformed:
    """The mutation in a record, or why there is none. Total: every record has an answer."""
    scope = _scope(record.key)
    if isinstance(scope, Malformed):
        return scope
    attributes = _attributes(record.headers)
    if isinstance(attributes, str):
        return Malformed(attributes, scope)
    problem = _required(attributes, scope)
    mutation_id = attributes.get("ce_id", "").lower()
    mutation_type = attributes.get("ce_type")
    if problem is not None:
        known_id = mutation_id if _ID.fullmatch(mutation_id) else None
        return Malformed(problem, scope, known_id, _storable(mutation_type))
    assert mutation_type is not None
    expected = attributes.get("ce_kvexpected")
    try:
        precondition = ANY if expected is None else Precondition.parse(expected)
    except InvalidError as error:
        return Malformed(str(error), scope, mutation_id, _storable(mutation_type))
    return Mutation(
        mutation_type,
        scope,
        mutation_id,
        attributes.get("ce_subject"),
        attributes.get("ce_kvnamespace"),
        precondition,
        record.value,
        attributes.get("content-type"),
        attributes["ce_source"],
        attributes.get("ce_time"),
        attributes.get("ce_kvactor"),
        attributes.get("ce_traceparent"),
        *_restored(mutation_type, attributes),
    )


def fingerprint(mutation: Mutation, *, with_body: bool) -> bytes:
    """16 bytes that two mutations share iff type, subject, namespace, precondition and body are the same, and version and
    snapshot where they are restored entries.

    `with_body=False` for secret namespaces: each encryption has a fresh nonce, so a repeat has other bytes.
    """
    expected = "any" if mutation.expected is ANY else str(mutation.expected)
    digest = hashlib.blake2b(
        _few_framed(mutation.type)
        + _framed(mutation.subject)
        + _few_framed(mutation.namespace)
        + _few_framed(expected),
        digest_size=16,
    )
    if mutation.version is not None:
        digest.update(_framed(str(mutation.version)) + _framed(mutation.snapshot))
    if with_body:
        digest.update(b"\x00" if mutation.body is None else b"\x01" + mutation.body)
    return digest.digest()


def _framed(part: str | None) -> bytes:
    """Absent and empty are different; the length in front keeps neighbours apart."""
    raw = b"\x00" if part is None else b"\x01" + part.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(4, "big") + raw


_few_framed = lru_cache(maxsize=1_024)(_framed)
"""For what is the same in most mutations."""


def _scope(key: bytes | None) -> str | Malformed:
    if key is None:
        return Malformed("the record has no key: the key is the scope")
    if len(key) > RECORD_KEY_BYTES_MAX:
        hashed = "sha256:" + hashlib.sha256(key).hexdigest()
        return Malformed(f"the key has {len(key)} bytes: at most {RECORD_KEY_BYTES_MAX} are accepted", hashed)
    try:
        scope = key.decode("utf-8")
    except UnicodeDecodeError:
        return Malformed("the key is not UTF-8", "sha256:" + hashlib.sha256(key).hexdigest())
    if "\x00" in scope:
        return Malformed("the key holds NUL", "sha256:" + hashlib.sha256(key).hexdigest())
    return scope


def _attributes(headers: Headers) -> dict[str, str] | str:
    """The CloudEvents attributes by header name, or what is wrong. Headers that are no attributes are passed over."""
    attributes: dict[str, str] = {}
    for name, raw in headers:
        if name[:3] != "ce_" and name != "content-type":
            continue
        if name in attributes:
            return f"the header {_quoted(name)} stands twice"
        if len(raw) > HEADER_TEXT_BYTES_MAX:
            return f"the header {_quoted(name)} is longer than {HEADER_TEXT_BYTES_MAX} bytes"
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return f"the header {_quoted(name)} is not UTF-8"
        # A NUL in the subject is an invalid key, with that code; anywhere else it is no text at all.
        if "\x00" in text and name != "ce_subject":
            return f"the header {_quoted(name)} holds NUL"
        attributes[name] = text
    return attributes


def _required(attributes: dict[str, str], scope: str) -> str | None:
    if attributes.get("content-type", "").lower().startswith(_STRUCTURED):
        return "structured mode inside a Kafka record is not accepted: use binary mode"
    if attributes.get("ce_specversion") != "1.0":
        return "ce_specversion is not 1.0"
    if not attributes.get("ce_type"):
        return "ce_type is missing"
    if not attributes.get("ce_source"):
        return "ce_source is missing"
    if _ID.fullmatch(attributes.get("ce_id", "").lower()) is None:
        return "ce_id is missing or no UUID"
    if attributes.get("ce_partitionkey", scope) != scope:
        return "ce_partitionkey is not the record's key"
    return None


def _restored(mutation_type: str, attributes: dict[str, str]) -> tuple[int | None, str | None]:
    """Version and snapshot of a restored entry, each None where it is missing or malformed; other types have neither."""
    row = MUTATION_TYPES.get(mutation_type)
    if row is None or not row.is_restore:
        return None, None
    version, snapshot = attributes.get("ce_kvversion", ""), attributes.get("ce_kvsnapshot", "").lower()
    return (
        int(version) if _VERSION.fullmatch(version) else None,
        snapshot if is_mutation_id(snapshot) else None,
    )


def _quoted(name: str) -> str:
    """A header name that is safe in a stored sentence."""
    return ascii(name[:64])


def _storable(text: str | None) -> str | None:
    return text[:256] if text is not None and "\x00" not in text else None
