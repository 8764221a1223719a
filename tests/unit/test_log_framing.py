"""How a record is framed: headers in one byte string, and the room in a Kafka batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from kvfold.log.framing import check_record, decode_headers, encode_headers, framed_size
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import RECORD_BYTES_MAX
from kvfold.schemas.record import NewRecord

__all__: list[str] = []

LENGTHS = st.sampled_from([0, 1, 254, 255, 256, 70_000])
VALUES = st.binary(max_size=20) | LENGTHS.map(bytes)
NAMES = st.text(st.characters(codec="utf-8"), max_size=20) | LENGTHS.map(lambda size: "n" * size)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=5).map(tuple)


@given(HEADERS)
def test_headers_survive_framing(headers: tuple[tuple[str, bytes], ...]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


def test_the_framing_of_headers_is_what_it_says() -> None:
    # Rows are written in it: the bytes are a promise.
    assert encode_headers((("ce_id", b"x"), ("", b""))) == b"\x05ce_id\x01x\x00\x00"
    assert encode_headers((("a", b"v" * 255),)) == b"\x01a\xff\x00\x00\x00\xff" + b"v" * 255


@given(st.none() | VALUES, HEADERS, st.none() | VALUES)
def test_the_size_is_never_below_what_the_kafka_client_computes(
    key: bytes | None, headers: tuple[tuple[str, bytes], ...], value: bytes | None
) -> None:
    record = NewRecord(key, headers, value)
    assert framed_size(record) >= DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, list(headers))
    assert framed_size(record) >= record.size()


def test_a_record_over_the_limit_is_refused_by_its_size() -> None:
    fitting = NewRecord(b"k", (("é", b"v"),), b"v" * (RECORD_BYTES_MAX - 100 - 10 - 1 - 2 - 1))
    assert framed_size(fitting) == RECORD_BYTES_MAX
    check_record(fitting)
    with pytest.raises(InvalidError, match=str(RECORD_BYTES_MAX + 1)) as refused:
        check_record(NewRecord(b"k", (("é", b"v"),), (fitting.value or b"") + b"v"))
    assert refused.value.code == "too-large"


def test_a_header_name_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidError, match="surrogate") as refused:
        check_record(NewRecord(b"k", (("\udc80", b"v"),), b"v"))
    assert refused.value.code == "malformed-record"
