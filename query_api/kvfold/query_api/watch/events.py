"""What a watcher asks for, and how changes look in the stream."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvfold.query_api.times import rfc3339_ms
from kvfold.reads.changes import WATCHED_FAMILIES, Change, ChangeKind, family_of_scope
from kvfold.schemas.position import format_positions
from kvfold.schemas.types import Family

__all__ = ["HEARTBEAT", "Event", "WatchFilter", "control_event", "id_line", "positions_text"]

HEARTBEAT: Final = b":\n\n"
"""A comment: shows that the stream is alive, and has no id."""

_EVENT_OVERHEAD_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class WatchFilter:
    """Which changes are wanted; None is all, the empty prefix too. A namespace is a deployment's."""

    family: Family | None = None
    scope: str | None = None
    namespace: str | None = None
    prefix: str = ""

    @property
    def families(self) -> tuple[Family, ...]:
        """The families that changes can come from."""
        return WATCHED_FAMILIES if self.family is None else (self.family,)

    def matches(self, change: Change) -> bool:
        """Whether the change touches what is wanted: a key by its prefix, a range where the two overlap."""
        if self.scope is not None:
            if change.scope != self.scope:
                return False
        elif self.family is not None and family_of_scope(change.scope) is not self.family:
            return False
        is_clear = change.kind is ChangeKind.CLEARED
        # An undeploy has no namespace: it takes all of them.
        if self.namespace is not None and change.namespace != self.namespace:
            return is_clear and change.namespace is None and change.scope.startswith("d:")
        return change.key.startswith(self.prefix) or (is_clear and self.prefix.startswith(change.key))


class Event:
    """A change as it stands in the stream, encoded once for all watchers. The id is not part of it."""

    __slots__ = ("_encoded", "change", "loading")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.loading = asyncio.Lock()
        self._encoded: bytes | None = None

    @property
    def size(self) -> int:
        """About how many bytes it takes in the stream."""
        change = self.change
        return (
            _EVENT_OVERHEAD_BYTES + len(change.key) + (0 if change.is_secret else (change.size or 0) * 4 // 3)
        )

    def encoded(self) -> bytes:
        """The lines `event` and `data`. The value must be there."""
        assert not self.change.is_left_behind
        if self._encoded is None:
            self._encoded = _lines(str(self.change.kind), change_json(self.change))
        return self._encoded


def change_json(change: Change) -> dict[str, Any]:
    """The data of a change's event."""
    name = "prefix" if change.kind is ChangeKind.CLEARED else "key"
    data: dict[str, Any] = {"position": str(change.position), "scope": change.scope, name: change.key}
    match family_of_scope(change.scope):
        case Family.DEPLOYMENT:
            data["namespace"] = change.namespace
        case Family.ORCHESTRATION:
            data["execution_id"] = change.execution_id
        case _:
            pass
    if change.kind is ChangeKind.CLEARED:
        data["removed"] = change.removed
    value = None if change.value is None else base64.b64encode(change.value).decode("ascii")
    return data | {
        "version": change.version,
        "size": change.size,
        "value_base64": value,
        "actor": change.actor,
        "time": rfc3339_ms(change.time_ms),
    }


def control_event(name: str, data: Mapping[str, Any], *, id_: str | None = None) -> bytes:
    """A whole event that is no change: `progress`, `snapshot-end`, `gone`."""
    return _lines(name, data) + id_line(id_)


def id_line(id_: str | None) -> bytes:
    """The end of an event: its id, where it has one, and the blank line."""
    return f"id: {id_}\n\n".encode("ascii") if id_ else b"\n"


def positions_text(positions: Mapping[int, int]) -> str:
    """Positions as an id: those that name a record; a partition that is left out was covered up to nothing.

    Where none of them does, one partition stands for all with the offset -1, so that there is always an id.
    """
    named = {p: offset for p, offset in positions.items() if offset >= 0}
    return format_positions(named or {min(positions): -1})


def _lines(name: str, data: Mapping[str, Any]) -> bytes:
    # ASCII alone: whatever a reader takes for the end of a line, no key holds one.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return f"event: {name}\ndata: {text}\n".encode("ascii")
