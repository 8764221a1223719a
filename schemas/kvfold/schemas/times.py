"""Times of people as times of the log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["milliseconds_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds_of(time: datetime) -> int:
    """Whole milliseconds since 1970, cut down as effective times are. The time has its zone."""
    return (time - _EPOCH) // _MILLISECOND
