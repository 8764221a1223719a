"""Watchers over HTTP, what a log must make them see, and what must hold of what they saw.

What is expected comes from the records alone: each is folded into memory by itself, and the entries before and after it
are compared. Neither the decisions' keys nor the history tables nor any SQL has a part in it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from random import Random
from threading import Event, Thread
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

from kvfold.deploy.http_server import HttpServer, bound_socket
from kvfold.projector.memory_store import MemoryStore
from kvfold.query_api.serve import query_api_app, read_context
from kvfold.schemas.record import Record
from kvfold.schemas.rules import is_secret
from support.projection import eventually, fold_records

__all__ = [
    "Change",
    "Expected",
    "Frame",
    "Seen",
    "Stream",
    "Watcher",
    "check_seen",
    "expected_changes",
    "positions_of",
    "serving",
]

_CLEARS: Final = {
    b"kvfold.capsule.prefix-cleared.v1",
    b"kvfold.capsule.namespace-cleared.v1",
    b"kvfold.deployment.undeployed.v1",
    b"kvfold.orchestration.instance-deleted.v1",
}

Change = tuple[object, ...]
"""What happened, scope, namespace, key or prefix, version, execution, value in base64, how many were removed."""

Expected = dict[int, list[tuple[int, list[Change]]]]
"""By partition, in order: the offset of each record that changes something, and its changes in order of the keys."""


@contextmanager
def serving(dsn: str) -> Iterator[HttpServer]:
    """The query API of a database behind its real server."""
    server = HttpServer(query_api_app(read_context(dsn, pool_size=4)), bound_socket("127.0.0.1", 0))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream; `id` None where it has none."""

    event: str
    id: str | None
    data: dict[str, Any]


class Stream:
    """One connection to `GET /v1/watch`. Iterating gives frames until the server ends it or the connection is lost."""

    def __init__(self, server: HttpServer, *, last_event_id: str | None = None, **query: str) -> None:
        self._connection = HTTPConnection(str(server.host), int(server.port), timeout=60)
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        self._connection.request("GET", f"/v1/watch?{urlencode(query)}", headers=headers)
        self.answer: HTTPResponse = self._connection.getresponse()
        self.comments = 0

    @property
    def code(self) -> str:
        """The code of the problem that was answered; hangs up."""
        assert self.answer.status != 200, "nothing was refused, and the stream has no end"
        code = str(json.loads(self.answer.read())["code"])
        self.close()
        return code

    def close(self) -> None:
        """Hangs up."""
        self.answer.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Frame]:
        assert self.answer.status == 200, self.answer.read()
        event, id_, data = "", None, ""
        for line in iter(self.answer.readline, b""):
            name, _, text = line.decode("ascii").rstrip("\n").partition(":")
            if line == b"\n":
                if data:
                    yield Frame(event, id_, json.loads(data))
                event, id_, data = "", None, ""
            elif line.startswith(b":"):
                self.comments += 1
            elif name == "event":
                event = text[1:]
            elif name == "id":
                id_ = text[1:]
            elif name == "data":
                data = text[1:]


@dataclass(frozen=True, slots=True)
class Seen:
    """The changes of one record as they came, up to the one with an id."""

    partition: int
    offset: int
    changes: list[Change]
    id: str


class Watcher(Thread):
    """A client as a correct one is: it keeps the last id, drops a mutation that was cut off, and comes back.

    With `chance` it also hangs up by itself, anywhere in the stream.
    """

    def __init__(
        self,
        server: Callable[[], HttpServer],
        *,
        query: Mapping[str, str] = MappingProxyType({}),
        chance: Random | None = None,
    ) -> None:
        super().__init__(name="watcher", daemon=True)
        self._server = server
        self._query = query
        self._chance = chance
        self._stopping = Event()
        self.began = Event()
        self.last_id: str | None = None
        self.seen: list[Seen] = []
        self.connections = 0
        self.failure: BaseException | None = None
        self.ended_with: Frame | None = None
        self.start()
        assert self.began.wait(60) or self.failure, "the watch did not begin"

    def stop(self) -> None:
        """Ends it, and says what went wrong in it."""
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def wait_for(self, count: int) -> None:
        """Waits until so many mutations were seen."""
        eventually(
            lambda: len(self.seen) >= count or self.failure is not None, f"{count} mutations seen: {self!r}"
        )

    def __repr__(self) -> str:
        return f"<watcher of {self._query}: {len(self.seen)} seen, at {self.last_id}>"

    def run(self) -> None:
        """Watches until the end."""
        try:
            while not self._stopping.is_set() and self.ended_with is None:
                # Servers and databases come and go in some tests.
                with suppress(OSError, HTTPException):
                    self._watch()
                self._stopping.wait(0.02)
        except BaseException as failure:
            self.failure = failure

    def _watch(self) -> None:
        query = {**self._query} if self.last_id is None else {**self._query, "last_event_id": self.last_id}
        stream = Stream(self._server(), **query)
        if stream.answer.status == 503:
            stream.close()
            return
        self.connections += 1
        frames_left = -1 if self._chance is None else self._chance.randrange(1, 12)
        cut_off: list[Frame] = []
        Thread(target=self._close_at_the_end, args=(stream,), daemon=True).start()
        try:
            for frame in stream:
                if self._stopping.is_set():
                    return
                self._take(frame, cut_off)
                frames_left -= 1
                if frames_left == 0 or self.ended_with is not None:
                    return
        finally:
            stream.close()

    def _close_at_the_end(self, stream: Stream) -> None:
        self._stopping.wait()
        sock = stream._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(2)

    def _take(self, frame: Frame, waiting: list[Frame]) -> None:
        if frame.event == "gone":
            self.ended_with = frame
            return
        if frame.event in ("put", "delete", "cleared"):
            waiting.append(frame)
        if frame.id is None:
            return
        if waiting:
            places = {each.data["position"] for each in waiting}
            assert len(places) == 1, f"one id for the changes of several records: {places}"
            partition, offset = map(int, places.pop().split(":"))
            changes = [_change_of(each) for each in waiting]
            self.seen.append(Seen(partition, offset, changes, frame.id))
            waiting.clear()
        self.last_id = frame.id
        self.began.set()


def expected_changes(
    records: Mapping[int, Sequence[Record]],
    partition_count: int,
    *,
    wanted: Callable[[Change], bool] = lambda _: True,
) -> Expected:
    """What each record of a log changes, as far as it is wanted."""
    result: Expected = {}
    for partition, of_partition in records.items():
        store = MemoryStore()
        before = _entries(store)
        changed = result.setdefault(partition, [])
        for record in of_partition:
            fold_records(store, [record], partition=partition, partition_count=partition_count, batch_size=1)
            after = _entries(store)
            changes = [change for change in _changes(record, before, after) if wanted(change)]
            if changes:
                changed.append((record.offset, changes))
            before = after
    return result


def check_seen(seen: Sequence[Seen], expected: Expected) -> None:
    """Ordered, unique, atomic, reliable, and bookmarkable: every id covers what came before it, and nothing else."""
    places = [(each.partition, each.offset) for each in seen]
    assert len(set(places)) == len(places), "a record was told of twice"
    covered: dict[int, int] = {}
    for each in seen:
        assert each.offset > covered.get(each.partition, -1), "a partition went back"
        covered[each.partition] = each.offset
        positions = positions_of(each.id)
        assert positions[each.partition] == each.offset, "the id is not that of the record"
        for partition, offset in positions.items():
            after = next((o for o, _ in expected.get(partition, ()) if o > covered.get(partition, -1)), None)
            assert after is None or offset < after, "the id claims what was not told yet"
    for partition, of_partition in expected.items():
        told = [(each.offset, each.changes) for each in seen if each.partition == partition]
        assert told == of_partition, f"partition {partition}"
    assert {each.partition for each in seen} <= expected.keys()


def positions_of(id_: str) -> dict[int, int]:
    """An id, by partition."""
    return {int(p): int(offset) for p, offset in (place.split(":") for place in id_.split(","))}


def _change_of(frame: Frame) -> Change:
    data = frame.data
    return (
        *(frame.event, data["scope"], data.get("namespace"), data.get("key", data.get("prefix"))),
        *(data["version"], data.get("execution_id"), data["value_base64"], data.get("removed")),
    )


_Entries = dict[tuple[str, str | None, str], tuple[int, int | None, int | None, bytes | None]]
"""By scope, namespace and key: the offset that wrote it, version, execution, value (None = secret)."""


def _entries(store: MemoryStore) -> tuple[_Entries, set[str]]:
    """What is live, and which instances there are."""
    found: _Entries = {}
    for scope, key, version, value, _, _, valid_from, *_ in store.rows("capsule_entry"):
        found[str(scope), None, str(key)] = (valid_from, version, None, value)  # type: ignore[assignment]
    for scope, namespace, key, version, value, _, valid_from, *_ in store.rows("deployment_entry"):
        if value is not None:
            told = None if is_secret(str(namespace)) else value
            found[str(scope), str(namespace), str(key)] = (valid_from, version, None, told)  # type: ignore[assignment]
    for scope, key, text, execution_id, _, valid_from, *_ in store.rows("orchestration_kv"):
        found[str(scope), None, str(key)] = (valid_from, None, execution_id, str(text).encode())  # type: ignore[assignment]
    return found, {str(row[0]) for row in store.rows("orchestration_instance")}


def _changes(
    record: Record, before: tuple[_Entries, set[str]], after: tuple[_Entries, set[str]]
) -> Iterable[Change]:
    headers = dict(record.headers)
    gone = sorted(before[0].keys() - after[0].keys(), key=_in_byte_order)
    if headers.get("ce_type") in _CLEARS:
        scope = (record.key or b"").decode("utf-8", "replace")
        if gone or scope in before[1] - after[1]:
            prefix = headers.get("ce_subject", b"").decode()
            removed = None if scope.startswith("o:") else len(gone)
            yield ("cleared", scope, None, prefix, None, None, None, removed)
        return
    changed = {place: entry for place, entry in after[0].items() if before[0].get(place) != entry}
    for place in sorted({*gone, *changed}, key=_in_byte_order):
        if place in changed:
            _, version, execution_id, value = changed[place]
            text = None if value is None else base64.b64encode(value).decode()
            yield ("put", *place, version, execution_id, text, None)
        else:
            yield ("delete", *place, before[0][place][1], None, None, None)


def _in_byte_order(place: tuple[str, str | None, str]) -> tuple[bytes, bytes]:
    return (place[1] or "").encode(), place[2].encode()
