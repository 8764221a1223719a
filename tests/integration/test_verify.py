"""Verification: equal after any workload and under writes, one wrong byte is named, and nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from itertools import count
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from psycopg.pq import TransactionStatus

from kvfold.log.memory import MemoryLog
from kvfold.log.port import Log
from kvfold.projector import comparison, contents
from kvfold.projector.contents import ContentRow, content_rows
from kvfold.projector.generations import create_generation, list_generations
from kvfold.projector.scratch import scratch_generation
from kvfold.projector.supervision import ProjectorSettings
from kvfold.projector.tables import TABLES
from kvfold.projector.verify import Verification, VerifyOptions, verify
from kvfold.schemas.codec import encode
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import DEDUPE_WINDOW_MS
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.partitioning import partition_of
from support.cli import run_command
from support.mutations import (
    capsule_deleted,
    capsule_set,
    deployment_put,
    instance_events,
    instance_started,
    key_set,
    orchestration_record,
    turn,
    undeployed,
)
from support.projection import append_all, eventually, wait_until_folded
from support.projectors import postgres_log, running_projector, some_records

pytestmark = [pytest.mark.postgres, pytest.mark.row("X7")]
PARTITIONS = 3
CAPSULE = "c:carol:capsule:notes"
RUNTIME = "o:runtime-1"
Connection = psycopg.Connection[Any]


@pytest.fixture
def log(postgres_dsn: str) -> Iterator[Log]:
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as opened:
        yield opened


@pytest.fixture
def connection(postgres_dsn: str) -> Iterator[Connection]:
    with psycopg.connect(postgres_dsn, autocommit=True) as opened:
        yield opened


def verified(
    log: Log,
    connection: Connection,
    *,
    at: dict[int, int] | None = None,
    tell_scope: Callable[[str, str, str], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Verification:
    return verify(
        log,
        f"{connection.info.dsn} password={connection.info.password}",
        connection,
        options=VerifyOptions(at),
        settings=ProjectorSettings(owner="verify", claim_ms=5_000, turn_ms=50),
        tell_scope=tell_scope,
        should_stop=should_stop,
    )


def folded(log: Log, dsn: str, *, seed: int = 1) -> None:
    """A workload of all families in which every table has rows, and histories where they have them."""
    story = [
        *(capsule_set(key, b"one", scope=CAPSULE) for key in ("a", "b", "c")),
        *(capsule_set("a", b"two", scope=CAPSULE), capsule_deleted("b", scope=CAPSULE)),
        *(deployment_put(key, b"one") for key in ("a", "b")),
        *(deployment_put("a", b"two"), undeployed(), deployment_put("a", b"three")),
        *(instance_started(), instance_events(key_set("k", "1")), instance_events(key_set("k", "2"))),
    ]
    append_all(log, some_records(seed, 300))
    append_all(log, [(_partition(mutation.scope), encode(mutation)) for mutation in story])
    append_all(log, [(_partition(mutation.scope), encode(mutation)) for mutation in _runtime_story(log)])
    with running_projector(log, dsn):
        wait_until_folded(dsn, log)


def _runtime_story(log: Log) -> list[Mutation]:
    """A `runtime` instance that awaits an activity and a child, with an event that nobody has taken."""
    begun = encode(instance_started(mode="runtime", scope=RUNTIME))
    incarnation = log.append(_partition(RUNTIME), begun).result(10).offset
    asked = (
        {"kind": "ActivityScheduled", "name": "a"},
        {"kind": "ChildScheduled", "instance_id": "kid", "name": "n"},
    )
    raised = orchestration_record("event-raised", {"name": "go"}, scope=RUNTIME)
    return [turn(*asked, incarnation=incarnation, seen=incarnation, scope=RUNTIME), raised]


def _partition(scope: str) -> int:
    return partition_of(scope.encode(), PARTITIONS)


def test_every_table_equals_a_fresh_fold_after_a_workload_of_all_families(
    postgres_dsn: str, log: Log, connection: Connection
) -> None:
    folded(log, postgres_dsn)
    scopes: list[tuple[str, str, str]] = []
    result = verified(log, connection, tell_scope=lambda *each: scopes.append(each))
    assert result.is_equal, result.differences
    histories = {f"{name}_history" for name, spec in TABLES.items() if spec.has_history}
    assert result.tables.keys() == TABLES.keys() | histories, "every table has rows here"
    assert all(content.rows > 0 for content in result.tables.values())
    # Each scope of each table has a digest of its own.
    told = {(table, scope) for table, scope, _ in scopes}
    assert len(told) == len(scopes)
    assert {table for table, _ in told} == result.tables.keys() - {"decision", "mutation_id"}
    again = verified(log, connection)
    assert again.tables == result.tables
    assert [found.state for found in list_generations(connection)] == ["serving"]


PLANTED = {
    "capsule_entry": "value = set_byte(value, 0, get_byte(value, 0) # 1) WHERE key = 'a' AND scope LIKE 'c:carol%'",
    "capsule_entry_history": "sha256 = set_byte(sha256, 31, get_byte(sha256, 31) # 1) WHERE key = 'b' "
    "AND scope LIKE 'c:carol%'",
    "capsule_scope": "bytes = bytes + 1 WHERE scope = 'c:carol:capsule:notes'",
    "deployment_entry": "actor = 'x' WHERE scope = 'd:dep-1'",
    "deployment_entry_history": "time_ms = time_ms + 1 WHERE scope = 'd:dep-1' AND key = 'b'",
    "deployment_scope": "version_floor = version_floor + 1 WHERE scope = 'd:dep-1'",
    "orchestration_instance": "worker = worker || 'x' WHERE scope = 'o:order-17'",
    "orchestration_instance_history": "valid_to = valid_to + 1 WHERE scope = 'o:order-17' AND history_length = 1",
    "orchestration_execution": "kv_seed = '{ }' WHERE scope = 'o:order-17'",
    "orchestration_event": "data = data || ' ' WHERE scope = 'o:order-17' AND event_id = 1",
    "orchestration_queue": "events_waiting = 7 WHERE scope = 'o:runtime-1'",
    "orchestration_inbox": "data = data || ' ' WHERE scope = 'o:runtime-1'",
    "orchestration_task": "attempt = 2 WHERE scope = 'o:runtime-1' AND kind = 'activity'",
    "orchestration_child": "child = 'o:other' WHERE scope = 'o:runtime-1'",
    "orchestration_outbox": "target = 'o:other' WHERE scope = 'o:runtime-1'",
    "orchestration_kv": "value = '3' WHERE scope = 'o:order-17'",
    "orchestration_kv_history": "value = '3' WHERE scope = 'o:order-17'",
    "decision": "detail = 'x' WHERE scope = 'd:dep-1' AND type = 'kvfold.deployment.undeployed.v1'",
    "mutation_id": "fingerprint = set_byte(fingerprint, 0, get_byte(fingerprint, 0) # 1) "
    "WHERE scope = 'd:dep-1' AND record_offset = (SELECT max(record_offset) FROM kvfold_g1.mutation_id "
    "WHERE scope = 'd:dep-1')",
}


def test_one_wrong_byte_in_any_table_is_found_and_its_row_named(
    postgres_dsn: str, log: Log, connection: Connection
) -> None:
    folded(log, postgres_dsn)
    keys: dict[str, set[tuple[Any, ...]]] = {}
    for table, change in PLANTED.items():
        spec = TABLES[table.removesuffix("_history")]
        columns = [*spec.columns[: spec.key_size], *([spec.valid_from] if spec.has_history else [])]
        returned = ", ".join(f"{name}::text" if name in ("id",) else name for name in columns)
        rows = connection.execute(
            f"UPDATE kvfold_g1.{table} SET {change} RETURNING {returned}".encode()
        ).fetchall()
        assert len(rows) == 1, (table, rows)
        keys.setdefault(spec.name, set()).update(rows)
    result = verified(log, connection)
    found: dict[str, set[tuple[Any, ...]]] = {}
    for difference in result.differences:
        found.setdefault(difference.table, set()).add(difference.key)
        assert difference.folded != difference.serving
        assert {len(digest) for digest in (difference.folded, difference.serving) if digest} == {64}
    assert found == keys
    assert result.difference_count == len(PLANTED)


def test_rows_that_are_missing_and_rows_that_nobody_wrote_are_named(
    postgres_dsn: str, log: Log, connection: Connection
) -> None:
    folded(log, postgres_dsn)
    connection.execute(
        "DELETE FROM kvfold_g1.orchestration_event WHERE scope = 'o:order-17' AND event_id = 2"
    )
    connection.execute("DELETE FROM kvfold_g1.deployment_entry WHERE scope = 'd:dep-1'")
    connection.execute(
        "INSERT INTO kvfold_g1.capsule_entry SELECT scope, 'zz', version, value, sha256, actor, valid_from, time_ms "
        "FROM kvfold_g1.capsule_entry WHERE scope = 'c:carol:capsule:notes' AND key = 'a'"
    )
    result = verified(log, connection)
    sides = {
        (found.table, found.key[1]): (found.folded is None, found.serving is None)
        for found in result.differences
    }
    assert sides == {
        ("orchestration_event", 1): (False, True),
        ("deployment_entry", "user"): (False, True),
        ("capsule_entry", "zz"): (True, False),
    }


def test_the_state_of_a_partition_is_compared_too(
    postgres_dsn: str, log: Log, connection: Connection
) -> None:
    folded(log, postgres_dsn)
    connection.execute("UPDATE kvfold_g1.partition_offset SET time_ms = time_ms + 1 WHERE partition = 1")
    result = verified(log, connection)
    assert [(found.table, found.key) for found in result.differences] == [("partition_offset", (1,))]


def test_it_is_equal_while_every_scope_is_being_written(
    postgres_dsn: str, log: Log, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are superseded, scopes change and instances are deleted between any two pages."""
    monkeypatch.setattr(contents, "PAGE_ROWS", 40)
    contents._page_sql.cache_clear()
    seeds = count(100)

    def while_written(on: Connection, generation: int, table: str) -> Iterator[ContentRow]:
        for number, row in enumerate(content_rows(on, generation, table)):
            if generation == 1 and number % 100 == 0:
                append_all(log, some_records(next(seeds), 10))
            yield row

    monkeypatch.setattr(comparison, "content_rows", while_written)
    append_all(log, some_records(1, 300))
    with running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
        result = verified(log, connection)
    contents._page_sql.cache_clear()
    assert result.is_equal, result.differences
    assert result.unsettled_scopes == 0
    assert next(seeds) > 110, "it was written to all the while"


def test_a_wrong_byte_in_a_scope_that_changes_meanwhile_is_found(
    postgres_dsn: str, log: Log, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without a history are compared in a snapshot, with the fold brought up to it."""
    folded(log, postgres_dsn)
    connection.execute(
        f"UPDATE kvfold_g1.capsule_scope SET bytes = bytes + 1 WHERE scope = '{CAPSULE}'".encode()
    )
    before = {partition: offset - 1 for partition, offset in _offsets(connection).items()}
    values = count(1)

    def changed_meanwhile(on: Connection, generation: int, table: str) -> Iterator[ContentRow]:
        if (generation, table) == (1, "capsule_scope"):
            later = capsule_set("a", b"x" * next(values), scope=CAPSULE)
            append_all(log, [(_partition(CAPSULE), encode(later))])
            wait_until_folded(postgres_dsn, log)
        yield from content_rows(on, generation, table)

    monkeypatch.setattr(comparison, "content_rows", changed_meanwhile)
    with running_projector(log, postgres_dsn):
        result = verified(log, connection)
        assert [(found.table, found.key) for found in result.differences] == [("capsule_scope", (CAPSULE,))]
        # As of a given position it is known only that the scope has changed since.
        earlier = verified(log, connection, at=before)
        assert (earlier.difference_count, earlier.unsettled_scopes) == (0, 1)


def test_an_earlier_position_gives_what_held_there(
    postgres_dsn: str, log: Log, connection: Connection
) -> None:
    folded(log, postgres_dsn)
    then = verified(log, connection)
    append_all(log, some_records(2, 300))
    with running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
    now = verified(log, connection, at=dict(then.offsets))
    assert now.is_equal, now.differences
    assert now.offsets == then.offsets and now.tables == then.tables
    assert verified(log, connection).tables != then.tables
    with pytest.raises(InvalidError, match="is not folded yet"):
        verified(log, connection, at={0: _offsets(connection)[0]})
    with pytest.raises(InvalidError, match="no partition 3"):
        verified(log, connection, at={3: 0})


def _offsets(connection: Connection) -> dict[int, int]:
    return dict(
        connection.execute("SELECT partition, offset_next FROM kvfold_g1.partition_offset").fetchall()
    )


def test_what_retention_has_trimmed_is_not_missed(
    postgres_dsn: str, log: Log, connection: Connection
) -> None:
    folded(log, postgres_dsn)
    offsets = _offsets(connection)
    for table, column in (("capsule_entry", "capsule_from"), ("deployment_entry", "deployment_from")):
        # Horizons at the end of each partition: everything that ended before may be gone.
        connection.execute(
            f"DELETE FROM kvfold_g1.{table}_history WHERE valid_to < %s", (min(offsets.values()) // 2,)
        )
        connection.execute(f"UPDATE kvfold_g1.partition_offset SET {column} = offset_next / 2 + 1")
    result = verified(log, connection)
    assert result.is_equal, result.differences
    with pytest.raises(InvalidError, match="before what retention has kept"):
        verified(log, connection, at={0: 0})


def test_ids_out_of_the_window_may_be_gone_and_others_may_not(
    postgres_dsn: str, connection: Connection
) -> None:
    now = [1_700_000_000_000]
    log = MemoryLog(partition_count=1, clock=lambda: now[0])
    append_all(log, [(0, encode(capsule_set("old")))])
    now[0] += DEDUPE_WINDOW_MS + 1
    append_all(log, [(0, encode(capsule_set("new")))])
    with running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
    connection.execute("DELETE FROM kvfold_g1.mutation_id WHERE record_offset = 0")
    assert verified(log, connection).is_equal
    connection.execute("DELETE FROM kvfold_g1.mutation_id")
    result = verified(log, connection)
    assert [(found.table, found.serving) for found in result.differences] == [("mutation_id", None)]


def test_a_stop_leaves_nothing_behind(postgres_dsn: str, log: Log, connection: Connection) -> None:
    folded(log, postgres_dsn)
    with pytest.raises(CancelledError):
        verified(log, connection, should_stop=lambda: True)
    assert [found.state for found in list_generations(connection)] == ["serving"]
    schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'kvfold_g%'").fetchall()
    assert schemas == [("kvfold_g1",)]


def test_what_a_killed_verification_left_is_dropped_by_the_next_one_and_what_runs_is_not(
    postgres_dsn: str, log: Log, connection: Connection
) -> None:
    folded(log, postgres_dsn)
    orphan = create_generation(connection, "scratch")
    with (
        psycopg.connect(postgres_dsn, autocommit=True) as other,
        scratch_generation(other) as running,
    ):
        assert verified(log, connection).is_equal
        assert [(found.id, found.state) for found in list_generations(connection)] == [
            (1, "serving"),
            (running, "scratch"),
        ]
    assert orphan < running


def test_no_transaction_is_open_between_pages(
    postgres_dsn: str, log: Log, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded(log, postgres_dsn)
    monkeypatch.setattr(contents, "PAGE_ROWS", 5)
    contents._page_sql.cache_clear()
    for table in TABLES:
        rows = [row.key for row in content_rows(connection, 1, table) if _is_idle(connection)]
        assert rows == sorted(rows) and len(set(rows)) == len(rows)
        count = connection.execute(f"SELECT count(*) FROM kvfold_g1.{table}".encode()).fetchone()
        assert count is not None and len(rows) >= count[0]
    contents._page_sql.cache_clear()


def _is_idle(connection: Connection) -> bool:
    assert connection.info.transaction_status is TransactionStatus.IDLE
    return True


def test_the_command_and_where_its_result_is_seen(
    postgres_dsn: str, log: Log, connection: Connection
) -> None:
    folded(log, postgres_dsn)
    settings = {"KVFOLD_POSTGRES": postgres_dsn, "KVFOLD_PARTITIONS": str(PARTITIONS)}
    result = run_command("verify", "--rate", "100000", "--json", environment=settings)
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["equal"] and told["generation"] == 1 and told["tables"]["decision"]["rows"] > 300
    connection.execute("UPDATE kvfold_g1.deployment_entry SET value = 'thrEe' WHERE scope = 'd:dep-1'")
    result = run_command("verify", environment=settings)
    assert result.exit_code == 1
    assert 'deployment_entry ["d:dep-1", "user", "a"' in result.stdout
    assert "1 rows differ" in result.stderr
    assert "thrEe" not in result.stdout + result.stderr
    shown = json.loads(run_command("generations", "--json", environment=settings).stdout)
    assert shown["verification"]["difference_count"] == 1
    with running_projector(log, postgres_dsn) as projector:
        registry = CollectorRegistry()
        registry.register(projector.telemetry)
        eventually(
            lambda: b'kvfold_verified_differences{generation="1"} 1.0' in generate_latest(registry),
            "the metric",
        )
        assert b'kvfold_verified_timestamp_seconds{generation="1"}' in generate_latest(registry)
