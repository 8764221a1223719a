"""Writers and readers over HTTP while something is done to the system underneath; what they see is checked as it comes.

```
with running_traffic(write_url=gateway, read_url=query_api, writers=2, readers=8) as traffic:
    …                              # swaps, restarts
assert traffic.problems == []
assert traffic.acknowledged == …   # the last version of each writer's key
```

A writer counts its own key up, each write on the version that the last answer gave. A reader asks for all the keys in turn,
demands the newest acknowledged position, and must get at least that version: not an error, nothing older than what was
acknowledged, nothing older than what it saw, and no position behind one that it saw. So a wait for a position that ends
before the rows are there, a read that goes back, and a lost write are all noticed.
"""

from __future__ import annotations

import http.client
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from kvfold.schemas.position import parse_positions
from support.projection import eventually

__all__ = ["Traffic", "key_path", "running_traffic"]

_TIMEOUT_S = 60.0
_ATTEMPTS_MAX = 20
_BETWEEN_S = 0.01  # between a client's requests, so that they leave the machine to what is done underneath


def key_path(writer: int) -> str:
    """Where a writer's key is; each is a scope of its own."""
    return f"/deployments/traffic-{writer}/kv/user/count"


class Traffic:
    """What was acknowledged, and what was wrong. Safe from any thread."""

    def __init__(self, writers: int) -> None:
        self.problems: list[str] = []
        self.reads = 0
        self.acknowledged = dict.fromkeys(range(writers), 0)
        self._positions: dict[int, int] = {}
        self._lock = threading.Lock()
        self.stopping = threading.Event()

    def wrong(self, what: str) -> None:
        """Takes note of something that must not be."""
        with self._lock:
            self.problems.append(what)

    def wrote(self, writer: int, version: int, positions: dict[int, int]) -> None:
        """A write was acknowledged."""
        with self._lock:
            self.acknowledged[writer] = version
            for partition, offset in positions.items():
                self._positions[partition] = max(offset, self._positions.get(partition, -1))

    def newest(self, writer: int) -> tuple[int, str]:
        """The writer's acknowledged version, and positions that cover it."""
        with self._lock:
            text = ",".join(f"{p}:{offset}" for p, offset in sorted(self._positions.items()))
            return self.acknowledged[writer], text

    def read(self) -> None:
        """A read was good."""
        with self._lock:
            self.reads += 1

    def goes_on(self, *, reads: int = 50, writes: int = 5) -> None:
        """Waits until so many more reads and writes were good."""
        reads += self.reads
        writes += sum(self.acknowledged.values())
        eventually(
            lambda: (
                bool(self.problems) or (self.reads >= reads and sum(self.acknowledged.values()) >= writes)
            ),
            "reads and writes that go on",
        )


class _Connection:
    """A kept connection, made again after an error."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()


def _write(traffic: Traffic, writer: int, url: str) -> None:
    connection = _Connection(url)
    version = 0
    while not traffic.stopping.wait(_BETWEEN_S):
        repeat = str(uuid.uuid4())
        headers = {"X-Object-Version": str(version), "Idempotency-Key": repeat}
        for _ in range(_ATTEMPTS_MAX):
            status, answered, body = connection.ask(
                "PUT", key_path(writer), str(version + 1).encode(), headers
            )
            if status != 503:  # which says to write the same again
                break
        if status not in (200, 201) or answered["x-object-version"] != str(version + 1):
            traffic.wrong(f"write {version + 1} of {writer}: {status} {answered} {body[:300]!r}")
            break
        version += 1
        traffic.wrote(writer, version, parse_positions(answered["x-kvfold-position"]))
    connection.close()


def _read(traffic: Traffic, url: str, writers: int) -> None:
    connection = _Connection(url)
    seen = dict.fromkeys(range(writers), 0)
    positions: dict[int, int] = {}
    turn = 0
    while not traffic.stopping.wait(_BETWEEN_S):
        writer = turn % writers
        turn += 1
        demanded, covering = traffic.newest(writer)
        headers = {"X-Kvfold-Min-Position": covering} if covering else {}
        status, answered, body = connection.ask("GET", key_path(writer), None, headers)
        if status == 404 and demanded == 0 and seen[writer] == 0:
            continue
        if status != 200:
            traffic.wrong(f"read of {writer}: {status} {body[:300]!r}")
            break
        version = int(answered["x-object-version"])
        if version < max(demanded, seen[writer]) or body != str(version).encode():
            traffic.wrong(f"read of {writer}: {version} {body!r} after {seen[writer]}, demanded {demanded}")
            break
        for partition, offset in parse_positions(answered["x-kvfold-position"]).items():
            if offset < positions.get(partition, -1):
                traffic.wrong(f"read of {writer}: position {partition}:{offset} after {positions[partition]}")
            positions[partition] = offset
        seen[writer] = version
        traffic.read()
    connection.close()


def _guarded(traffic: Traffic, target: object, *arguments: object) -> None:
    try:
        target(*arguments)  # type: ignore[operator]
    except Exception as error:
        traffic.wrong(f"{type(error).__name__}: {error}")


@contextmanager
def running_traffic(
    *, write_url: str, read_url: str, writers: int = 2, readers: int = 8
) -> Iterator[Traffic]:
    """Writers and readers run inside the `with`; all have ended after it."""
    traffic = Traffic(writers)
    jobs: list[tuple[object, ...]] = [(_write, traffic, writer, write_url) for writer in range(writers)]
    jobs += [(_read, traffic, read_url, writers) for _ in range(readers)]
    threads = [threading.Thread(target=_guarded, args=(traffic, *job), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield traffic
    finally:
        traffic.stopping.set()
        for thread in threads:
            thread.join()
