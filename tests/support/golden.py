"""Golden files: records as exact bytes, what must come of them, and how to fold them and see what changed.

A file is one scenario of one partition. Bytes of records are base64; bytes in rows are `{"hex": …}`. For each record a
file names the whole decision, the fingerprint where the mutation's id is remembered, every row that is new or another
(`put`), and the key of every row that is gone. What a file does not name must not change.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

from kvfold.projector.batch import prepare
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.tables import TABLES, PartitionState, Row
from kvfold.schemas.record import Record
from support.given import fold_all, snapshot

__all__ = ["GOLDEN", "GoldenFile", "changes_between", "golden_files", "rows_by_key"]

GOLDEN: Final = Path(__file__).parent.parent / "golden" / "records"
"""A folder a format level: `v1`, `v2`; what level 2 added stands in `v2`, beside records of level 1 that go on as before."""
# Made after the first golden files, which name every row that changes, and are never edited.
_YOUNGER_TABLES: Final = frozenset(
    {
        "orchestration_instance_history",
        "orchestration_queue",
        "orchestration_inbox",
        "orchestration_task",
        "orchestration_child",
        "orchestration_outbox",
    }
)
# Added after them, with what a row is that has nothing there.
_YOUNGER_COLUMNS: Final[dict[str, dict[str, object]]] = {
    "capsule_scope": {"restoring": None},
    "deployment_scope": {"restoring": None},
}
Columns = dict[str, object]
TableRows = dict[str, dict[Row, Columns]]


def golden_files() -> list[Path]:
    """Every golden file, by level and name."""
    return sorted(GOLDEN.glob("v*/*.json"))


class GoldenFile:
    """One file, decoded."""

    def __init__(self, path: Path) -> None:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        self.level = int(path.parent.name.removeprefix("v"))
        self.type: str = document["type"]
        self.partition: int = document["partition"]
        self.partition_count: int = document["partition_count"]
        self.entries: list[dict[str, Any]] = document["records"]
        # What tables this file says nothing of: a later one names the rows of all but the instances' past.
        self.silent_on = (
            frozenset({"orchestration_instance_history"}) if document.get("names_all") else _YOUNGER_TABLES
        )
        self.state = PartitionState(**document["state"])
        self.records = [self._record(entry) for entry in self.entries]

    def _record(self, entry: dict[str, Any]) -> Record:
        return Record(
            self.partition,
            entry["offset"],
            entry["timestamp_ms"],
            _bytes(entry["key"]),
            tuple((name, base64.b64decode(text)) for name, text in entry["headers"]),
            _bytes(entry["value"]),
        )

    def fold(self, store: MemoryStore, records: list[Record]) -> None:
        """Folds records of the file as one batch."""
        fold_all(store, prepare(records, self.partition_count), self.partition)

    def expected_puts(self, entry: dict[str, Any]) -> dict[str, list[Columns]]:
        """The rows that must be new, by table; the decision and the remembered id among them."""
        puts: dict[str, list[Columns]] = {}
        for put in entry["put"]:
            row = {column: _value(value) for column, value in put["row"].items()}
            puts.setdefault(put["table"], []).append(_YOUNGER_COLUMNS.get(put["table"], {}) | row)
        place = {"partition": self.partition, "record_offset": entry["offset"]}
        decision = {"keys": _keys(entry)} | entry["decision"]
        puts["decision"] = [place | decision]
        if entry["fingerprint"] is not None:
            remembered = {
                "id": decision["mutation_id"],
                "scope": decision["scope"],
                "fingerprint": bytes.fromhex(entry["fingerprint"]),
                "time_ms": decision["time_ms"],
            }
            puts["mutation_id"] = [place | remembered]
        return puts

    def expected_gone(self, entry: dict[str, Any]) -> dict[str, list[Columns]]:
        """The keys that must be gone, by table."""
        gone: dict[str, list[Columns]] = {}
        for item in entry["gone"]:
            gone.setdefault(item["table"], []).append(item["key"])
        return gone


def changes_between(
    before: TableRows, after: TableRows, *, silent_on: frozenset[str]
) -> tuple[dict[str, list[Columns]], dict[str, list[Columns]]]:
    """Rows that are new or another, and keys that are gone, by table, but of those in `silent_on`."""
    puts: dict[str, list[Columns]] = {}
    gone: dict[str, list[Columns]] = {}
    for table, rows in after.items():
        if table in silent_on:
            continue
        size = TABLES[table.removesuffix("_history")].key_size
        columns = TABLES[table.removesuffix("_history")].columns[:size]
        puts[table] = [row for key, row in rows.items() if before[table].get(key) != row]
        missing = before[table].keys() - rows.keys()
        gone[table] = [dict(zip(columns, key, strict=True)) for key in missing]
    return {t: r for t, r in puts.items() if r}, {t: k for t, k in gone.items() if k}


def rows_by_key(store: MemoryStore) -> TableRows:
    """A store's tables, each row as its columns under its key."""
    result: TableRows = {}
    for table, rows in snapshot(store).items():
        spec = TABLES[table.removesuffix("_history")]
        is_history = table.endswith("_history")
        columns = spec.columns + ("valid_to",) * is_history
        keyed: dict[Row, Columns] = {}
        for row in rows:
            named = dict(zip(columns, row, strict=True))
            history_part = (named[spec.valid_from],) if is_history else ()
            keyed[*row[: spec.key_size], *history_part] = named
        result[table] = keyed
    return result


# Their records remove a range, and name no keys.
_RANGES: Final = (
    "kvfold.capsule.prefix-cleared.v1",
    "kvfold.capsule.namespace-cleared.v1",
    "kvfold.deployment.undeployed.v1",
    "kvfold.orchestration.instance-deleted.v1",
)


def _keys(entry: dict[str, Any]) -> str | None:
    """The keys that the decision names, told from the rows that the file says are new or gone."""
    decision = entry["decision"]
    if decision["subject"] is not None or decision["type"] in _RANGES:
        return None
    tables = ("capsule_entry", "deployment_entry", "orchestration_kv")
    keys = {put["row"]["key"] for put in entry["put"] if put["table"] in tables}
    keys |= {item["key"]["key"] for item in entry["gone"] if item["table"] in tables}
    return json.dumps(sorted(keys), separators=(",", ":"), ensure_ascii=False) if keys else None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _value(value: Any) -> object:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
