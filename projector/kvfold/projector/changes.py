"""What one mutation changes: full rows by table name, so that a store needs no knowledge of the families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from kvfold.projector.tables import TABLES, Row
from kvfold.schemas.strict_json import encode_json

__all__ = ["Changes", "RangeRemoval", "keys_changed"]

# Tables whose rows are entries: the last column of their keys is the entry's key.
_ENTRY_TABLES: Final = frozenset({"capsule_entry", "deployment_entry", "orchestration_kv"})


@dataclass(frozen=True, slots=True)
class RangeRemoval:
    """Rows of a scope that go: all of them, those under a key prefix, or those of some executions."""

    table: str
    scope: str
    prefix: str | None = None
    execution_ids: tuple[int, ...] | None = None


class Changes(NamedTuple):
    """What one mutation changes, by table name.

    `puts` are rows that are now current, `removals` keys that are gone, `additions` rows of tables that only grow.
    `sweeps` name tables without history of which every row of the mutation's scope is gone; no put is among them.
    `ranges` are removals of a mutation that stands alone in its batch.
    """

    puts: tuple[tuple[str, Row], ...] = ()
    removals: tuple[tuple[str, Row], ...] = ()
    additions: tuple[tuple[str, Row], ...] = ()
    sweeps: tuple[str, ...] = ()
    ranges: tuple[RangeRemoval, ...] = ()
    format_level: int | None = None


def keys_changed(changes: Changes) -> str | None:
    """The keys whose entries a record changed, as a canonical JSON array in byte order; None where there are none.

    Watchers find a record's changes by them. A range is no list of keys: its record says which range.
    """
    changed = {str(row[TABLES[table].key_size - 1]) for table, row in changes.puts if table in _ENTRY_TABLES}
    changed.update(str(key[-1]) for table, key in changes.removals if table in _ENTRY_TABLES)
    return encode_json(sorted(changed)).decode() if changed else None
