"""From fetched bytes to records: what kafka-python writes, what foreign producers write, and damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.errors import CorruptRecordError
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from kvfold.log.kafka_records import PartitionRecords
from kvfold.schemas.record import Headers, Record

__all__: list[str] = []

TIME = 1_700_000_000_000
PLACE = TopicPartition("t", 3)

DATA = st.none() | st.binary(max_size=8) | st.sampled_from([63, 64, 8_191, 8_192]).map(bytes)
HEADERS = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=80), DATA), max_size=4)
ROWS = st.lists(st.tuples(st.integers(-5, 300), DATA, DATA, HEADERS), min_size=1, max_size=5)


@dataclass(frozen=True)
class Aborted:
    producer_id: int
    first_offset: int


def batch(
    rows: list[tuple[int, bytes | None, bytes | None, Any]],
    *,
    base_offset: int = 0,
    producer_id: int = -1,
    control: bool = False,
) -> bytes:
    """One batch as kafka-python writes it, at an offset; `rows` are (time after TIME, key, value, headers)."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=producer_id >= 0,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for delta, (time, key, value, headers) in enumerate(rows):
        builder.append(delta, TIME + time, key, value, headers)
    data = bytearray(builder.build())
    data[0:8] = base_offset.to_bytes(8, "big")
    if control:
        data[22] |= 0x20
        data[17:21] = checksum(data).to_bytes(4, "big")
    return bytes(data)


def checksum(data: bytes | bytearray) -> int:
    return int(crc32c(bytes(data[21:])))


def marker(*, base_offset: int, producer_id: int, commit: bool) -> bytes:
    key = (0).to_bytes(2, "big") + int(commit).to_bytes(2, "big")
    return batch([(0, key, bytes(6), [])], base_offset=base_offset, producer_id=producer_id, control=True)


def taken(
    data: bytes, *, fetch_offset: int = 0, aborted: list[Aborted] | None = None, records_max: int = 1_000
) -> Any:
    part = PartitionRecords(
        fetch_offset,
        PLACE,
        MemoryRecords(data),
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=aborted,
    )
    records = []
    while more := part.take(records_max):
        records.extend(more)
    assert not part
    return records, part.next_fetch_offset


def expected(row: tuple[int, bytes | None, bytes | None, Any], offset: int) -> Record:
    time, key, value, headers = row
    kept: Headers = tuple((name, given or b"") for name, given in headers)
    return Record(3, offset, TIME + time, key, kept, value)


@given(ROWS, ROWS, st.integers(1, 11))
def test_records_are_what_was_written(first: Any, second: Any, records_max: int) -> None:
    data = batch(first, base_offset=5) + batch(second, base_offset=100)
    records, offset_next = taken(data, fetch_offset=5, records_max=records_max)
    rows = [(row, 5 + place) for place, row in enumerate(first)]
    rows += [(row, 100 + place) for place, row in enumerate(second)]
    assert records == [expected(row, offset) for row, offset in rows]
    assert offset_next == 100 + len(second)


@given(ROWS, ROWS)
def test_sizes_stand_beside_the_records_and_are_never_below_their_own(first: Any, second: Any) -> None:
    sizes: dict[int, list[int]] = {}
    data = batch(first) + batch(second, base_offset=len(first))
    part = PartitionRecords(0, PLACE, MemoryRecords(data), sizes=sizes)
    records = part.take(3) + part.take(1_000)
    assert len(sizes[3]) == len(records)
    assert all(size >= record.size() for size, record in zip(sizes[3], records, strict=True))


def test_a_fetch_from_the_middle_of_a_batch() -> None:
    rows: Any = [(place, b"k", b"%d" % place, []) for place in range(4)]
    records, offset_next = taken(batch(rows, base_offset=10), fetch_offset=12)
    assert [record.offset for record in records] == [12, 13]
    assert offset_next == 14


def test_the_position_after_a_part_is_behind_its_last_record() -> None:
    rows: Any = [(0, b"k", b"v", []) for _ in range(4)]
    part = PartitionRecords(0, PLACE, MemoryRecords(batch(rows)))
    assert [record.offset for record in part.take(3)] == [0, 1, 2]
    assert part.next_fetch_offset == 3
    assert part


def test_append_time_is_the_batchs() -> None:
    data = bytearray(batch([(1, b"k", b"v", []), (2, b"k", b"v", [])]))
    data[22] |= 0x08
    data[35:43] = (TIME + 77).to_bytes(8, "big")
    data[17:21] = checksum(data).to_bytes(4, "big")
    records, _ = taken(bytes(data))
    assert [record.timestamp_ms for record in records] == [TIME + 77, TIME + 77]


def test_a_header_name_that_is_not_utf8_is_kept_recognisable() -> None:
    data = bytearray(batch([(0, b"k", b"v", [("ce_XX", b"1")])]))
    data = data.replace(b"ce_XX", b"ce_\xff\xfe")
    data[17:21] = checksum(data).to_bytes(4, "big")
    [record], _ = taken(bytes(data))
    [(name, value)] = record.headers
    assert name.encode("utf-8", "surrogateescape") == b"ce_\xff\xfe"
    assert value == b"1"


def test_aborted_records_and_markers_are_passed() -> None:
    rows: Any = [(0, b"k", b"v", [])] * 2
    data = (
        batch(rows, base_offset=0, producer_id=7)
        + batch(rows, base_offset=2)
        + marker(base_offset=4, producer_id=7, commit=False)
        + batch(rows, base_offset=5, producer_id=7)
        + marker(base_offset=7, producer_id=7, commit=True)
        + batch(rows, base_offset=8, producer_id=7)
        + marker(base_offset=10, producer_id=7, commit=False)
    )
    records, offset_next = taken(data, aborted=[Aborted(7, 8), Aborted(7, 0)])
    assert [record.offset for record in records] == [2, 3, 5, 6]
    assert offset_next == 11


def test_an_answer_of_aborted_records_alone_moves_the_position() -> None:
    rows: Any = [(0, b"k", b"v", [])]
    data = batch(rows, producer_id=7) + marker(base_offset=1, producer_id=7, commit=False)
    assert taken(data, aborted=[Aborted(7, 0)]) == ([], 2)


@pytest.mark.parametrize("damage", ["checksum", "length", "format"])
def test_damage_is_an_error_and_the_answer_is_given_up(damage: str) -> None:
    rows: Any = [(0, b"key", b"value", [("h", b"v")])]
    data = bytearray(batch(rows))
    match damage:
        case "checksum":
            data[-1] ^= 1
        case "length":
            data[-2] = 0x7E  # the header's value ends behind the batch; the checksum is right
            data[17:21] = checksum(data).to_bytes(4, "big")
        case "format":
            data[16] = 1
    part = PartitionRecords(0, PLACE, MemoryRecords(bytes(data)))
    with pytest.raises(CorruptRecordError):
        part.take(10)
    assert not part
    assert part.next_fetch_offset == 0
    assert part.take(10) == []


def test_records_before_the_damage_are_given_first() -> None:
    rows: Any = [(0, b"key", b"value", [])]
    data = bytearray(batch(rows) + batch(rows, base_offset=1))
    data[-1] ^= 1
    part = PartitionRecords(0, PLACE, MemoryRecords(bytes(data)))
    assert [record.offset for record in part.take(10)] == [0]
    assert part.next_fetch_offset == 1
    with pytest.raises(CorruptRecordError):
        part.take(10)
    assert not part
