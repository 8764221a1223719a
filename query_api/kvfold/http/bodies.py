"""Request bodies with a limit.

An over-long body is still read to its end, up to 8 MiB, so that the client hears 413 instead of a broken pipe; beyond
that the answer goes out at once and the connection is closed.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import ClientDisconnect

from kvfold.http.call import Call
from kvfold.http.problems import BodyTooLargeError
from kvfold.schemas.limits import BODY_DRAIN_BYTES_MAX

__all__ = ["read_body"]

_LENGTH: Final = re.compile(rb"[0-9]{1,18}")


async def read_body(call: Call, *, limit: int) -> bytes:
    """The whole body, of at most `limit` bytes.

    Raises:
        BodyTooLargeError: it is longer; drained, unless it is longer than 8 MiB.
        ClientDisconnect: the client went away in the middle.
    """
    lengths = call.header_values(b"content-length")
    # A longer announcement need not be read; nor does a client that waits for `100 Continue` have to send it.
    if lengths and _LENGTH.fullmatch(lengths[0]) and int(lengths[0]) > BODY_DRAIN_BYTES_MAX:
        raise BodyTooLargeError(limit, closes_connection=True)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await call.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect()
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > BODY_DRAIN_BYTES_MAX:
            raise BodyTooLargeError(limit, closes_connection=True)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
        if not message.get("more_body", False):
            break
    if size > limit:
        raise BodyTooLargeError(limit, closes_connection=False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
