"""Times as answers show them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["rfc3339", "rfc3339_ms"]

_TIME_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999, where RFC 3339 ends, too


def rfc3339(time: datetime) -> str:
    """A time in UTC: `2026-01-02T03:04:05.678901Z`."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def rfc3339_ms(time_ms: int) -> str:
    """A time given in milliseconds since 1970, in UTC; a broker's absurd timestamp is shown as the nearest real time."""
    time_ms = min(max(time_ms, 0), _TIME_MS_MAX)
    time = datetime.fromtimestamp(time_ms // 1_000, UTC).replace(microsecond=time_ms % 1_000 * 1_000)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
