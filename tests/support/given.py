"""given (mutations) / when (a mutation) / then (decision, rows), on `MemoryStore` and `project`.

```
given(capsule_set("a", b"1")).when(capsule_set("a", b"2")).then(applied(2), capsule_entry=[{"key": "a", "version": 2}])
```

`given` folds everything as one batch, `when` as a batch of its own; rows are compared by the columns that are named.
After every step the usage that is kept is compared with a recount.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kvfold.projector.batch import prepare, project
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.needs import Step, cut, needs
from kvfold.projector.tables import TABLES, DecisionRow, PartitionState, Row
from kvfold.schemas.codec import encode
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.record import NewRecord, Record

__all__ = [
    "START_MS",
    "Scenario",
    "applied",
    "conflict",
    "fold_all",
    "given",
    "rejected",
    "snapshot",
]

START_MS = 1_700_000_000_000
_Input = Mutation | NewRecord | Record


def applied(version: int | None = None, *, removed: int | None = None) -> Decision:
    """The expectation: applied."""
    return Decision(DecisionStatus.APPLIED, version=version, removed=removed)


def conflict(code: str, version: int | None = None) -> Decision:
    """The expectation: a conflict."""
    return Decision(DecisionStatus.CONFLICT, code, version=version)


def rejected(code: str, detail: str | None = None) -> Decision:
    """The expectation: rejected; the detail is compared where one is given."""
    return Decision(DecisionStatus.REJECTED, code, detail=detail)


def given(*inputs: _Input, partition: int = 0, partition_count: int = 1) -> Scenario:
    """A partition in which these were folded, a second apart."""
    scenario = Scenario(partition, partition_count)
    scenario.fold([scenario.place(item) for item in inputs])
    return scenario


class Scenario:
    """A partition with its history, and the outcome of the last `when`."""

    def __init__(self, partition: int, partition_count: int) -> None:
        self.store = MemoryStore()
        self.partition = partition
        self.partition_count = partition_count
        self.offset_next = 0
        self.time_ms = START_MS

    def place(self, item: _Input, *, at_ms: int | None = None) -> Record:
        """The record of an input at the end of the log."""
        self.time_ms = self.time_ms + 1000 if at_ms is None else at_ms
        if isinstance(item, Mutation):
            item = encode(item)
        offset = self.offset_next
        self.offset_next += 1
        if isinstance(item, Record):
            return replace(item, partition=self.partition, offset=offset, timestamp_ms=self.time_ms)
        return Record(self.partition, offset, self.time_ms, item.key, item.headers, item.value)

    def fold(self, records: Sequence[Record]) -> None:
        """Folds records as one batch, ranges alone."""
        fold_all(self.store, prepare(records, self.partition_count), self.partition)
        check_usage(self.store)

    def when(self, *inputs: _Input, at_ms: int | None = None) -> Scenario:
        """Folds inputs as a batch of their own."""
        self.fold([self.place(item, at_ms=at_ms) for item in inputs])
        return self

    def then(self, *decisions: Decision, **tables: Sequence[Mapping[str, object]]) -> Scenario:
        """Asserts the newest decisions (the last given = the newest record's) and whole tables, by named columns."""
        rows = self.decisions()[-len(decisions) :] if decisions else []
        for row, expected in zip(rows, decisions, strict=True):
            actual = Decision(DecisionStatus(row.status), row.code, row.version, row.removed, row.detail)
            assert replace(actual, detail=None) == replace(expected, detail=None), actual
            if expected.detail is not None:
                assert actual.detail == expected.detail
        for table, expectation in tables.items():
            self._compare(table, expectation)
        return self

    def decisions(self) -> list[DecisionRow]:
        """Every decision, in order."""
        return [DecisionRow(*row) for row in self.store.rows("decision")]  # type: ignore[arg-type]

    @property
    def last(self) -> DecisionRow:
        """The newest decision."""
        return self.decisions()[-1]

    def state(self) -> PartitionState:
        """The partition's state."""
        return self.store.state(self.partition)

    def rows(self, table: str) -> list[dict[str, object]]:
        """A table's rows by column name, in key order."""
        columns = TABLES[table.removesuffix("_history")].columns + ("valid_to",) * table.endswith("_history")
        return [dict(zip(columns, row, strict=True)) for row in self.store.rows(table)]

    def _compare(self, table: str, expectation: Sequence[Mapping[str, object]]) -> None:
        rows = self.rows(table)
        assert len(rows) == len(expectation), (table, rows)
        for row, expected in zip(rows, expectation, strict=True):
            assert {name: row[name] for name in expected} == dict(expected), table


def fold_all(
    store: MemoryStore,
    steps: Sequence[Step],
    partition: int,
    *,
    epoch: int = 0,
    offset_next: int | None = None,
) -> None:
    """Folds steps into a store; `offset_next` is where reading goes on after the last of them."""
    for batch in cut(steps):
        end = batch[-1][0].offset + 1
        if offset_next is not None and batch[-1] is steps[-1]:
            end = offset_next
        loaded = store.load(partition, needs(batch))
        store.commit(project(batch, loaded, partition=partition, offset_next=end), epoch=epoch)


def snapshot(store: MemoryStore) -> dict[str, list[Row]]:
    """Everything that a store holds, by table."""
    return {table: list(store.rows(table)) for table in store.shared.tables}


def check_usage(store: MemoryStore) -> None:
    """The usage kept with each capsule namespace equals a recount (row C10)."""
    counted: dict[object, tuple[int, int]] = {}
    for scope, key, _, value, *_ in _capsule_rows(store):
        keys, size = counted.get(scope, (0, 0))
        counted[scope] = (keys + 1, size + len(str(key).encode()) + len(value))
    kept = {row[0]: (row[1], row[2]) for row in store.rows("capsule_scope")}
    for scope in counted.keys() | kept.keys():
        assert counted.get(scope, (0, 0)) == kept.get(scope, (0, 0)), scope


def _capsule_rows(store: MemoryStore) -> Iterable[tuple[object, object, object, bytes, object]]:
    return store.rows("capsule_entry")  # type: ignore[return-value]
