"""The partition of a scope."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from kvfold.schemas.partitioning import murmur2, partition_of, system_scope

__all__: list[str] = []


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        # The vectors of Kafka's own test of its Java client.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_known_hashes(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_another_implementation_agrees(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 1_000))
def test_partitions_are_in_range(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count


def test_the_sign_bit_is_masked_and_not_negated() -> None:
    assert partition_of(b"21", 12) == (-973932308 & 0x7FFFFFFF) % 12


def test_the_default_of_librdkafka_is_another_hash() -> None:
    keys = [f"d:dep-{n}".encode() for n in range(100)]
    assert any(zlib.crc32(key) % 12 != partition_of(key, 12) for key in keys)


@pytest.mark.parametrize("count", [1, 2, 12, 100])
def test_system_scopes_are_the_smallest_number_of_their_partition(count: int) -> None:
    for partition in range(count):
        scope = system_scope(partition, count)
        number = int(scope.removeprefix("s:"))
        assert partition_of(scope.encode(), count) == partition
        assert all(partition_of(f"s:{n}".encode(), count) != partition for n in range(number))
