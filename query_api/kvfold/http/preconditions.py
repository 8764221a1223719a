"""Conditional requests (RFC 9110, section 13): If-Match and If-None-Match, for reads and for writes.

If-Match compares strongly, so a weak tag never matches there; If-None-Match compares weakly. A tag of a shape that we
never give out is well-formed and simply matches nothing. A malformed header is 400, never "unconditional".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from kvfold.http.call import Call
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.precondition import ABSENT, ANY, PRESENT, Precondition

__all__ = [
    "ETag",
    "ETagList",
    "digest_etag",
    "parse_etags",
    "read_condition",
    "version_etag",
    "write_condition",
]

# etagc: any visible character but the double quote, and obs-text (RFC 9110, 8.8.3).
_ETAG: Final = re.compile(rb'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_SEPARATOR: Final = re.compile(rb"[ \t]*,[ \t,]*")
_TAGS_MAX: Final = 16
_VERSION: Final = re.compile(rb"[1-9][0-9]{0,18}")
_DIGEST: Final = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ETag:
    """An entity tag, without its quotes."""

    opaque: bytes
    is_weak: bool = False


@dataclass(frozen=True, slots=True)
class ETagList:
    """What a conditional header lists; `is_any` for `*`."""

    tags: tuple[ETag, ...] = ()
    is_any: bool = False


def version_etag(version: int) -> str:
    """The tag of a deployment's entry: `"7"`."""
    return f'"{version}"'


def digest_etag(sha256: bytes) -> str:
    """The tag of a capsule's value: its SHA-256 in lower-case hex, quoted."""
    return f'"{sha256.hex()}"'


def parse_etags(values: list[bytes], *, header: str) -> ETagList | None:
    """The tags of a header that may be repeated; None where it is absent.

    Raises:
        InvalidError: `malformed-precondition`: neither `*` nor a list of quoted tags, an empty list, more than 16.
    """
    if not values:
        return None
    text = b",".join(values).strip(b" \t,")
    if text == b"*":
        return ETagList(is_any=True)
    tags: list[ETag] = []
    place = 0
    while True:
        match = _ETAG.match(text, place)
        if match is None or len(tags) == _TAGS_MAX:
            raise _malformed(header)
        tags.append(ETag(match[2], match[1] is not None))
        place = match.end()
        if place == len(text):
            return ETagList(tuple(tags))
        separator = _SEPARATOR.match(text, place)
        if separator is None:
            raise _malformed(header)
        place = separator.end()


def read_condition(call: Call, etag: str | None) -> Literal[304, 412] | None:
    """What a GET or HEAD answers instead of the entry: 412, 304, or None for the entry itself.

    `etag` is the entry's strong tag as sent, None where it is absent (If-Match then never holds).

    Raises:
        InvalidError: `malformed-precondition`.
    """
    current = None if etag is None else etag.strip('"').encode("ascii")
    wanted = parse_etags(call.header_values(b"if-match"), header="If-Match")
    unwanted = parse_etags(call.header_values(b"if-none-match"), header="If-None-Match")
    if wanted is not None and not _lists(wanted, current, strongly=True):
        return 412
    if unwanted is not None and _lists(unwanted, current, strongly=False):
        return 304
    return None


def write_condition(call: Call, kind: Literal["version", "sha256"]) -> Precondition | None:
    """The precondition that If-Match and If-None-Match make together; None where neither is given.

    It goes into the log, so what never holds is written as such: `version:0` (versions begin at 1), or the digest of
    zeros. If-None-Match with tags of foreign shapes only holds always: `any`.

    Raises:
        InvalidError: `malformed-precondition`; also for `If-Match: *` beside a list in If-None-Match, which the log's
            grammar cannot say.
    """
    wanted = parse_etags(call.header_values(b"if-match"), header="If-Match")
    unwanted = parse_etags(call.header_values(b"if-none-match"), header="If-None-Match")
    if wanted is None:
        return None if unwanted is None else _unless(unwanted, kind)
    if unwanted is None:
        return PRESENT if wanted.is_any else _one_of(_known(wanted, kind, strongly=True), kind)
    if unwanted.is_any:
        return _one_of([], kind)
    if wanted.is_any:
        raise InvalidError(
            "If-Match: * beside a list in If-None-Match is not accepted", code="malformed-precondition"
        )
    excluded = _known(unwanted, kind, strongly=False)
    return _one_of([v for v in _known(wanted, kind, strongly=True) if v not in excluded], kind)


def _lists(listed: ETagList, current: bytes | None, *, strongly: bool) -> bool:
    if current is None:
        return False
    return listed.is_any or any(
        tag.opaque == current and not (strongly and tag.is_weak) for tag in listed.tags
    )


def _known(listed: ETagList, kind: str, *, strongly: bool) -> list[str]:
    """The listed values that an entry can have at all, each once."""
    pattern = _VERSION if kind == "version" else _DIGEST
    tags = (tag.opaque for tag in listed.tags if not (strongly and tag.is_weak))
    found = dict.fromkeys(opaque.decode("ascii") for opaque in tags if pattern.fullmatch(opaque))
    return [value for value in found if kind != "version" or int(value) < 2**63]


def _one_of(values: list[str], kind: Literal["version", "sha256"]) -> Precondition:
    never = "0" if kind == "version" else "0" * 64
    return Precondition.parse(f"{kind}:{','.join(values) or never}")


def _unless(unwanted: ETagList, kind: Literal["version", "sha256"]) -> Precondition:
    if unwanted.is_any:
        return ABSENT
    values = _known(unwanted, kind, strongly=False)
    return Precondition.parse(f"not:{kind}:{','.join(values)}") if values else ANY


def _malformed(header: str) -> InvalidError:
    return InvalidError(
        f"malformed {header}: * or a list of at most {_TAGS_MAX} quoted entity tags is accepted",
        code="malformed-precondition",
    )
