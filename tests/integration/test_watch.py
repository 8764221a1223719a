"""Watching, over real Postgres and the real server: nothing is left out, nothing repeats, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from kvfold.deploy.http_server import HttpServer
from kvfold.schemas.record import Record
from support.projection import append_all, read_log, wait_until_folded
from support.projectors import postgres_log, running_projector, some_records
from support.watching import Change, Expected, Seen, Stream, Watcher, check_seen, expected_changes, serving

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


@pytest.fixture
def server(postgres_dsn: str) -> Iterator[HttpServer]:
    with serving(postgres_dsn) as running:
        yield running


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
                assert count_of(expected) > 3, query
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
