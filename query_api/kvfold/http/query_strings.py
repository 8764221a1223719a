"""Query strings, decoded strictly as forms are (WHATWG URL, application/x-www-form-urlencoded).

`+` is a space and `%2B` a plus, as `httpx`, `requests`, `urlencode` and `curl --data-urlencode` write them. In a path a
plus is a plus.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import unquote_to_bytes

from kvfold.schemas.errors import InvalidError

__all__ = ["BAD_ESCAPE", "parse_query"]

BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
"""A percent sign that begins no escape."""

_PARAMETERS_MAX: Final = 64


def parse_query(query_string: bytes, accepted: Collection[str]) -> dict[str, str]:
    """The parameters by name, each at most once; a name without `=` has the empty value.

    Raises:
        InvalidError: `malformed-query` for a bad escape, bad UTF-8, a repeated or unaccepted parameter, or NUL;
            `invalid-key` for NUL in `key`.
    """
    query: dict[str, str] = {}
    for pair in query_string.split(b"&", _PARAMETERS_MAX):
        if not pair:
            continue
        raw_name, _, raw_value = pair.partition(b"=")
        name = _decoded(raw_name)
        if name not in accepted:
            names = ", ".join(sorted(accepted)) or "none"
            raise _malformed(f"the parameter {name[:80]!r} is unknown here; accepted: {names}")
        if name in query:
            raise _malformed(f"the parameter {name!r} stands twice")
        value = _decoded(raw_value)
        if "\x00" in value:
            if name == "key":
                raise InvalidError("the key holds NUL: it is not accepted", code="invalid-key")
            raise _malformed(f"the parameter {name!r} holds NUL")
        query[name] = value
    return query


def _decoded(raw: bytes) -> str:
    if BAD_ESCAPE.search(raw):
        raise _malformed("a percent sign begins no escape: write it as %25")
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed("it is not UTF-8") from error


def _malformed(what: str) -> InvalidError:
    return InvalidError(f"malformed query string: {what}", code="malformed-query")
