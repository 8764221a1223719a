"""Raising the log's format level: who is asked first, what is appended, and what an interrupted raise leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from kvfold.log.postgres import PostgresLog
from kvfold.projector import ownership
from kvfold.projector.format_level import FormatRefusedError, format_level, raise_format_level
from kvfold.schemas.codec import encode
from kvfold.schemas.errors import OutcomeUnknownError, PartitionPausedError
from support.cli import run_command
from support.mutations import format_raised, instance_pruned_before, instance_started, scope_in
from support.projection import append_all, eventually, set_up, wait_until_folded
from support.projectors import postgres_log, running_projector

pytestmark = pytest.mark.postgres
PARTITIONS = 3


@pytest.fixture
def log(postgres_dsn: str) -> Iterator[PostgresLog]:
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as opened:
        yield opened


@pytest.fixture
def connection(postgres_dsn: str, log: PostgresLog) -> Iterator[psycopg.Connection[Any]]:
    set_up(postgres_dsn, log)
    with psycopg.connect(postgres_dsn, autocommit=True) as opened:
        yield opened


def ends(log: PostgresLog) -> list[int]:
    return [bounds.end for bounds in log.bounds(range(PARTITIONS)).values()]


def raises(connection: psycopg.Connection[Any]) -> list[tuple[int, str]]:
    """Every record that was meant to raise a level, with its outcome."""
    return connection.execute(
        "SELECT partition, status FROM kvfold_g1.decision WHERE type = 'kvfold.system.format-raised.v1' ORDER BY 1, 2"
    ).fetchall()


@contextmanager
def somebody_that_knows_the_level(dsn: str) -> Iterator[None]:
    """A projector that is alive and folds nothing."""
    name = "kvfold-control someone"
    with psycopg.connect(dsn, application_name=name, autocommit=True) as session:
        session.execute(
            "INSERT INTO kvfold.projector VALUES ('someone', 2, clock_timestamp() + interval '1 day')"
        )
        yield


@pytest.mark.row("X12")
def test_a_raise_is_one_record_a_partition_and_from_then_on_the_new_types_count(
    postgres_dsn: str, log: PostgresLog, connection: psycopg.Connection[Any]
) -> None:
    scope = scope_in(1, PARTITIONS, "o:{}")
    append_all(log, [(1, encode(instance_started(scope=scope)))])
    with running_projector(log, postgres_dsn):
        append_all(log, [(1, encode(instance_pruned_before(1, scope=scope, id_=None)))])
        eventually(lambda: list(format_level(connection).projectors.values()) == [2], "the projector said it")
        state = raise_format_level(log, connection)
        assert state.partitions == dict.fromkeys(range(PARTITIONS), 2)
        append_all(log, [(1, encode(instance_pruned_before(1, scope=scope)))])
        raise_format_level(log, connection)
        wait_until_folded(postgres_dsn, log)
    assert raises(connection) == [(partition, "applied") for partition in range(PARTITIONS)]
    codes = connection.execute(
        "SELECT code FROM kvfold_g1.decision WHERE type LIKE '%pruned.v2' ORDER BY record_offset"
    ).fetchall()
    assert codes == [("unknown-type",), (None,)]


def test_nothing_is_raised_where_no_projector_runs(
    log: PostgresLog, connection: psycopg.Connection[Any]
) -> None:
    with pytest.raises(FormatRefusedError, match="no projector runs"):
        raise_format_level(log, connection)
    assert ends(log) == [0] * PARTITIONS


def test_nothing_is_raised_while_a_projector_runs_that_does_not_know_the_level(
    postgres_dsn: str,
    log: PostgresLog,
    connection: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_projector(log, postgres_dsn):
        eventually(lambda: 2 in format_level(connection).projectors.values(), "the new one said it")
        monkeypatch.setattr(ownership, "FORMAT_LEVEL", 1)
        with running_projector(log, postgres_dsn) as old:
            owner = old._settings.owner
            eventually(lambda: format_level(connection).projectors.get(owner) == 1, "the old one said it")
            with pytest.raises(FormatRefusedError, match=rf"{owner} \(knows 1\)"):
                raise_format_level(log, connection)
        assert ends(log) == [0] * PARTITIONS


def test_a_projector_of_a_release_that_says_nothing_counts_as_one_that_knows_nothing(
    postgres_dsn: str, log: PostgresLog, connection: psycopg.Connection[Any]
) -> None:
    with (
        running_projector(log, postgres_dsn),
        psycopg.connect(postgres_dsn, application_name="kvfold-control ancient"),
        pytest.raises(FormatRefusedError, match=r"ancient \(an older release\)"),
    ):
        eventually(lambda: 2 in format_level(connection).projectors.values(), "the new one said it")
        raise_format_level(log, connection)
    assert ends(log) == [0] * PARTITIONS


def test_a_raise_that_was_interrupted_goes_on(
    postgres_dsn: str, log: PostgresLog, connection: psycopg.Connection[Any]
) -> None:
    raised = format_raised(2, partition=1, partition_count=PARTITIONS)
    append_all(log, [(1, encode(raised))])
    with running_projector(log, postgres_dsn):
        eventually(lambda: format_level(connection).partitions[1] == 2, "one partition is raised")
    assert format_level(connection).level == 1
    with (
        somebody_that_knows_the_level(postgres_dsn),
        pytest.raises(OutcomeUnknownError, match="the same command goes on"),
    ):
        raise_format_level(log, connection, should_stop=lambda: True)
    with running_projector(log, postgres_dsn):
        eventually(lambda: 2 in format_level(connection).projectors.values(), "it said it")
        raise_format_level(log, connection)
        wait_until_folded(postgres_dsn, log)
    assert format_level(connection).level == 2
    # What the interrupted one appended and the next one appends again is one record and its repeat.
    first = connection.execute(
        "SELECT partition, count(DISTINCT coalesce(repeat_of, record_offset)) FROM kvfold_g1.decision "
        "WHERE type = 'kvfold.system.format-raised.v1' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert first == [(0, 1), (1, 1), (2, 1)]


def test_a_partition_that_stands_still_is_named(
    postgres_dsn: str, log: PostgresLog, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("INSERT INTO kvfold_g1.pause (partition, reason, detail) VALUES (2, 'bad-thing', '')")
    with (
        somebody_that_knows_the_level(postgres_dsn),
        pytest.raises(PartitionPausedError, match=r"partition 2 is paused \(bad-thing\)"),
    ):
        raise_format_level(log, connection)


def test_a_level_is_never_lowered_and_never_above_the_release(
    log: PostgresLog, connection: psycopg.Connection[Any]
) -> None:
    with pytest.raises(FormatRefusedError, match="this release knows format level 2, and 3 is above it"):
        raise_format_level(log, connection, level=3)
    connection.execute("UPDATE kvfold_g1.partition_offset SET format_level = 2 WHERE partition = 0")
    with pytest.raises(FormatRefusedError, match="never lowered"):
        raise_format_level(log, connection, level=1)


def test_the_commands(postgres_dsn: str, log: PostgresLog) -> None:
    settings = {"KVFOLD_POSTGRES": postgres_dsn, "KVFOLD_PARTITIONS": str(PARTITIONS)}
    early = run_command("format", "show", environment=settings)
    assert early.exit_code == 3 and "has a projector been started?" in early.stderr
    set_up(postgres_dsn, log)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE kvfold.projector")
    old = run_command("format", "show", environment=settings)
    assert old.exit_code == 1 and "no projector of this release has run" in old.stderr
    with running_projector(log, postgres_dsn) as projector:
        owner = projector._settings.owner
        eventually(
            lambda: f"{owner} knows 2" in run_command("format", "show", environment=settings).stdout, "said"
        )
        result = run_command("format", "raise", "--json", environment=settings)
        assert result.exit_code == 0, result.stderr
        told = json.loads(result.stdout)
        assert (told["level"], told["release_level"]) == (2, 2)
        assert told["partitions"] == {"0": 2, "1": 2, "2": 2} and told["projectors"] == {owner: 2}
    refused = run_command("format", "raise", environment=settings)
    assert refused.exit_code == 0, "there is nothing left to raise"
