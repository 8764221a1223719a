"""Verification: the serving generation against a fresh fold of the log, at one position, while it serves and goes on.

```
folded     a scratch generation, from the log's start up to the position
compared   tables with a history, decisions and mutation ids: as of the position, whatever is folded since
           the others: in scopes that no record has changed since
settled    in the scopes that one has: read in one short snapshot of the serving generation, with its offsets; the scratch
           generation is folded on up to these; compared
dropped    the scratch generation, however it ended; one that a killed process left is dropped by the next verification
```

Nothing here holds a transaction for longer than a page. What retention has trimmed on either side is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from kvfold.log.port import Log
from kvfold.projector.checkpoint import Checkpoint, load_checkpoint
from kvfold.projector.comparison import Comparison, Difference, Sides, TableContent, Tell, horizons
from kvfold.projector.generations import serving_generation
from kvfold.projector.replaying import next_offsets
from kvfold.projector.scratch import drop_orphans, scratch_generation
from kvfold.projector.supervision import ProjectorSettings
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.position import format_positions

__all__ = ["Verification", "VerifyOptions", "compared_with_a_fold", "verify"]


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of a verification.

    `offsets`: the last offset covered, by partition. `difference_count` of them all; `differences` are the first.
    `unsettled_scopes`: scopes that changed since the position, whose rows without a history were not compared; 0 unless
    the position was a given one.
    """

    generation: int
    offsets: Mapping[int, int]
    tables: Mapping[str, TableContent]
    difference_count: int
    differences: tuple[Difference, ...]
    unsettled_scopes: int

    @property
    def is_equal(self) -> bool:
        """Whether everything that was compared is the same."""
        return self.difference_count == 0


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """`at`: last offsets to cover, by partition, at most what is folded; partitions that are not named, and None: what is
    folded now. `rate`: records folded, and rows compared, a second; None = as fast as it goes.
    `checkpoint`: where the fold begins, instead of the log's start.
    """

    at: Mapping[int, int] | None = None
    rate: float | None = None
    checkpoint: Checkpoint | None = None


def verify(
    log: Log,
    dsn: str,
    connection: Connection[Any],
    *,
    options: VerifyOptions,
    settings: ProjectorSettings,
    tell: Tell = lambda *_: None,
    tell_scope: Callable[[str, str, str], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Verification:
    """Compares, and leaves the result in the catalogue; `tell_scope` is given (table, scope, digest) of the fold.

    The connection is in autocommit mode. Raises as `compared_with_a_fold`.
    """
    with compared_with_a_fold(
        log,
        dsn,
        connection,
        options=options,
        settings=settings,
        tell=tell,
        tell_scope=tell_scope,
        should_stop=should_stop,
    ) as (_, result):
        _record(connection, result)
    return result


@contextmanager
def compared_with_a_fold(
    log: Log,
    dsn: str,
    connection: Connection[Any],
    *,
    options: VerifyOptions,
    settings: ProjectorSettings,
    tell: Tell = lambda *_: None,
    tell_scope: Callable[[str, str, str], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, Verification]]:
    """The scratch generation, which nobody else folds, and what came of the comparison; it is dropped at the end.

    Raises:
        InvalidError: `at` is beyond what is folded, or before what retention has kept.
        ReplayPausedError: the log cannot be folded; `offset-out-of-range` where it no longer begins at its start.
        CancelledError: `should_stop` said so. Nothing is left behind.
    """
    drop_orphans(connection)
    serving = serving_generation(connection)
    until = _until(connection, serving, options.at)
    if options.checkpoint is not None:
        options.checkpoint.check(log.describe(), log.bounds(range(len(until))))
    with scratch_generation(connection) as scratch:
        if options.checkpoint is not None:
            load_checkpoint(connection, scratch, options.checkpoint)
        sides = Sides(log, dsn, connection, serving, scratch, options.rate, settings, tell, should_stop)
        sides.fold(until)
        comparison = Comparison(sides, until, tell_scope)
        comparison.as_of_the_position()
        if options.at is None:
            comparison.settle()
        yield (
            scratch,
            Verification(
                serving,
                {partition: offset - 1 for partition, offset in until.items()},
                comparison.tables(),
                comparison.difference_count,
                comparison.differences,
                comparison.unsettled_scopes,
            ),
        )


def _record(connection: Connection[Any], result: Verification) -> None:
    connection.execute(
        """
        INSERT INTO kvfold.verification (generation, position, row_count, difference_count, unsettled_scopes)
        VALUES (%s, %s, %s, %s, %s)
        ON CONFLICT (generation) DO UPDATE SET position = excluded.position, finished_at = clock_timestamp(),
            row_count = excluded.row_count, difference_count = excluded.difference_count,
            unsettled_scopes = excluded.unsettled_scopes
        """,
        (
            result.generation,
            format_positions(result.offsets),
            sum(content.rows for content in result.tables.values()),
            result.difference_count,
            result.unsettled_scopes,
        ),
    )


def _until(connection: Connection[Any], live: int, at: Mapping[int, int] | None) -> dict[int, int]:
    """The next offsets to compare at."""
    folded = next_offsets(connection, live)
    for partition, offset in (at or {}).items():
        if partition not in folded:
            raise InvalidError(
                f"the log has no partition {partition}: it has {len(folded)}, from 0 on",
                code="malformed-position",
            )
        if offset >= folded[partition]:
            raise InvalidError(
                f"{partition}:{offset} is not folded yet: the serving generation stands at "
                f"{partition}:{folded[partition] - 1}",
                code="not-up-to-position",
            )
    until = folded | {partition: offset + 1 for partition, offset in (at or {}).items()}
    kept = horizons(connection, live)
    for partition, offset in until.items():
        kept_from = max(kept[partition].values())
        if offset < kept_from:
            raise InvalidError(
                f"{partition}:{offset - 1} is before what retention has kept: {partition}:{kept_from - 1} and later can be "
                "compared",
                code="gone",
            )
    return until
