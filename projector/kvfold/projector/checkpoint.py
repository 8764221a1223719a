"""Checkpoints: a generation in a file, from which folding may start where the log no longer begins at its start.

```
H header   JSON: the log, where each partition stands, the columns of each table
T table    a COPY of a page of its rows begins
R rows     the bytes of that COPY, in pieces
E end      SHA-256 of everything before
```

Each frame is its letter, four bytes of length, and its content. A file is written beside its name and renamed when it is
whole; it is read twice, first for its digest, then into a generation. Neither ever holds more than a piece in memory, nor a
transaction for longer than a page.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from psycopg import Connection, sql

from kvfold.log.port import Bounds, LogDescription
from kvfold.projector.tables import TABLES
from kvfold.schemas.errors import KvfoldError, LogDivergedError
from kvfold.schemas.projection import schema_name
from kvfold.schemas.types import FORMAT_LEVEL

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "clear_generation",
    "load_checkpoint",
    "read_checkpoint",
    "write_checkpoint",
]

FORMAT_VERSION: Final = 1
_PAGE_ROWS: Final = 1_000
_FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
_COLUMNS: Final[dict[str, list[str]]] = {
    **{name: list(spec.columns) for name, spec in TABLES.items()},
    **{f"{name}_history": [*spec.columns, "valid_to"] for name, spec in TABLES.items() if spec.has_history},
}
# Everything of an offset row but its epoch, which is the claims', and when it was written.
_OFFSET_COLUMNS: Final = (
    *(
        "partition",
        "offset_next",
        "time_ms",
        "format_level",
        "last_offset",
        "last_digest",
        "last_timestamp_ms",
    ),
    *("ids_from", "decisions_from", "orchestration_from", "capsule_from", "deployment_from"),
)


class CheckpointError(KvfoldError):
    """The file is no whole checkpoint, or not one for this log or this release. Nothing was changed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="checkpoint")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint's header says. `partitions` has an offset row a partition, as columns by name."""

    path: Path
    log: LogDescription
    columns: Mapping[str, list[str]]
    partitions: tuple[Mapping[str, Any], ...]

    @property
    def offsets(self) -> dict[int, int]:
        """The next offset to fold, by partition."""
        return {row["partition"]: row["offset_next"] for row in self.partitions}

    def check(self, log: LogDescription, bounds: Mapping[int, Bounds]) -> None:
        """Makes sure that folding may go on from here.

        Raises:
            CheckpointError: it is of another log, or of a release that this one does not know.
            LogDivergedError: `offset-out-of-range`: the log begins above the checkpoint's offsets, or ends below them.
        """
        if self.log != log:
            raise CheckpointError(
                f"{self.path} is of the {self.log.kind} log {self.log.name!r} with id {self.log.log_id}; this is the "
                f"{log.kind} log {log.name!r} with id {log.log_id}"
            )
        level = max(row["format_level"] for row in self.partitions)
        if level > FORMAT_LEVEL or self.columns != _COLUMNS:
            raise CheckpointError(
                f"{self.path} was written by a release with other tables (format level {level}): write one with this release"
            )
        for partition, offset in self.offsets.items():
            bound = bounds[partition]
            if not bound.start <= offset <= bound.end:
                raise LogDivergedError(
                    f"{self.path} stands at {partition}:{offset - 1}, and the log of partition {partition} has "
                    f"{bound.start} to {bound.end - 1}: the checkpoint does not cover what is gone",
                    code="offset-out-of-range",
                    partitions=(partition,),
                )


def write_checkpoint(
    connection: Connection[Any], generation: int, log: LogDescription, path: Path
) -> Checkpoint:
    """Writes a generation that nobody folds meanwhile; the file is whole under its name, or not there."""
    schema = schema_name(generation)
    names = ", ".join(_OFFSET_COLUMNS)
    rows = connection.execute(f"SELECT {names} FROM {schema}.partition_offset ORDER BY partition").fetchall()
    partitions = tuple(dict(zip(_OFFSET_COLUMNS, row, strict=True)) for row in rows)
    header = {
        "kvfold_checkpoint": FORMAT_VERSION,
        "log": [log.kind, log.name, log.log_id, log.partition_count],
        "columns": _COLUMNS,
        "partitions": partitions,
    }
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    # It holds every value, so it is its owner's alone.
    partial.touch(mode=0o600)
    try:
        with partial.open("wb") as file:
            frames = _Writer(file)
            frames.write(b"H", json.dumps(header).encode())
            for table in _COLUMNS:
                _write_table(connection, schema, table, frames)
            frames.end()
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return Checkpoint(path, log, _COLUMNS, partitions)


def read_checkpoint(path: Path) -> Checkpoint:
    """The header of a checkpoint, after all of the file was read and found whole.

    Raises:
        CheckpointError: it is no checkpoint, of a later format, cut off, or damaged.
    """
    try:
        with path.open("rb") as file:
            kind, content = next(_frames(file, path))
            header = json.loads(content) if kind == b"H" else {}
            if header.get("kvfold_checkpoint") != FORMAT_VERSION:
                raise CheckpointError(f"{path} is no checkpoint of format {FORMAT_VERSION}")
            file.seek(0)
            for _ in _frames(file, path):
                pass
    except (OSError, ValueError, StopIteration) as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint: {error}") from error
    return Checkpoint(path, LogDescription(*header["log"]), header["columns"], tuple(header["partitions"]))


def load_checkpoint(connection: Connection[Any], generation: int, checkpoint: Checkpoint) -> None:
    """Fills a generation that nobody folds yet; its offsets come last, so that what was interrupted has none."""
    schema = schema_name(generation)
    clear_generation(connection, generation)
    with checkpoint.path.open("rb") as file:
        frames = _frames(file, checkpoint.path)
        kind, content = next(frames)
        while kind != b"E":
            if kind != b"T":
                kind, content = next(frames)
                continue
            table = content.decode()
            columns = ", ".join(_COLUMNS[table])
            with connection.cursor().copy(
                f"COPY {schema}.{table} ({columns}) FROM STDIN (FORMAT BINARY)"
            ) as copy:
                kind, content = next(frames)
                while kind == b"R":
                    copy.write(content)
                    kind, content = next(frames)
    sets = ", ".join(f"{column} = %({column})s" for column in _OFFSET_COLUMNS[1:])
    with connection.transaction():
        for row in checkpoint.partitions:
            connection.execute(
                f"UPDATE {schema}.partition_offset SET {sets} WHERE partition = %(partition)s", dict(row)
            )


def clear_generation(connection: Connection[Any], generation: int) -> None:
    """Empties the tables of a generation that nobody folds yet: what an interrupted load has left in them."""
    schema = schema_name(generation)
    connection.execute(f"TRUNCATE {', '.join(f'{schema}.{table}' for table in _COLUMNS)}")


def _write_table(connection: Connection[Any], schema: str, table: str, frames: _Writer) -> None:
    """A COPY a page, each a statement of its own; pages are ranges of the key."""
    spec = TABLES[table.removesuffix("_history")]
    key = [*spec.columns[: spec.key_size], *([spec.valid_from] if table != spec.name else [])]
    order, place = sql.SQL(", ").join(map(sql.Identifier, key)), sql.Identifier(schema, table)
    columns = sql.SQL(", ").join(map(sql.Identifier, _COLUMNS[table]))
    after: tuple[Any, ...] | None = None
    while True:
        begin = sql.SQL("true") if after is None else _compared(order, ">", after)
        last = connection.execute(
            sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} OFFSET {} LIMIT 1").format(
                order, place, begin, order, sql.Literal(_PAGE_ROWS - 1)
            )
        ).fetchone()
        end = sql.SQL("true") if last is None else _compared(order, "<=", last)
        frames.write(b"T", table.encode())
        page = sql.SQL("COPY (SELECT {} FROM {} WHERE {} AND {}) TO STDOUT (FORMAT BINARY)").format(
            columns, place, begin, end
        )
        with connection.cursor().copy(page) as copy:
            for piece in copy:
                frames.write(b"R", bytes(piece))
        if last is None:
            return
        after = last


def _compared(order: sql.Composed, sign: str, key: tuple[Any, ...]) -> sql.Composed:
    values = sql.SQL(", ").join(map(sql.Literal, key))
    return sql.SQL("({}) {} ({})").format(order, sql.SQL(sign), values)


class _Writer:
    """Frames, and the digest of those so far."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, kind: bytes, content: bytes) -> None:
        """One frame."""
        assert len(content) <= _FRAME_BYTES_MAX
        for part in (kind + len(content).to_bytes(4, "big"), content):
            self._digest.update(part)
            self._file.write(part)

    def end(self) -> None:
        """The last frame."""
        self.write(b"E", self._digest.digest())


def _frames(file: BinaryIO, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """The frames of a file, up to its end, with the digest compared there."""
    digest = hashlib.sha256()
    while True:
        head = file.read(5)
        size = int.from_bytes(head[1:], "big")
        content = file.read(size) if size <= _FRAME_BYTES_MAX else b""
        if len(head) < 5 or len(content) < size:
            raise CheckpointError(f"{path} is cut off, or no checkpoint")
        if head[:1] == b"E":
            if content != digest.digest() or file.read(1):
                raise CheckpointError(f"{path} is damaged: its content is not what was written")
            yield b"E", content
            return
        digest.update(head)
        digest.update(content)
        yield head[:1], content
