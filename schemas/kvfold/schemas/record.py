"""A record: a mutation at its place in the log, as bytes, before anybody has judged it."""

from __future__ import annotations

from dataclasses import dataclass

from kvfold.schemas.position import Position

__all__ = ["Headers", "NewRecord", "Record"]

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class NewRecord:
    """What a producer appends: key bytes, headers in order, value bytes (None = a null value)."""

    key: bytes | None
    headers: Headers
    value: bytes | None

    def size(self) -> int:
        """Bytes of key, headers and value together."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key or b"") + headers + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it stands in the log.

    `timestamp_ms` is the log's append time in milliseconds since 1970; it may step back between records, which is
    why decisions use effective time instead. A header may repeat and may hold any bytes: foreign producers write here too.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    headers: Headers
    value: bytes | None

    @property
    def position(self) -> Position:
        """Its place in the log."""
        return Position(self.partition, self.offset)

    def size(self) -> int:
        """Bytes of key, headers and value together."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key or b"") + headers + len(self.value or b"")
