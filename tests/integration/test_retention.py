"""Retention of the past: trimmed by projectors, behind one horizon a family, and nothing else is (rows X8, X9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from kvfold.projector.ownership import Claims
from kvfold.projector.postgres_store import connect_for_folding
from kvfold.projector.retention import retention, set_retention
from kvfold.schemas.limits import DEDUPE_WINDOW_MS
from kvfold.schemas.types import Family
from support.past import PARTITIONS, Past, folded_past

pytestmark = pytest.mark.postgres

FAMILIES = (Family.CAPSULE, Family.DEPLOYMENT, Family.ORCHESTRATION)
HISTORIES = {
    Family.CAPSULE: ("capsule_entry_history",),
    Family.DEPLOYMENT: ("deployment_entry_history",),
    Family.ORCHESTRATION: ("orchestration_kv_history", "orchestration_instance_history"),
}
KEEP_MS = 150_000


@pytest.fixture
def past(postgres_admin_dsn: str) -> Iterator[Past]:
    with folded_past(postgres_admin_dsn, seed=31, count=400) as folded:
        yield folded


@pytest.fixture
def connection(past: Past) -> Iterator[psycopg.Connection]:
    with psycopg.connect(past.dsn, autocommit=True) as opened:
        yield opened


def trim(past: Past) -> None:
    """As a projector does at its turns, until there is nothing left."""
    claims = Claims(
        lambda: connect_for_folding(past.dsn, transaction_timeout_ms=20_000, name="trimming"),
        generation=1,
        owner="test",
        claim_ms=10_000,
        partition_count=PARTITIONS,
    )
    for partition in range(PARTITIONS):
        while claims.trim_ids(partition) | claims.trim_past(partition):
            pass
    claims.close()


def contents(connection: psycopg.Connection, table: str) -> list[dict[str, Any]]:
    cursor = connection.cursor(row_factory=dict_row)
    return sorted(cursor.execute(f"SELECT * FROM kvfold_g1.{table}".encode()).fetchall(), key=repr)


def horizons(connection: psycopg.Connection, family: Family) -> dict[int, int]:
    statement = f"SELECT partition, {family}_from FROM kvfold_g1.partition_offset"
    return dict(connection.execute(statement.encode()).fetchall())


def newest(past: Past, partition: int) -> int:
    """The partition's effective time."""
    return past.effective_ms[partition][-1][1]


@pytest.mark.row("X8", "X9")
@pytest.mark.parametrize("family", FAMILIES)
def test_what_old_records_replaced_goes_and_nothing_else(
    past: Past, connection: psycopg.Connection, family: Family
) -> None:
    tables = [name for names in HISTORIES.values() for name in names]
    tables += ["capsule_entry", "deployment_entry", "orchestration_kv", "orchestration_instance", "decision"]
    before = {table: contents(connection, table) for table in tables}
    set_retention(connection, family, KEEP_MS)
    trim(past)
    for partition, horizon in horizons(connection, family).items():
        assert horizon == 1 + max(
            o for o, at in past.effective_ms[partition] if at < newest(past, partition) - KEEP_MS
        )
    kept = horizons(connection, family)
    for table in tables:
        if table not in HISTORIES[family]:
            assert contents(connection, table) == before[table], table
            continue
        expected = [row for row in before[table] if row["valid_to"] >= kept[past.partition(row["scope"])]]
        assert 0 < len(expected) < len(before[table]), "the workload has rows on both sides"
        assert contents(connection, table) == expected
    assert all(set(horizons(connection, other).values()) == {0} for other in FAMILIES if other is not family)


@pytest.mark.row("X8")
def test_the_past_that_is_kept_reads_as_before(past: Past, connection: psycopg.Connection) -> None:
    number = past.partition("d:one")
    answers = {}
    for offset in past.offsets(number, every=5):
        target = f"/deployments/one/objects?namespace=user&as_of={number}:{offset}"
        answers[offset] = (target, past.api.get(target).json)
    set_retention(connection, Family.DEPLOYMENT, KEEP_MS)
    trim(past)
    horizon = horizons(connection, Family.DEPLOYMENT)[number]
    statuses = set()
    for offset, (target, before) in answers.items():
        answered = past.api.get(target)
        statuses.add(answered.status)
        if offset < horizon - 1:
            assert (answered.status, answered.code) == (410, "gone")
        else:
            assert (answered.status, answered.json) == (200, before)
    assert statuses == {200, 410}
    assert past.api.get("/v1/history/deployment/d:one").json["kept_from"] == f"{number}:{horizon}"


@pytest.mark.row("X9", "X4")
def test_decisions_go_when_no_family_and_no_repeat_needs_them(
    past: Past, connection: psycopg.Connection
) -> None:
    for family in FAMILIES[:2]:
        set_retention(connection, family, 0)
    trim(past)
    before = contents(connection, "decision")
    assert len(before) == sum(len(records) for records in past.records.values()), "one family keeps all"
    set_retention(connection, FAMILIES[2], 0)
    trim(past)
    assert contents(connection, "decision") == before, "repeats are found for seven days"
    connection.execute(
        b"UPDATE kvfold_g1.partition_offset SET time_ms = time_ms + %s", (DEDUPE_WINDOW_MS + 100_000,)
    )
    trim(past)
    last = {partition: times[-1][0] for partition, times in past.effective_ms.items()}
    found = connection.execute(
        "SELECT partition, decisions_from, ids_from, capsule_from FROM kvfold_g1.partition_offset"
    ).fetchall()
    for partition, decisions_from, ids_from, capsule_from in found:
        assert 0 < decisions_from <= min(ids_from, capsule_from) <= last[partition] + 1
    kept = {row[0]: row[1] for row in found}
    rest = [row for row in before if row["record_offset"] >= kept[row["partition"]]]
    assert len(rest) < len(before)
    assert contents(connection, "decision") == rest


def test_retention_is_kept_outside_the_generations(connection: psycopg.Connection) -> None:
    assert set(retention(connection).values()) == {None}
    set_retention(connection, Family.CAPSULE, 5)
    set_retention(connection, Family.CAPSULE, 7)
    assert retention(connection)[Family.CAPSULE] == 7
    set_retention(connection, Family.CAPSULE, None)
    assert set(retention(connection).values()) == {None}
