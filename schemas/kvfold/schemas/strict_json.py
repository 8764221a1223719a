"""A strict JSON decoder whose answer does not depend on the interpreter.

Accepted: UTF-8 without a byte order mark, depth at most 64, no duplicate members, no NaN or infinity, integers within
int64, no lone surrogates, no NUL in any string (Postgres text cannot hold it). The standard library's parser does the
work; what it leaves open, or decides differently between versions, is closed before and after it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import INT64_MAX, JSON_DEPTH_MAX

__all__ = ["decode_json", "encode_json"]

# Possessive, and an unterminated string reaches to the end: one pass, whatever the text.
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS: Final = re.compile(r"[\[\]{}]")
_INT_DIGITS_MAX: Final = 20
_FLOAT_CHARS_MAX: Final = 64


def decode_json(body: bytes) -> Any:
    """Decodes a JSON document.

    Raises:
        InvalidError: `malformed`, with what is wrong; the text never quotes the document.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed("it is not UTF-8") from error
    _check_shape(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except ValueError as error:
        raise _malformed("it does not parse") from error
    _check_strings(value)
    return value


def encode_json(value: Any) -> bytes:
    """The canonical form that kvfold writes: sorted members, no blanks, UTF-8; NaN and infinity are refused."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _malformed(what: str) -> InvalidError:
    return InvalidError(f"the JSON body is not accepted: {what}", code="malformed")


def _check_shape(text: str) -> None:
    """Depth and stray characters, on the text with its strings taken out."""
    outside = _STRING.sub('""', text)
    if not outside.isascii():
        raise _malformed("it does not parse")
    depth = 0
    for bracket in _BRACKETS.finditer(outside):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > JSON_DEPTH_MAX:
            raise _malformed(f"it is nested deeper than {JSON_DEPTH_MAX}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _malformed("a member stands twice in one object")
    return result


def _integer(digits: str) -> int:
    if len(digits) <= _INT_DIGITS_MAX and -INT64_MAX - 1 <= (number := int(digits)) <= INT64_MAX:
        return number
    raise _malformed("an integer is outside int64")


def _float(digits: str) -> float:
    if len(digits) <= _FLOAT_CHARS_MAX and math.isfinite(number := float(digits)):
        return number
    raise _malformed("a number is out of range")


def _constant(name: str) -> float:
    raise _malformed(f"{name} is no JSON number")


def _check_strings(value: Any) -> None:
    """No lone surrogate and no NUL anywhere; iterative, since the depth is bounded but the width is not."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, str):
            _check_string(item)


def _check_string(text: str) -> None:
    if "\x00" in text:
        raise _malformed("a string holds NUL")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _malformed("a string holds a lone surrogate") from error
