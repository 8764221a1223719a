"""What projector and readers both have to know of a projection's place: its schema, and the channel of its commits."""

from __future__ import annotations

from typing import Final

__all__ = ["NOTIFY_CHANNEL", "schema_name"]

NOTIFY_CHANNEL: Final = "kvfold"
"""Postgres notifies here after each fold commit: `generation:partition:offset`, the offset the last one covered."""


def schema_name(generation: int) -> str:
    """The schema that holds a generation's tables: `kvfold_g1`."""
    return f"kvfold_g{int(generation)}"
