"""Snapshot files: a scope saved from one installation, and brought back through the log of another.

A file is lines of JSON. The first says what it is of and names the snapshot by a UUID, every other one is an entry as
`/v1/snapshots` gives it, the last one counts them, so a file that was cut off is known as such:

```
{"kvfold_snapshot":1,"snapshot":"0190…","family":"deployment","scope":"d:dep-1","position":"3:1042"}
{"namespace":"user","key":"greeting","version":3,"size":5,"value_base64":"aGVsbG8=","position":"3:998","time":"…"}
{"entries":1}
```

Each entry becomes one record that carries its version and the snapshot's UUID; the fold takes them into an empty scope
only. A file may be sent again: what is there already from the same snapshot is passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from uuid6 import uuid7

from kvfold.deploy.emitting import Outcome, emit_lines
from kvfold.deploy.http_client import KvfoldClient
from kvfold.deploy.lines import LINE_BYTES_MAX, Line
from kvfold.deploy.stopping import StopRequest
from kvfold.schemas.errors import InvalidError, KvfoldError
from kvfold.schemas.types import Family

__all__ = ["Restored", "SnapshotHead", "read_head", "restore", "save"]

_FORMAT: Final = 1
_SOURCE: Final = "/kvfold/snapshot"

Tell = Callable[[str, int, int | None], None]
"""Told the step, how many entries are done, and of how many; None = unknown."""


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """What a file is of; `entries` as its last line counts them."""

    snapshot: str
    family: Family
    scope: str
    position: str
    entries: int


@dataclass(slots=True)
class Restored:
    """How many entries were brought back, and how many of them were there already from the same snapshot."""

    applied: int = 0
    present: int = 0


class RestoreRefusedError(KvfoldError):
    """The log holds the records, and the fold did not take them: the scope is not empty, or a quota is too small."""


def save(
    client: KvfoldClient,
    scope: str,
    family: Family,
    file: Path,
    stop: StopRequest,
    tell: Tell,
    *,
    as_of: str | None,
) -> SnapshotHead | None:
    """Saves a scope into a file, which is there only when it is whole; None where it was stopped before.

    Raises:
        RefusedError: `gone`, `malformed-scope`, …
        ServerAwayError: no answer, or the stream broke off.
    """
    part = file.with_name(f"{file.name}.part")
    try:
        with client.stream(
            f"/v1/snapshots/{family}/{quote(scope, safe='')}", sealed="true", as_of=as_of
        ) as answer:
            lines = answer.iter_lines()
            head = SnapshotHead(str(uuid7()), family, scope, json.loads(next(lines))["position"], 0)
            with part.open("x", encoding="utf-8") as opened:
                opened.write(_line(_head_facts(head)))
                count = 0
                for line in lines:
                    if stop.is_set():
                        return None
                    opened.write(line + "\n")
                    count += 1
                    tell("saved", count, None)
                opened.write(_line({"entries": count}))
                opened.flush()
                os.fsync(opened.fileno())
        part.replace(file)
        return SnapshotHead(head.snapshot, family, scope, head.position, count)
    except FileExistsError:
        raise InvalidError(f"{part} is there: another save writes it, or was killed", code="exists") from None
    finally:
        if not file.exists():
            with suppress(FileNotFoundError):
                part.unlink()


def read_head(file: Path) -> SnapshotHead:
    """What a file is of, having looked at all of its lines.

    Raises:
        InvalidError: `malformed-snapshot`: it is no snapshot, of another format, or cut off.
    """
    first = last = ""
    count = -2
    with file.open(encoding="utf-8", errors="strict") as opened:
        try:
            for line in opened:
                first, last, count = first or line, line, count + 1
            facts, end = json.loads(first), json.loads(last)
        except ValueError as error:
            raise _malformed(file, "it is no file of JSON lines") from error
    if not isinstance(facts, dict) or facts.get("kvfold_snapshot") != _FORMAT:
        raise _malformed(file, f"its first line does not say that it is a snapshot of format {_FORMAT}")
    if not isinstance(end, dict) or end.get("entries") != count:
        raise _malformed(file, "it was cut off: its last line does not count the lines before it")
    try:
        family = Family(facts["family"])
        return SnapshotHead(facts["snapshot"], family, facts["scope"], facts["position"], count)
    except (KeyError, ValueError) as error:
        raise _malformed(
            file, "its first line lacks the snapshot, the family, the scope or the position"
        ) from error


def restore(
    client: KvfoldClient, head: SnapshotHead, file: Path, stop: StopRequest, tell: Tell, *, patience_s: float
) -> Restored:
    """Appends each entry of a file, in order, and waits for its decision; ends early when the stop was asked for.

    Raises:
        RestoreRefusedError: at the first entry that was not taken; what came before it stands.
        ServerAwayError: no outcome for `patience_s` seconds.
    """
    restored = Restored()
    versions: dict[int, int] = {}

    def outcome(told: Outcome) -> None:
        version = versions.pop(told.line)
        facts = told.facts
        if told.status == "applied":
            restored.applied += 1
        elif facts.get("code") == "already-exists" and facts.get("version") == version:
            restored.present += 1
        else:
            raise _refused(head, told)
        tell("restored", restored.applied + restored.present, head.entries)

    def lines() -> Iterator[Line]:
        for number, entry in _entries(file):
            if stop.is_set():
                return
            versions[number] = entry["version"]
            yield Line(number, _event(head, entry))

    emit_lines(lines(), client, stop, tell=outcome, patience_s=patience_s)
    return restored


def _entries(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Entries with the numbers of their lines; the last line is the count."""
    with file.open(encoding="utf-8") as opened:
        next(opened)
        for number, line in enumerate(opened, 2):
            if len(line) > LINE_BYTES_MAX:
                raise _malformed(file, f"line {number} is longer than {LINE_BYTES_MAX} characters")
            entry = json.loads(line)
            if "key" in entry:
                yield number, entry


def _event(head: SnapshotHead, entry: dict[str, Any]) -> bytes:
    """An entry as a CloudEvent. Its id is new in every run: what a run before it brought is known by the scope itself."""
    if entry["value_base64"] is None:
        raise InvalidError(
            f"the value of {entry['key'][:80]!a} is not in the file: it was made without the ciphertext of secrets",
            code="malformed-snapshot",
        )
    event = {
        "specversion": "1.0",
        "id": str(uuid7()),
        "source": _SOURCE,
        "type": f"kvfold.{head.family}.restored.v1",
        "partitionkey": head.scope,
        "subject": entry["key"],
        "kvversion": str(entry["version"]),
        "kvsnapshot": head.snapshot,
        "datacontenttype": "application/octet-stream",
        "data_base64": entry["value_base64"],
    }
    if head.family is Family.DEPLOYMENT:
        event["kvnamespace"] = entry["namespace"]
    return json.dumps(event, ensure_ascii=False).encode()


def _refused(head: SnapshotHead, told: Outcome) -> RestoreRefusedError:
    code = str(told.facts.get("code") or told.status)
    detail = str(told.facts.get("detail") or code)
    if code in ("not-empty", "already-exists"):
        detail = (
            f"{head.scope} is not empty: it holds entries that are not of this snapshot. A capsule is empty without keys; "
            "a deployment that never held anything, or was undeployed since"
        )
    return RestoreRefusedError(f"line {told.line}: {detail} ({code})", code=code)


def _head_facts(head: SnapshotHead) -> dict[str, Any]:
    return {
        "kvfold_snapshot": _FORMAT,
        "snapshot": head.snapshot,
        "family": str(head.family),
        "scope": head.scope,
        "position": head.position,
    }


def _line(facts: dict[str, Any]) -> str:
    return json.dumps(facts, separators=(",", ":"), ensure_ascii=False) + "\n"


def _malformed(file: Path, what: str) -> InvalidError:
    return InvalidError(f"{file} cannot be restored: {what}", code="malformed-snapshot")
