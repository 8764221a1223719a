"""Which partition a scope lives in: murmur2 as Kafka's Java client computes it.

kvfold's producers compute the partition themselves. Clients on librdkafka default to another hash, and one scope in
two partitions would have two orders; the fold rejects such records as `wrong-partition`.
"""

from __future__ import annotations

from itertools import count
from typing import Final

__all__ = ["murmur2", "partition_of", "system_scope"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 of `data`, unsigned, with Kafka's seed (`org.apache.kafka.common.utils.Utils`)."""
    length = len(data)
    h = _SEED ^ length
    tail = length & ~3
    for i in range(0, tail, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length != tail:
        h = (h ^ int.from_bytes(data[tail:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a record key: 0 to `partition_count` - 1."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def system_scope(partition: int, partition_count: int) -> str:
    """The scope of system records for a partition: `s:{n}` with the smallest n whose hash gives it."""
    assert 0 <= partition < partition_count
    return next(f"s:{n}" for n in count() if partition_of(f"s:{n}".encode(), partition_count) == partition)
