"""Lines of a file or a pipe, as they come: what is there is given at once, and a stop ends the wait for more."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvfold.deploy.stopping import StopRequest

__all__ = ["LINE_BYTES_MAX", "Line", "Pause", "count_lines", "read_lines"]

LINE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Longer lines are cut off there, and marked."""

_CHUNK_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank: its number from 1, its bytes without the line feed, and whether it was too long."""

    number: int
    text: bytes
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing more is there for now: a good moment to work on the lines that came."""


def read_lines(descriptor: int, stop: StopRequest) -> Iterator[Line | Pause]:
    """The lines from a file descriptor; ends at its end, or when the stop was asked for.

    Memory is bounded by `LINE_BYTES_MAX` and a chunk.
    """
    rest, number, is_cut = b"", 0, False
    while True:
        if not _is_ready(descriptor, stop, timeout_s=0.0):
            yield Pause()
            _is_ready(descriptor, stop, timeout_s=None)
        if stop.is_set():
            return
        chunk = os.read(descriptor, _CHUNK_BYTES)
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        if not chunk and rest:
            parts, rest = [rest], b""
        for part in parts:
            number += 1
            if part.strip():
                yield Line(number, part[:LINE_BYTES_MAX], is_cut or len(part) > LINE_BYTES_MAX)
            is_cut = False
        if len(rest) > LINE_BYTES_MAX:
            rest, is_cut = rest[:LINE_BYTES_MAX], True
        if not chunk:
            return


def count_lines(file: Path) -> int:
    """How many line feeds a file has."""
    with file.open("rb") as opened:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: opened.read(_CHUNK_BYTES), b""))


def _is_ready(descriptor: int, stop: StopRequest, *, timeout_s: float | None) -> bool:
    """Whether there is something to read (or the end), or a stop."""
    return bool(select.select([descriptor, stop.fileno()], [], [], timeout_s)[0])
