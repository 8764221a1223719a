"""Watching, over real Postgres and the real server: nothing is left out, nothing repeats, whatever happens."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psycopg
import pytest

from kvfold.deploy.http_server import HttpServer, bound_socket
from kvfold.query_api.serve import query_api_app, read_context
from kvfold.query_api.watch.hub import WatchHub
from kvfold.query_api.watch.subscription import Subscription
from kvfold.reads.snapshot_of_changes import SnapshotPage
from kvfold.schemas.codec import encode
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.record import Record
from support.mutations import deployment_put
from support.projection import append_all, eventually, read_log, wait_until_folded
from support.projection_rows import ProjectionRows
from support.projectors import postgres_log, running_projector, some_records
from support.servers import fresh_database
from support.watching import (
    Change,
    Expected,
    Frame,
    Seen,
    Stream,
    Watcher,
    check_seen,
    expected_changes,
    positions_of,
    serving,
)

pytestmark = pytest.mark.postgres

PARTITIONS = 3
FILTERS = [
    {},
    {"family": "capsule"},
    {"scope": "c:bob:capsule:notes"},
    {"scope": "c:bob:capsule:notes", "prefix": "a"},
    {"family": "deployment", "namespace": "user"},
    {"scope": "d:one"},
    {"scope": "o:i1"},
    {"family": "orchestration", "prefix": "b"},
]


def wanted(query: dict[str, str], change: Change) -> bool:
    """The filter, said once more and plainly."""
    what, scope, namespace, key = (str(part) if part is not None else None for part in change[:4])
    assert scope is not None and key is not None
    if query.get("scope", scope) != scope:
        return False
    if "family" in query and query["family"][0] != scope[0]:
        return False
    if what == "cleared":
        prefix = query.get("prefix", "")
        return key.startswith(prefix) or prefix.startswith(key)
    return query.get("namespace", namespace) == namespace and key.startswith(query.get("prefix", ""))


def expected_of(records: dict[int, list[Record]], query: dict[str, str]) -> Expected:
    return expected_changes(records, PARTITIONS, wanted=lambda change: wanted(query, change))


def count_of(expected: Expected) -> int:
    return sum(map(len, expected.values()))


@pytest.mark.row("X10")
def test_every_watcher_sees_every_change_once_and_in_order(postgres_dsn: str) -> None:
    """Watchers of every filter, from before the first record on; half of them hang up again and again."""
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as log, running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
        with serving(postgres_dsn) as server:
            watchers = [
                (query, Watcher(lambda: server, chance=chance, query=query))
                for query in FILTERS
                for chance in (None, Random(len(query)))
            ]
            append_all(log, some_records(11, 360))
            records, _ = read_log(log)
            for query, watcher in watchers:
                expected = expected_of(records, query)
                assert count_of(expected) >= 3, query
                watcher.wait_for(count_of(expected))
                watcher.stop()
                check_seen(watcher.seen, expected)
            assert sum(watcher.connections for _, watcher in watchers) > 2 * len(watchers)


@pytest.mark.row("X10")
def test_from_every_position_the_rest_follows(postgres_dsn: str) -> None:
    """What was folded before: from the beginning, and from each id that a watcher may have kept."""
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as log, running_projector(log, postgres_dsn):
        append_all(log, some_records(12, 200))
        wait_until_folded(postgres_dsn, log)
        records, _ = read_log(log)
        with serving(postgres_dsn) as server:
            for query in (FILTERS[0], FILTERS[2], FILTERS[6]):
                expected = expected_of(records, query)
                whole = Watcher(lambda: server, query={**query, "after": "beginning"})
                whole.wait_for(count_of(expected))
                whole.stop()
                check_seen(whole.seen, expected)
                for number in range(0, len(whole.seen) - 1, 11):
                    stream = Stream(server, last_event_id=whole.seen[number].id, **query)
                    frames = iter(stream)
                    assert next(frames).id == whole.seen[number].id
                    first = next(frames)
                    stream.close()
                    following = whole.seen[number + 1]
                    if len(expected) == 1:
                        assert first.data["position"] == f"{following.partition}:{following.offset}"
                    resumed = Watcher(lambda: server, query={**query, "after": whole.seen[number].id})
                    resumed.wait_for(len(whole.seen) - number - 1)
                    resumed.stop()
                    rest = {place_of(each): each.changes for each in whole.seen[number + 1 :]}
                    assert {place_of(each): each.changes for each in resumed.seen} == rest


def place_of(seen: Seen) -> tuple[int, int]:
    return seen.partition, seen.offset


@pytest.mark.row("X10")
@pytest.mark.parametrize(
    "query",
    [
        {"scope": "c:bob:capsule:notes"},
        {"scope": "c:bob:capsule:notes", "prefix": "a"},
        {"scope": "d:one"},
        {"scope": "d:one", "namespace": "user", "prefix": "a"},
        {"scope": "o:i1"},
    ],
    ids=str,
)
def test_a_snapshot_is_of_one_position_while_the_scope_goes_on(
    postgres_dsn: str, query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of two entries, with changes between them; then everything that came after the position."""
    monkeypatch.setattr("kvfold.reads.snapshot_of_changes.CHANGES_RECORDS_PAGE", 2)
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as log, running_projector(log, postgres_dsn):
        append_all(log, some_records(13, 200))
        wait_until_folded(postgres_dsn, log)
        with serving(postgres_dsn) as server:
            read = WatchHub.snapshot_page
            written = iter(range(14, 1_000))

            async def write_then_read(hub: WatchHub, *arguments: Any) -> SnapshotPage:
                page = await read(hub, *arguments)
                await asyncio.to_thread(append_all, log, some_records(next(written), 25))
                await asyncio.to_thread(wait_until_folded, postgres_dsn, log)
                return page

            monkeypatch.setattr(WatchHub, "snapshot_page", write_then_read)
            frames = []
            stream = Stream(server, snapshot="true", **query)
            for frame in stream:
                frames.append(frame)
                if frame.event == "snapshot-end":
                    break
            stream.close()
            monkeypatch.undo()
            *puts, end = frames
            assert all(put.id is None for put in puts)
            assert end.id == end.data["position"]
            records, _ = read_log(log)
            assert [_told(put) for put in puts] == _held(records, query, positions_of(end.data["position"]))
            ((partition, offset),) = positions_of(end.data["position"]).items()
            rest = {
                p: [(o, changes) for o, changes in told if p == partition and o > offset]
                for p, told in expected_of(records, query).items()
            }
            watcher = Watcher(lambda: server, query={**query, "after": str(end.id)})
            watcher.wait_for(count_of(rest))
            watcher.stop()
            check_seen(watcher.seen, rest)


def _told(frame: Frame) -> tuple[object, ...]:
    return frame.data.get("namespace"), frame.data["key"], frame.data["version"], frame.data["value_base64"]


def _held(
    records: dict[int, list[Record]], query: dict[str, str], positions: dict[int, int]
) -> list[tuple[object, ...]]:
    """What the scope holds at the position: its changes up to there, played through."""
    held: dict[tuple[object, object], tuple[object, ...]] = {}
    for partition, told in expected_of(records, query).items():
        for offset, changes in told:
            if offset > positions.get(partition, -1):
                continue
            for what, _, namespace, key, version, _, value, _ in changes:
                if what == "put":
                    held[namespace, key] = (namespace, key, version, value)
                elif what == "delete":
                    held.pop((namespace, key), None)
                else:
                    for place in [place for place in held if str(place[1]).startswith(str(key))]:
                        del held[place]
    return [held[place] for place in sorted(held, key=lambda place: (str(place[0] or ""), str(place[1])))]


@pytest.mark.row("X10")
def test_a_reader_that_takes_nothing_costs_no_more_than_its_queue(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It falls behind, others do not wait for it, and when it reads again everything is there."""
    monkeypatch.setattr("kvfold.query_api.watch.hub.WATCH_QUEUE_BYTES_MAX", 64 * 1024)
    subscriptions = []
    opened = WatchHub.open

    def open_and_keep(hub: WatchHub, *arguments: Any) -> Subscription:
        subscriptions.append(opened(hub, *arguments))
        return subscriptions[-1]

    monkeypatch.setattr(WatchHub, "open", open_and_keep)
    value = bytes(100_000)
    puts = [deployment_put(f"k{number}", value, scope="d:one") for number in range(200)]
    place = partition_of(b"d:one", PARTITIONS)
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as log, running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
        with serving(postgres_dsn) as server:
            stalled = Stream(server, scope="d:one")
            frames = iter(stalled)
            assert next(frames).event == "progress"
            watcher = Watcher(lambda: server, query={"scope": "d:one"})
            append_all(log, [(place, encode(put)) for put in puts])
            watcher.wait_for(len(puts))
            watcher.stop()
            slow = subscriptions[0]
            assert slow.queued_bytes <= 64 * 1024 + 2 * len(value)
            assert slow.behind, "200 values of 100 kB fit into no queue"
            keys = [frame.data["key"] for frame in islice(frames, len(puts))]
            stalled.close()
            assert keys == [put.subject for put in puts]


@pytest.mark.row("X10")
def test_silence_is_broken_by_signs_of_life_and_only_real_positions_are_ids(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiq#272: a comment has no id; `progress` has, where something else moved on."""
    monkeypatch.setattr("kvfold.query_api.watch.routes.HEARTBEAT_S", 0.05)
    with postgres_log(postgres_dsn, partitions=1) as log, running_projector(log, postgres_dsn):
        append_all(log, [(0, encode(deployment_put("k", scope="d:one")))])
        wait_until_folded(postgres_dsn, log)
        with serving(postgres_dsn) as server:
            stream = Stream(server, scope="d:other")
            frames = iter(stream)
            assert next(frames) == Frame("progress", "0:0", {"position": "0:0"})
            append_all(log, [(0, encode(deployment_put("k", scope="d:one")))])
            # As far as the partition, though nothing of the scope changed.
            assert next(frames) == Frame("progress", "0:1", {"position": "0:1"})
            append_all(log, [(0, encode(deployment_put("k", scope="d:other")))])
            assert next(frame for frame in frames if frame.event != "progress").id == "0:2"
            eventually_commented(server)
            stream.close()


def eventually_commented(server: HttpServer) -> None:
    """A stream where nothing happens says so, and no more."""
    stream = Stream(server, scope="d:silent")
    lines = iter(stream.answer.readline, b"")
    assert any(line == b":\n" for line in lines)
    stream.close()


@pytest.mark.row("X10")
@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("scope=x:1", "malformed-scope"),
        ("scope=c:a", "malformed-scope"),
        ("scope=", "malformed-scope"),
        ("family=x", "malformed-family"),
        ("family=capsule&scope=d:one", "malformed-family"),
        ("family=capsule&namespace=user", "invalid-namespace"),
        ("namespace=", "invalid-namespace"),
        ("after=", "malformed-position"),
        ("after=now", "malformed-position"),
        ("after=9:1", "malformed-position"),
        ("scope=d:one&after=0:1", "malformed-position"),
        ("after=0:1,0:2", "malformed-position"),
        ("snapshot=yes&scope=d:one", "malformed-snapshot"),
        ("snapshot=true", "malformed-snapshot"),
        ("snapshot=true&scope=d:one&after=1:1", "malformed-snapshot"),
        ("unknown=1", "malformed-query"),
        ("prefix=" + "k" * 1_025, "malformed-prefix"),
    ],
)
def test_what_is_refused(empty_server: HttpServer, query: str, code: str) -> None:
    answer = httpx.get(f"{empty_server.url}/v1/watch?{query}", trust_env=False)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_head_has_the_headers_and_no_stream(empty_server: HttpServer) -> None:
    answer = httpx.head(f"{empty_server.url}/v1/watch", trust_env=False)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    metrics = httpx.get(f"{empty_server.url}/metrics", trust_env=False).text
    assert "\nkvfold_watchers 0.0\n" in metrics


@pytest.fixture(scope="module")
def empty_server(postgres_admin_dsn: str) -> Iterator[HttpServer]:
    """Over a projection of nothing, for what needs no more; tests share it."""
    with fresh_database(postgres_admin_dsn) as dsn:
        ProjectionRows(dsn).close()
        with serving(dsn) as server:
            yield server


@pytest.mark.slow
def test_two_thousand_watchers_share_one_listener_and_one_tail(postgres_dsn: str) -> None:
    """Memory by the watcher is bounded, and so are the queries: none is a watcher's own."""
    count = 2_000
    with postgres_log(postgres_dsn, partitions=1) as log, running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
        context = read_context(postgres_dsn, pool_size=4)
        with ExitStack() as stack:
            server = HttpServer(query_api_app(context), bound_socket("127.0.0.1", 0))
            server.start()
            stack.callback(server.stop)
            gc.collect()
            before = resident_bytes()
            streams = []
            for number in range(count):
                streams.append(Stream(server, scope=f"d:{number % 10}"))
                stack.callback(streams[-1].close)
            eventually(lambda: context.watches.live_count == count, "all of them live")
            grown = resident_bytes() - before
            print(f"{grown / count / 1024:.1f} KiB a watcher, the client's end of it included")
            assert grown < count * 100 * 1024
            assert context.watches.tail_count == 1
            reads = context.reader.pool.get_stats().get("requests_num", 0)
            puts = [deployment_put("k", b"%d" % n, scope="d:3") for n in range(20)]
            append_all(log, [(0, encode(put)) for put in puts])
            for stream in streams[3::10]:
                keys = [frame.id for frame in islice(iter(stream), len(puts) + 1)]
                assert keys[1:] == [f"0:{offset}" for offset in range(len(puts))]
            with psycopg.connect(postgres_dsn) as connection:
                listeners = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'kvfold-waiting' "
                    "AND datname = current_database()"
                ).fetchone()
            assert listeners == (1,)
            # Far fewer than watchers that got something; the net alone asks five times a second.
            assert context.reader.pool.get_stats().get("requests_num", 0) - reads < count


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
