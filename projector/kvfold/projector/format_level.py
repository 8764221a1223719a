"""The log's format level: what it is, which projectors know which, and how it is raised.

```
asked    every projector that is alive knows the new level; else nothing is appended
raised   one `system.format-raised` record to each partition that is below it, with an id made of log, partition and level
folded   … and waited for, so that success means: records of the new level count from here on
```

A raise that was interrupted leaves some partitions below the level; the same call goes on with these. An id that is
repeated gets the first outcome, so nothing is raised twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid5

from psycopg import Connection

from kvfold.log.port import Log
from kvfold.projector.postgres_store import translated
from kvfold.projector.statements import sql_file
from kvfold.schemas.codec import encode
from kvfold.schemas.errors import KvfoldError, LogUnavailableError, OutcomeUnknownError, PartitionPausedError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.partitioning import system_scope
from kvfold.schemas.strict_json import encode_json
from kvfold.schemas.types import FORMAT_LEVEL

__all__ = ["FormatRefusedError", "LogLevel", "format_level", "raise_format_level"]

_IDS: Final = UUID("c2b9e1de-6f0f-5d0e-9a52-0d3c7c6f5a11")
_APPEND_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.05


class FormatRefusedError(KvfoldError):
    """The level is not raised: a projector that is alive would not know what the new records mean. Nothing was appended."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="format-refused")


@dataclass(frozen=True, slots=True)
class LogLevel:
    """Format levels as they are now.

    `partitions`: of each partition as folded by the serving generation. `paused`: why, for those that stand still.
    `projectors`: the highest level that each live projector process can fold; None for one of a release that does not say.
    """

    partitions: Mapping[int, int]
    paused: Mapping[int, str]
    projectors: Mapping[str, int | None]

    @property
    def level(self) -> int:
        """The level of the partition that is lowest: what every partition knows."""
        return min(self.partitions.values())


def format_level(connection: Connection[Any]) -> LogLevel:
    """The levels now.

    Raises:
        StoreUnavailableError: Postgres does not answer.
    """
    with translated():
        row = connection.execute("SELECT serving FROM kvfold.pointer").fetchone()
        assert row is not None, "a database with a catalogue has a serving generation"
        found = connection.execute(sql_file("level/partitions", int(row[0]))).fetchall()
        projectors = dict(connection.execute(sql_file("level/projectors", 0)).fetchall())
    levels = {partition: level for partition, level, _ in found}
    paused = {partition: reason for partition, _, reason in found if reason is not None}
    return LogLevel(levels, paused, projectors)


def raise_format_level(
    log: Log,
    connection: Connection[Any],
    *,
    level: int = FORMAT_LEVEL,
    timeout_s: float = 60.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> LogLevel:
    """Raises every partition to the level, and waits until all of them are folded there; gives what then holds.

    Raises:
        FormatRefusedError: no projector is alive, or one of them does not know the level; or the level is below the log's.
        PartitionPausedError: a partition stands still for a reason of its own; mend it, and call again.
        OutcomeUnknownError: not folded in time, or stopped; the same call goes on.
        LogUnavailableError, StoreUnavailableError: a server is away; the same call goes on.
    """
    state = format_level(connection)
    _check(state, level)
    count = len(state.partitions)
    log_id = log.describe().log_id
    futures = [
        (partition, log.append(partition, encode(_raised(log_id, partition, count, step))))
        for partition, current in state.partitions.items()
        for step in range(current + 1, level + 1)
    ]
    for partition, future in futures:
        try:
            future.result(_APPEND_TIMEOUT_S)
        except FutureTimeoutError as error:
            raise LogUnavailableError(f"the log did not acknowledge in partition {partition}") from error
    return _folded(connection, level, timeout_s, should_stop)


def _check(state: LogLevel, level: int) -> None:
    if level < max(state.partitions.values()):
        raise FormatRefusedError(
            f"the log has format level {max(state.partitions.values())}: a level is never lowered, and {level} is below it"
        )
    if level > FORMAT_LEVEL:
        raise FormatRefusedError(f"this release knows format level {FORMAT_LEVEL}, and {level} is above it")
    if level == state.level:
        return
    if not state.projectors:
        raise FormatRefusedError(
            "no projector runs: start those of the new release first, so that the level is raised where it is folded"
        )
    behind = [
        f"{owner} ({'an older release' if known is None else f'knows {known}'})"
        for owner, known in state.projectors.items()
        if known is None or known < level
    ]
    if behind:
        raise FormatRefusedError(
            f"projectors that do not know format level {level} are running: {', '.join(behind)}. Upgrade them first: "
            "their partitions would pause."
        )


def _raised(log_id: str, partition: int, count: int, level: int) -> Mutation:
    """The record that raises a partition; the same one whenever it is made."""
    return Mutation(
        "kvfold.system.format-raised.v1",
        system_scope(partition, count),
        str(uuid5(_IDS, f"{log_id}:{partition}:{level}")),
        body=encode_json({"level": level}),
        content_type="application/json",
        source="/kvfold/format-raise",
    )


def _folded(
    connection: Connection[Any], level: int, timeout_s: float, should_stop: Callable[[], bool]
) -> LogLevel:
    deadline = time.monotonic() + timeout_s
    while True:
        state = format_level(connection)
        below = [partition for partition, current in state.partitions.items() if current < level]
        if not below:
            return state
        for partition in below:
            if partition in state.paused:
                raise PartitionPausedError(
                    f"partition {partition} is paused ({state.paused[partition]}) below format level {level}"
                )
        if should_stop() or time.monotonic() > deadline:
            raise OutcomeUnknownError(
                f"appended, and not folded yet in partitions {below}: the same command goes on",
                mutation_id="",
                position=None,
            )
        time.sleep(_POLL_S)
