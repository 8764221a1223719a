"""The comparison of two generations, one that goes on and one that stands, row by row by their digests."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import Connection

from kvfold.log.port import Log
from kvfold.projector.contents import IN_PLACE_TABLES, ContentRow, content_rows, rows_of_scopes
from kvfold.projector.pace import Pace
from kvfold.projector.postgres_store import translated
from kvfold.projector.replaying import next_offsets, replay
from kvfold.projector.supervision import ProjectorSettings
from kvfold.projector.tables import TABLES, PartitionState
from kvfold.schemas.errors import KvfoldError
from kvfold.schemas.limits import DEDUPE_WINDOW_MS
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.projection import schema_name

__all__ = ["DIFFERENCES_MAX", "Comparison", "Difference", "Sides", "TableContent", "Tell", "horizons"]

DIFFERENCES_MAX: Final = 100
"""So many differences are named; all are counted."""

_TOUCHED_SCOPES_MAX: Final = 1_000_000
_SETTLED_AT_ONCE: Final = 1_000

Tell = Callable[[str, int, int | None], None]
"""Takes (step, done, total)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that the serving generation has otherwise than the fold; a digest is None where there is no such row.

    `key` has the row's key columns; of a row of a history also the offset from which on it was true.
    """

    table: str
    key: tuple[Any, ...]
    folded: str | None
    serving: str | None


@dataclass(frozen=True, slots=True)
class TableContent:
    """What the fold has in a table at the position: rows, and one SHA-256 over their digests in key order."""

    rows: int
    sha256: str


@dataclass(slots=True)
class Sides:
    """What a comparison works on: the log, the serving and the scratch generation, and how fast it may go.

    `rate`: records folded, and rows compared, a second; None = as fast as it goes.
    """

    log: Log
    dsn: str
    connection: Connection[Any]
    live: int
    scratch: int
    rate: float | None
    settings: ProjectorSettings
    tell: Tell
    should_stop: Callable[[], bool]

    def fold(self, until: Mapping[int, int]) -> None:
        """Folds the scratch generation up to these offsets."""
        total = sum(until.values())

        def told(offsets: Mapping[int, int]) -> None:
            self.tell("folding", sum(min(offsets.get(p, 0), end) for p, end in until.items()), total)

        replay(
            self.log,
            self.dsn,
            generation=self.scratch,
            until=until,
            settings=self.settings,
            pace=None if self.rate is None else Pace(self.rate),
            told=told,
            should_stop=self.should_stop,
        )

    def paced(self, rows: Iterable[ContentRow]) -> Iterator[ContentRow]:
        """The rows, no more a second than asked for; stops where the stop was asked for."""
        pace = None if self.rate is None else Pace(self.rate)
        slice_rows = 500 if pace is None else min(500, pace.slice_records)
        for number, row in enumerate(rows, 1):
            if number % slice_rows == 0:
                if self.should_stop():
                    raise CancelledError("the verification was stopped; nothing is left of it")
                if pace is not None:
                    time.sleep(pace.spend(slice_rows))
            yield row


class Comparison:
    """The comparison under way: differences so far, scopes that changed since the position, digests of tables."""

    def __init__(
        self, sides: Sides, until: Mapping[int, int], tell_scope: Callable[[str, str, str], None] | None
    ) -> None:
        self._sides = sides
        self._until = dict(until)
        self._tell_scope = tell_scope
        self._touched: dict[str, int] = {}
        self._looked_until = dict(until)
        self._found: list[Difference] = []
        self._count = 0
        self._tables: dict[str, _Digest] = {}
        count = len(until)
        self._partition_of_scope = lru_cache(maxsize=8_192)(lambda scope: partition_of(scope.encode(), count))

    def as_of_the_position(self) -> None:
        """Compares everything that can be told as of the position."""
        for number, table in enumerate(TABLES):
            self._sides.tell("comparing tables", number, len(TABLES))
            if table in IN_PLACE_TABLES:
                self._in_place(table)
            else:
                self._with_past(table)
        self._sides.tell("comparing tables", len(TABLES), len(TABLES))

    def settle(self) -> None:
        """Compares the rest: scopes that changed since, and where the partitions stand."""
        scopes = sorted(self._touched)
        for start in range(0, max(1, len(scopes)), _SETTLED_AT_ONCE):
            self._settle(scopes[start : start + _SETTLED_AT_ONCE])
        self._touched.clear()

    @property
    def difference_count(self) -> int:
        """How many rows differ."""
        return self._count

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The first of them."""
        return tuple(self._found)

    @property
    def unsettled_scopes(self) -> int:
        """How many scopes changed since the position and were not settled."""
        return len(self._touched)

    def tables(self) -> dict[str, TableContent]:
        """What the fold has in each table."""
        return {table: digest.content() for table, digest in sorted(self._tables.items())}

    # --- tables with a past ---

    def _with_past(self, table: str) -> None:
        sides = self._sides
        folded = self._at_position(table, content_rows(sides.connection, sides.scratch, table), is_fold=True)
        serving = self._at_position(table, sides.paced(content_rows(sides.connection, sides.live, table)))
        one_sided = []
        for key, left, right in _merged(folded, serving):
            if left is not None and right is not None:
                if left != right:
                    self._differs(table, key, left.digest, right.digest)
            else:
                one_sided.append((key, left, right))
                if len(one_sided) >= DIFFERENCES_MAX:
                    self._judge(table, one_sided)
        self._judge(table, one_sided)
        self._end(table)

    def _at_position(
        self, table: str, rows: Iterable[ContentRow], *, is_fold: bool = False
    ) -> Iterator[tuple[tuple[Any, ...], ContentRow]]:
        """The rows that there were at the position, as they were: one that ended later had not ended."""
        for row in rows:
            end = self._until[self._partition(table, row.key)]
            if row.began is not None and row.began >= end:
                continue
            if row.ended is not None:
                row = row._replace(ended=None) if row.ended >= end else _with_end(row, row.ended)
            if is_fold:
                self._add(table if row.ended is None else f"{table}_history", row)
            yield row.key, row

    def _judge(
        self, table: str, one_sided: list[tuple[tuple[Any, ...], ContentRow | None, ContentRow | None]]
    ) -> None:
        """A row that only one side has differs, unless retention may have trimmed it on the other side by now."""
        if not one_sided:
            return
        sides = self._sides
        generations = (sides.live, sides.scratch)
        kept = [horizons(sides.connection, generation) for generation in generations]
        times = [_times(sides.connection, generation) for generation in generations]
        for key, left, right in one_sided:
            row = left or right
            assert row is not None
            partition = self._partition(table, key)
            if table == "mutation_id":
                # Forgotten, or replaced by a mutation with the same id that came after the window.
                if self._is_old_id(key, max(time_[partition] for time_ in times)):
                    continue
            elif table == "decision":
                assert row.began is not None
                if row.began < max(horizon[partition]["decision"] for horizon in kept):
                    continue
            elif row.ended is not None:
                family = table.partition("_")[0]
                if row.ended < max(horizon[partition][family] for horizon in kept):
                    continue
            self._differs(table, key, left and left.digest, right and right.digest)
        one_sided.clear()

    def _is_old_id(self, key: tuple[Any, ...], now_ms: int) -> bool:
        sides = self._sides
        for generation in (sides.live, sides.scratch):
            row = sides.connection.execute(
                f"SELECT time_ms FROM {schema_name(generation)}.mutation_id "
                "WHERE partition = %s AND id = %s::uuid AND scope = %s AND record_offset < %s",
                (*key, self._until[key[0]]),
            ).fetchone()
            if row is not None:
                return bool(row[0] < now_ms - DEDUPE_WINDOW_MS)
        return True

    # --- tables without one ---

    def _in_place(self, table: str) -> None:
        sides = self._sides
        folded = ((row.key, row) for row in content_rows(sides.connection, sides.scratch, table))
        serving = ((row.key, row) for row in sides.paced(content_rows(sides.connection, sides.live, table)))
        pending: list[tuple[tuple[Any, ...], ContentRow | None, ContentRow | None]] = []
        for key, left, right in _merged(folded, serving):
            if left is not None:
                self._add(table, left)
            if left != right:
                pending.append((key, left, right))
                if len(pending) >= DIFFERENCES_MAX:
                    self._judge_in_place(table, pending)
        self._judge_in_place(table, pending)
        # A row that is the same as at the position may be so by chance only: its scope is compared once more.
        self._look_for_touched()
        self._end(table)

    def _judge_in_place(
        self, table: str, pending: list[tuple[tuple[Any, ...], ContentRow | None, ContentRow | None]]
    ) -> None:
        """After the rows are read: a scope that no record has changed by then was as at the position when they were."""
        if pending:
            self._look_for_touched()
        for key, left, right in pending:
            if key[0] not in self._touched:
                self._differs(table, key, left and left.digest, right and right.digest)
        pending.clear()

    def _look_for_touched(self) -> None:
        """Takes note of the scopes that records since the position have changed."""
        sides = self._sides
        now = next_offsets(sides.connection, sides.live)
        for partition, end in now.items():
            rows = sides.connection.execute(
                f"SELECT DISTINCT scope FROM {schema_name(sides.live)}.decision WHERE partition = %s "
                "AND record_offset >= %s AND record_offset < %s AND status = 'applied' AND scope IS NOT NULL",
                (partition, self._looked_until[partition], end),
            )
            self._touched.update((row[0], partition) for row in rows)
            self._looked_until[partition] = end
        if len(self._touched) > _TOUCHED_SCOPES_MAX:
            raise KvfoldError(
                f"more than {_TOUCHED_SCOPES_MAX} scopes changed while this ran: verify again, with a higher --rate",
                code="too-much-changed",
            )

    def _settle(self, scopes: list[str]) -> None:
        sides = self._sides
        with translated(), psycopg.connect(sides.dsn, application_name="kvfold-verify") as snapshot:
            snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            offsets = next_offsets(snapshot, sides.live)
            states = _states(snapshot, sides.live)
            serving = {
                table: rows_of_scopes(snapshot, sides.live, table, scopes) for table in IN_PLACE_TABLES
            }
        sides.fold(offsets)
        for table, rows in serving.items():
            fresh = rows_of_scopes(sides.connection, sides.scratch, table, scopes)
            for key, left, right in _merged(((r.key, r) for r in fresh), ((r.key, r) for r in rows)):
                if left != right:
                    self._differs(table, key, left and left.digest, right and right.digest)
        for partition, state in _states(sides.connection, sides.scratch).items():
            if state != states[partition]:
                digests = [
                    hashlib.sha256(repr(each).encode()).digest() for each in (state, states[partition])
                ]
                self._differs("partition_offset", (partition,), *digests)

    # --- what is found ---

    def _partition(self, table: str, key: tuple[Any, ...]) -> int:
        if TABLES[table].columns[0] == "partition":
            return int(key[0])
        return self._partition_of_scope(key[0])

    def _differs(self, table: str, key: tuple[Any, ...], folded: bytes | None, serving: bytes | None) -> None:
        self._count += 1
        if len(self._found) < DIFFERENCES_MAX:
            texts = [None if digest is None else digest.hex() for digest in (folded, serving)]
            self._found.append(Difference(table, key, *texts))

    def _add(self, table: str, row: ContentRow) -> None:
        digest = self._tables.get(table)
        if digest is None:
            digest = self._tables[table] = _Digest(table, self._tell_scope)
        digest.add(row)

    def _end(self, table: str) -> None:
        for name in (table, f"{table}_history"):
            if name in self._tables:
                self._tables[name].end_scope()


def horizons(connection: Connection[Any], generation: int) -> dict[int, dict[str, int]]:
    """By partition, for each family and the decisions: below which offset rows may have been trimmed."""
    rows = connection.execute(
        "SELECT partition, orchestration_from, capsule_from, deployment_from, decisions_from "
        f"FROM {schema_name(generation)}.partition_offset"
    )
    names = ("orchestration", "capsule", "deployment", "decision")
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}


def _times(connection: Connection[Any], generation: int) -> dict[int, int]:
    rows = connection.execute(f"SELECT partition, time_ms FROM {schema_name(generation)}.partition_offset")
    return dict(rows.fetchall())


class _Digest:
    """The running digest of a table, and of the scope that is under way."""

    def __init__(self, table: str, tell_scope: Callable[[str, str, str], None] | None) -> None:
        spec = TABLES[table.removesuffix("_history")]
        self._table = table
        self._tell_scope = None if "scope" not in spec.columns[:1] else tell_scope
        self._rows = 0
        self._whole = hashlib.sha256()
        self._scope: str | None = None
        self._of_scope = hashlib.sha256()

    def add(self, row: ContentRow) -> None:
        self._rows += 1
        self._whole.update(row.digest)
        if self._tell_scope is None:
            return
        if row.key[0] != self._scope:
            self.end_scope()
            self._scope = row.key[0]
        self._of_scope.update(row.digest)

    def end_scope(self) -> None:
        """Tells the digest of the scope that has ended."""
        if self._tell_scope is not None and self._scope is not None:
            self._tell_scope(self._table, self._scope, self._of_scope.hexdigest())
        self._scope, self._of_scope = None, hashlib.sha256()

    def content(self) -> TableContent:
        return TableContent(self._rows, self._whole.hexdigest())


def _with_end(row: ContentRow, ended: int) -> ContentRow:
    """A row of a history, whose digest is also of when it ended."""
    return row._replace(digest=hashlib.sha256(row.digest + ended.to_bytes(8, "big")).digest())


def _states(connection: Connection[Any], generation: int) -> dict[int, PartitionState]:
    names = ", ".join(PartitionState._fields)
    rows = connection.execute(f"SELECT partition, {names} FROM {schema_name(generation)}.partition_offset")
    return {row[0]: PartitionState(*row[1:]) for row in rows}


def _merged(
    left: Iterator[tuple[tuple[Any, ...], ContentRow]], right: Iterator[tuple[tuple[Any, ...], ContentRow]]
) -> Iterator[tuple[tuple[Any, ...], ContentRow | None, ContentRow | None]]:
    """Two streams in key order as one: each key once, with what each side has of it.

    Postgres orders texts by their bytes and Python by code points, which is the same order in UTF-8.
    """
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(left, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(right, None)
        else:
            yield one[0], one[1], other[1]
            one, other = next(left, None), next(right, None)
