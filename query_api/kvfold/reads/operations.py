"""Reads for operators: generations, and how each partition of the serving one is doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kvfold.reads.query import Query, Rows
from kvfold.reads.statements import statement

__all__ = [
    "GenerationView",
    "PartitionView",
    "PauseView",
    "ProjectorView",
    "RebuildView",
    "VerificationView",
    "generations",
    "progress",
    "projector",
]

_GENERATIONS: Final = statement("generations")
_PARTITIONS: Final = statement("partitions")
_PROGRESS: Final = statement("progress")


@dataclass(frozen=True, slots=True)
class RebuildView:
    """How a generation was rebuilt; offsets are the last ones covered, by partition.

    `to_position` is where it was told to stop, None = it follows the log. `target` is where it has to get, `compared` up to
    where its decisions were found to be those of the generation `compared_with`.
    """

    compared_with: int
    to_position: str | None
    target: Mapping[int, int]
    compared: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class VerificationView:
    """A generation's last comparison with a fresh fold: where, when, of how many rows, and how many differed.

    `unsettled_scopes`: so many changed after the position, and were compared in part.
    """

    position: str
    finished_at: datetime
    row_count: int
    difference_count: int
    unsettled_scopes: int


@dataclass(frozen=True, slots=True)
class GenerationView:
    """One complete set of projection tables; `offsets` are the last ones covered, by partition."""

    id: int
    state: str
    schema_version: int
    created_at: datetime
    serving: bool
    offsets: Mapping[int, int]
    rebuild: RebuildView | None
    verification: VerificationView | None


@dataclass(frozen=True, slots=True)
class PauseView:
    """Why a partition stopped, for an operator to mend."""

    reason: str
    detail: str
    since: datetime


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition of the serving generation.

    `offset` is the last one covered, -1 for none; `effective_time_ms` the time that decisions go by. `owner` is the
    projector that claims it until `expires_at`, None while it is free.
    """

    partition: int
    offset: int
    effective_time_ms: int
    committed_at: datetime
    owner: str | None
    expires_at: datetime | None
    epoch: int
    pause: PauseView | None


@dataclass(frozen=True, slots=True)
class ProjectorView:
    """Every partition, and how full Postgres's queue of notifications is (0 to 1)."""

    partitions: tuple[PartitionView, ...]
    notification_queue_usage: float


def generations() -> Query[tuple[GenerationView, ...]]:
    """All generations, oldest first."""
    return Query(_GENERATIONS, (), _shape_generations, None)


def projector() -> Query[ProjectorView]:
    """The partitions of the serving generation, in order."""
    return Query(_PARTITIONS, (), _shape_projector, None)


def progress() -> Query[None]:
    """Nothing but the positions of every partition."""
    return Query(_PROGRESS, (), _shape_nothing, None)


def _shape_generations(rows: Rows) -> tuple[GenerationView, ...]:
    return tuple(
        GenerationView(
            number,
            state,
            version,
            created_at,
            serving=number == serving,
            offsets=_covered(offsets),
            rebuild=None if more[0] is None else _rebuild(*more[:4]),
            verification=None if more[4] is None else VerificationView(*more[4:]),
        )
        for serving, _, number, state, version, created_at, offsets, *more in rows
        if number is not None
    )


def _rebuild(
    compared_with: int,
    to_position: str | None,
    target: Mapping[str, int] | None,
    compared: Mapping[str, int] | None,
) -> RebuildView:
    return RebuildView(compared_with, to_position, _covered(target), _covered(compared))


def _covered(offsets_next: Mapping[str, int] | None) -> dict[int, int]:
    """Without the partitions of which nothing is covered."""
    return {int(partition): offset - 1 for partition, offset in (offsets_next or {}).items() if offset > 0}


def _shape_projector(rows: Rows) -> ProjectorView:
    partitions = tuple(_partition(row) for row in rows if row[2] is not None)
    return ProjectorView(partitions, rows[0][-1])


def _partition(row: tuple[Any, ...]) -> PartitionView:
    _, _, partition, offset, time_ms, committed_at, owner, expires_at, epoch, reason, detail, since, _ = row
    pause = None if reason is None else PauseView(reason, detail, since)
    return PartitionView(partition, offset, time_ms, committed_at, owner, expires_at, epoch or 0, pause)


def _shape_nothing(_: Rows) -> None:
    return None
