"""Rules told a second time, simply, from records and decisions alone: identity with its window, and versions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kvfold.projector.tables import DecisionRow
from kvfold.schemas.record import Record

__all__ = ["Identities", "Versions"]

_WINDOW_MS = 7 * 24 * 3_600 * 1_000
_NEVER_REMEMBERED = {"malformed", "unknown-type", "wrong-partition"}
_NO_BODY = ("deleted", "prefix-cleared", "namespace-cleared", "undeployed")
Content = tuple[bytes | None, ...]


@dataclass(slots=True)
class Identities:
    """Which records repeat which, by (partition, scope, id), effective time and content."""

    times: dict[int, int] = field(default_factory=dict)
    first: dict[tuple[object, ...], tuple[int, int, Content]] = field(default_factory=dict)

    def check(self, record: Record, decision: DecisionRow) -> None:
        """The next record of its partition, and what was decided about it."""
        now = self.times[record.partition] = max(self.times.get(record.partition, 0), record.timestamp_ms)
        assert decision.time_ms == now, f"{decision} is not at effective time {now}"
        if decision.code in _NEVER_REMEMBERED:
            assert decision.repeat_of is None
            return
        identity = (record.partition, decision.scope, decision.mutation_id)
        content = _content(record)
        offset, time_ms, before = self.first.get(identity, (-1, 0, content))
        if offset < 0 or now - time_ms > _WINDOW_MS:
            assert decision.repeat_of is None and decision.code != "id-reused", f"{decision} is a first"
            self.first[identity] = (record.offset, now, content)
        elif before == content:
            assert decision.repeat_of == offset, f"{decision} repeats {offset}"
        else:
            assert decision.code == "id-reused", f"{decision} has another content than {offset}"


def _content(record: Record) -> Content:
    headers = dict(record.headers)
    names = ("ce_type", "ce_subject", "ce_kvnamespace", "ce_kvexpected")
    parts = tuple(headers.get(name) for name in names)
    bodiless = headers["ce_type"].decode().split(".")[2] in _NO_BODY
    secret = b"_secrets" in headers.get("ce_kvnamespace", b"")
    return (*parts, None if bodiless or secret else record.value)


@dataclass(slots=True)
class Versions:
    """Versions by key: a capsule's begin anew after a removal, a deployment's never do."""

    live: dict[tuple[str, str], int] = field(default_factory=dict)
    last: dict[tuple[str, str, str], int] = field(default_factory=dict)
    floor: dict[str, int] = field(default_factory=dict)

    def check(self, record: Record, decision: DecisionRow) -> None:
        """The next record of its partition, and what was decided about it."""
        if decision.status != "applied" or decision.repeat_of is not None:
            return
        assert decision.scope is not None and decision.type is not None
        _, family, verb, _ = decision.type.split(".")
        if verb == "batch":
            self._batch(decision.scope, json.loads(record.value or b""), decision.removed)
        elif family == "capsule":
            self._capsule(verb, decision.scope, decision.subject or "", decision.version)
        elif family == "deployment":
            self._deployment(verb, decision.scope, decision)

    def _capsule(self, verb: str, scope: str, subject: str, version: int | None) -> None:
        match verb:
            case "set":
                expected = self.live.get((scope, subject), 0) + 1
                assert version == expected, f"{scope} {subject!r}: version {version} instead of {expected}"
                self.live[scope, subject] = expected
            case "deleted":
                assert version == self.live.pop((scope, subject), 0)
            case "prefix-cleared" | "namespace-cleared":
                for key in [k for k in self.live if k[0] == scope and k[1].startswith(subject)]:
                    del self.live[key]

    def _batch(self, scope: str, body: Any, removed: int | None) -> None:
        gone = 0
        for operation in body["operations"]:
            key = (scope, operation["key"])
            if operation["kind"] == "set":
                self.live[key] = self.live.get(key, 0) + 1
            else:
                gone += self.live.pop(key, None) is not None
        assert removed == gone, f"{scope}: {removed} removed instead of {gone}"

    def _deployment(self, verb: str, scope: str, decision: DecisionRow) -> None:
        if verb == "undeployed":
            swept = [key for key in self.last if key[0] == scope]
            self.floor[scope] = max([self.floor.get(scope, 0), *(self.last.pop(key) for key in swept)])
        elif verb == "put":
            key = (scope, decision.namespace or "", decision.subject or "")
            expected = max(self.last.get(key, 0), self.floor.get(scope, 0)) + 1
            assert decision.version == expected, f"{key}: version {decision.version} instead of {expected}"
            self.last[key] = expected
