"""How a record is framed: its headers as one byte string, and the room that it takes in a Kafka batch.

The three logs accept the same records. What decides is the room in a Kafka batch: a record that the embedded log
took must fit into a topic when the log is copied there.
"""

from __future__ import annotations

from typing import Final

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import RECORD_BYTES_MAX
from kvfold.schemas.record import Headers, NewRecord

__all__ = [
    "FRAMING_BYTES",
    "FRAMING_BYTES_PER_HEADER",
    "check_record",
    "decode_headers",
    "encode_headers",
    "framed_size",
]

FRAMING_BYTES: Final = 100  # head of a batch (61), of a record (21), three lengths (5 each), rounded up
FRAMING_BYTES_PER_HEADER: Final = 10  # two lengths
_LONG: Final = 255


def framed_size(record: NewRecord) -> int:
    """Bytes that a record takes in a log, framing included; a round upper bound of what Kafka clients compute.

    Raises:
        UnicodeEncodeError: a header's name holds a lone surrogate.
    """
    names_and_values = sum(len(name.encode()) + len(value) for name, value in record.headers)
    framing = FRAMING_BYTES + FRAMING_BYTES_PER_HEADER * len(record.headers)
    return framing + names_and_values + len(record.key or b"") + len(record.value or b"")


def check_record(record: NewRecord) -> None:
    """Refuses what no log accepts.

    Raises:
        InvalidError: `too-large` for a record over `RECORD_BYTES_MAX` with its framing; `malformed-record` for a header
            name that is not valid Unicode.
    """
    try:
        size = framed_size(record)
    except UnicodeEncodeError as error:
        raise InvalidError(
            "a header's name holds a lone surrogate: names are UTF-8", code="malformed-record"
        ) from error
    if size > RECORD_BYTES_MAX:
        raise InvalidError(
            f"a record of {size} bytes is over the limit of {RECORD_BYTES_MAX} bytes (headers and framing included)",
            code="too-large",
        )


def encode_headers(headers: Headers) -> bytes:
    """Headers as one byte string: name and value of each, each with its length in front.

    A length is one byte; 255 says that the four bytes after it are the length. `(("ce_id", b"x"),)` becomes
    `05 "ce_id" 01 "x"`.
    """
    parts = []
    for name, value in headers:
        for data in (name.encode(), value):
            size = len(data)
            parts.append(bytes((size,)) if size < _LONG else b"\xff" + size.to_bytes(4, "big"))
            parts.append(data)
    return b"".join(parts)


def decode_headers(data: bytes) -> Headers:
    """The headers that `encode_headers` made `data` from."""
    fields: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        size = data[at]
        at += 1
        if size == _LONG:
            size = int.from_bytes(data[at : at + 4], "big")
            at += 4
        fields.append(data[at : at + size])
        at += size
    assert at == end and len(fields) % 2 == 0, "headers end in the middle of a field"
    return tuple(zip((name.decode() for name in fields[::2]), fields[1::2], strict=True))
