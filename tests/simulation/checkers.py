"""What must be true after every step. A checker that fails raises `CheckError` with its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvfold.log.memory import MemoryLog
from kvfold.log.port import Appended
from kvfold.projector.batch import prepare
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.tables import DecisionRow, PartitionState
from kvfold.schemas.record import Record
from simulation.faults import Server
from simulation.oracles import Identities, Versions
from support.given import check_usage, fold_all

__all__ = ["CheckError", "Checkers"]


class CheckError(AssertionError):
    """A checker found something: its name and what."""

    def __init__(self, checker: str, what: object) -> None:
        super().__init__(f"{checker}: {what}")
        self.checker = checker


class _Known:
    """What can be read of one partition so far, by a reader of the checkers' own that never fails."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.positions = {0}
        self.checked = 0
        self.state = PartitionState(0, 0, 1, None, None, None)


class Checkers:
    """All checkers of one world. They know the log by their own reader, and fold it again, record by record."""

    def __init__(self, log: MemoryLog, server: Server) -> None:
        self._log = log
        self._server = server
        self._tables = server.store.shared.tables
        self._partition_count = log.describe().partition_count
        self._reader = log.reader()
        self._reader.assign(dict.fromkeys(range(self._partition_count), 0))
        self._known = {partition: _Known() for partition in range(self._partition_count)}
        self._reference = MemoryStore()
        self._outcomes: dict[tuple[object, ...], tuple[object, ...]] = {}
        self._commits = 0
        self._versions, self._identities = Versions(), Identities()

    def look(self) -> None:
        """Looks at everything; called between steps, when nothing is half done."""
        self._read_log()
        checks: tuple[tuple[str, Callable[[], None]], ...] = (
            ("owner", self._check_owner),
            ("position", self._check_position),
            ("outcome", self._check_outcomes),
            ("identity and version", self._check_oracles),
            ("fold", self._check_fold),
            ("usage", lambda: check_usage(self._server.store)),
        )
        for name, check in checks:
            try:
                check()
            except AssertionError as error:
                raise CheckError(name, error) from error

    def at_rest(self, acknowledged: Sequence[Appended]) -> None:
        """Looks once more when nothing is under way: all of the log is folded, nothing that was acknowledged is lost."""
        self.look()
        for partition, known in self._known.items():
            end = self._log.bounds([partition])[partition].stable_end
            if self._server.store.state(partition).offset_next != end:
                raise CheckError("caught up", f"{known.state.offset_next} of {end}")
        decided = {key[:2] for key in self._tables["decision"]}
        for append in acknowledged:
            if (append.partition, append.offset) not in decided:
                raise CheckError("acknowledged", append)
        self._check_from_scratch()

    def known_end(self, partition: int) -> int:
        """One past the last record that can be read."""
        records = self._known[partition].records
        return records[-1].offset + 1 if records else 0

    def _read_log(self) -> None:
        """Positions at which a reader may stand are between records: after one, and at the end of what can be read."""
        while batches := self._reader.poll(timeout_ms=0, records_max=1_000, bytes_max=1 << 30):
            for batch in batches:
                known = self._known[batch.partition]
                known.records += batch.records
                known.positions |= {record.offset + 1 for record in batch.records}
                known.positions.add(batch.offset_next)

    def _check_owner(self) -> None:
        """Only the newest claim commits, and each commit goes on where the one before ended."""
        epochs = self._server.store.shared.epochs
        for commit in self._server.commits[self._commits :]:
            assert commit.epoch == epochs[commit.partition], f"{commit} under an old claim"
            assert commit.offset_next > commit.offset_expected, f"{commit} moves nothing"
        self._commits = len(self._server.commits)

    def _check_position(self) -> None:
        """The offset never goes back, is a place between records, and covers exactly the records that are decided."""
        for partition, known in self._known.items():
            offset_next = self._server.store.state(partition).offset_next
            assert offset_next >= known.state.offset_next, f"{partition} went back to {offset_next}"
            assert offset_next in known.positions, (
                f"{partition}:{offset_next} is no place that a reader reports"
            )
            covered = {(partition, record.offset) for record in known.records if record.offset < offset_next}
            decided = {key for key in self._tables["decision"] if key[0] == partition}
            assert decided == covered, f"decisions and records differ: {sorted(decided ^ covered)[:5]}"

    def _check_outcomes(self) -> None:
        """An outcome never changes once it is recorded."""
        decisions = self._tables["decision"]
        for key, row in self._outcomes.items():
            assert decisions.get(key) == row, f"{row} became {decisions.get(key)}"
        self._outcomes = {key: tuple(row) for key, row in decisions.items()}

    def _check_oracles(self) -> None:
        """Repeats and versions, told by rules of their own from the records and the decisions alone."""
        for partition, known in self._known.items():
            offset_next = self._server.store.state(partition).offset_next
            while known.checked < len(known.records) and known.records[known.checked].offset < offset_next:
                record = known.records[known.checked]
                decision = DecisionRow._make(self._tables["decision"][partition, record.offset])
                self._identities.check(record, decision)
                self._versions.check(record, decision)
                known.checked += 1

    def _check_fold(self) -> None:
        """The tables are the fold of the log's prefix, folded again one record at a time."""
        for partition, known in self._known.items():
            state = self._server.store.state(partition)
            fresh = [r for r in known.records if known.state.offset_next <= r.offset < state.offset_next]
            for index, record in enumerate(fresh):
                end = state.offset_next if index == len(fresh) - 1 else record.offset + 1
                fold_all(
                    self._reference, prepare([record], self._partition_count), partition, offset_next=end
                )
            expected = self._reference.state(partition)._replace(offset_next=state.offset_next)
            self._reference.shared.offsets[partition] = expected
            assert state == expected, f"{state} instead of {expected}"
            known.state = state
        for table, rows in self._reference.shared.tables.items():
            actual = self._tables[table]
            assert actual == rows, f"{table}: {sorted(set(actual.items()) ^ set(rows.items()), key=repr)[:4]}"

    def _check_from_scratch(self) -> None:
        """All of the log in one batch a partition gives the same tables."""
        store = MemoryStore()
        for partition, known in self._known.items():
            end = self._server.store.state(partition).offset_next
            if known.records:
                steps = prepare(known.records, self._partition_count)
                fold_all(store, steps, partition, offset_next=end)
        if store.shared.tables != self._tables:
            raise CheckError("fold", "one batch differs from many")
