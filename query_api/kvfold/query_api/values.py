"""The answer to a GET of a value, conditions included (RFC 9110, section 13)."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.preconditions import read_condition
from kvfold.http.problems import NotFoundError, Problem

__all__ = ["value_response"]

_OCTETS: Final = "application/octet-stream"


def value_response(call: Call, value: bytes | None, etag: str | None, headers: dict[str, str]) -> Response:
    """200 with the bytes, 304, 412, or 404 where `value` is None; `headers` go on each of them.

    Raises:
        InvalidError: `malformed-precondition`.
        NotFoundError: there is no value.
    """
    if etag is not None:
        headers["ETag"] = etag
    match read_condition(call, etag):
        case 304:
            return Response(status_code=304, headers=headers)
        case 412:
            detail = "If-Match does not name the current entity tag"
            return Problem(412, "precondition-failed", detail).response(headers=headers)
        case None:
            if value is None:
                raise NotFoundError("there is no such key", headers=headers)
            return Response(value, headers=headers, media_type=_OCTETS)
