"""Strict single-valued request headers: a malformed one is 400, never "not given"."""

from __future__ import annotations

import re
from typing import Final

from kvfold.http.call import Call
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import INT64_MAX

__all__ = ["object_version", "parse_version", "single_header"]

_VERSION: Final = re.compile(rb"0|[1-9][0-9]{0,18}")


def single_header(call: Call, name: str, *, code: str) -> bytes | None:
    """A header's value; None where it is absent. An empty value is a value.

    Raises:
        InvalidError: `code`, where it is repeated.
    """
    values = call.header_values(name.lower().encode("ascii"))
    if not values:
        return None
    if len(values) > 1:
        raise InvalidError(f"{name} stands {len(values)} times: once is accepted", code=code)
    return values[0]


def object_version(call: Call) -> int | None:
    """`X-Object-Version` of the request; None where it is absent.

    Raises:
        InvalidError: `malformed-version`, for anything but one plain decimal within int64: blank, signed, padded,
            fractional, with a leading zero, repeated.
    """
    value = single_header(call, "X-Object-Version", code="malformed-version")
    return None if value is None else parse_version(value, what="X-Object-Version")


def parse_version(value: bytes, *, what: str) -> int:
    """A version as a plain decimal.

    Raises:
        InvalidError: `malformed-version`.
    """
    if _VERSION.fullmatch(value) is None or int(value) > INT64_MAX:
        shown = value[:40].decode("latin-1")
        raise InvalidError(
            f"malformed {what} {shown!r}: a plain decimal from 0 to {INT64_MAX} is accepted",
            code="malformed-version",
        )
    return int(value)
