"""Two releases at work on one log: they decide alike, and the raise of the format level stops the older one alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from kvfold.log.postgres import PostgresLog
from kvfold.schemas.codec import encode
from kvfold.schemas.record import NewRecord
from support.kvfold_process import KvfoldProcess, clean_environment
from support.mutations import (
    format_raised,
    instance_events,
    instance_pruned,
    instance_pruned_before,
    instance_started,
    key_set,
    scope_in,
)
from support.projection import (
    append_all,
    content,
    differences,
    eventually,
    fold_in_memory,
    folded_offsets,
    read_log,
    store_for,
    wait_until_folded,
)
from support.projectors import postgres_log, some_records

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.row("X12")]
PARTITIONS = 4
_NEXT: dict[str, object] = {"kind": "OrchestrationContinuedAsNew", "input": None}


def projector(owner: str, folder: Path, settings: Mapping[str, str], *, level: int | None) -> KvfoldProcess:
    """One of this release, or of an earlier one that knows `level`."""
    path = str(Path(__file__).parents[1])
    old = {} if level is None else {"KVFOLD_TEST_RELEASE": f"{level}:2", "PYTHONPATH": path}
    module = "kvfold.deploy.cli" if level is None else "support.earlier_release"
    environment = {**settings, **old, "KVFOLD_OWNER": owner}
    return KvfoldProcess("projector", environment=environment, output=folder / f"{owner}.log", module=module)


def held_by(dsn: str, owner: str) -> set[int]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT partition FROM kvfold_g1.claim WHERE owner = %s", (owner,)
        ).fetchall()
    return {row[0] for row in rows}


def pauses(dsn: str) -> dict[int, str]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return dict(connection.execute("SELECT partition, reason FROM kvfold_g1.pause").fetchall())


def prunes() -> list[tuple[int, NewRecord]]:
    """In every partition an instance with three executions, pruned by both versions of the type."""
    records = []
    for partition in range(PARTITIONS):
        scope = scope_in(partition, PARTITIONS, "o:pruned-{}")
        story = (
            instance_started(scope=scope),
            instance_events(key_set("a"), _NEXT, scope=scope),
            instance_events(key_set("b"), _NEXT, execution=2, scope=scope),
            instance_pruned([1], scope=scope),
            instance_pruned_before(3, scope=scope),
        )
        records += [(partition, encode(mutation)) for mutation in story]
    return records


def later_prunes() -> list[tuple[int, NewRecord]]:
    scopes = [scope_in(partition, PARTITIONS, "o:pruned-{}") for partition in range(PARTITIONS)]
    return [(n, encode(instance_pruned_before(3, scope=scope))) for n, scope in enumerate(scopes)]


def assert_folded_as_this_release_would(dsn: str, log: PostgresLog) -> None:
    wait_until_folded(dsn, log)
    expected = content(fold_in_memory(*read_log(log)), range(PARTITIONS))
    with closing(store_for(dsn)) as store:
        actual = content(store, range(PARTITIONS))
    assert differences(expected, actual) == {}


def outcomes_of_version_2(dsn: str) -> set[tuple[str, str | None]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT status, code FROM kvfold_g1.decision WHERE type LIKE '%pruned.v2' AND scope LIKE 'o:pruned-%'"
        ).fetchall()
    return set(rows)


def test_old_and_new_decide_alike_and_a_raise_pauses_the_old_one_until_its_upgrade(
    postgres_dsn: str, tmp_path: Path
) -> None:
    settings = {
        "KVFOLD_POSTGRES": postgres_dsn,
        "KVFOLD_TELEMETRY_PORT": "0",
        "KVFOLD_PARTITIONS": str(PARTITIONS),
    }
    with (
        postgres_log(postgres_dsn, partitions=PARTITIONS) as log,
        projector("old", tmp_path, settings, level=1) as old,
    ):
        old.wait_for_event("projector ready")
        with projector("new", tmp_path, settings, level=None) as new:
            new.wait_for_event("projector ready")
            eventually(lambda: len(held_by(postgres_dsn, "old")) == 2, "the partitions are shared")

            # Both at work on one log that holds records of the new type: unknown, to the new release as well.
            append_all(log, [*some_records(1, 200, partitions=PARTITIONS, level_max=1), *prunes()])
            assert_folded_as_this_release_would(postgres_dsn, log)
            assert outcomes_of_version_2(postgres_dsn) == {("rejected", "unknown-type")}

            # The command sees the old one and appends nothing.
            before = log.bounds(range(PARTITIONS))
            refused = kvfold("format", "raise", settings=settings)
            assert refused.returncode == 1 and "old (knows 1)" in refused.stderr, refused.stderr
            assert log.bounds(range(PARTITIONS)) == before

            # Somebody raises all the same. The old one stands still where it is, by name; the new one goes on.
            stuck = held_by(postgres_dsn, "old")
            raised = [format_raised(2, partition=n, partition_count=PARTITIONS) for n in range(PARTITIONS)]
            append_all(log, [(n, encode(mutation)) for n, mutation in enumerate(raised)])
            append_all(log, later_prunes())
            eventually(
                lambda: pauses(postgres_dsn) == dict.fromkeys(stuck, "format-level-ahead"), "the pauses"
            )
            eventually(
                lambda: all(
                    folded_offsets(postgres_dsn)[p] == log.bounds([p])[p].end
                    for p in set(range(PARTITIONS)) - stuck
                ),
                "the new one has folded its own",
            )
            assert all(folded_offsets(postgres_dsn)[p] == before[p].end for p in stuck)

            # The upgrade: the old one ends, one of this release starts in its place.
            assert old.terminate() == 0
            with projector("upgraded", tmp_path, settings, level=None) as upgraded:
                upgraded.wait_for_event("projector ready")
                assert_folded_as_this_release_would(postgres_dsn, log)
                eventually(lambda: pauses(postgres_dsn) == {}, "the pauses ended")
                assert outcomes_of_version_2(postgres_dsn) == {
                    ("rejected", "unknown-type"),
                    ("applied", None),
                }
                done = kvfold("format", "raise", settings=settings)
                assert done.returncode == 0, done.stderr


def test_an_old_projector_that_is_given_a_raised_partition_folds_nothing_of_it(
    postgres_dsn: str, tmp_path: Path
) -> None:
    """The raise was folded by another process: the old one never saw the record."""
    settings = {
        "KVFOLD_POSTGRES": postgres_dsn,
        "KVFOLD_TELEMETRY_PORT": "0",
        "KVFOLD_PARTITIONS": str(PARTITIONS),
    }
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as log:
        with projector("new", tmp_path, settings, level=None) as new:
            new.wait_for_event("projector ready")
            done = kvfold("format", "raise", settings=settings)
            assert done.returncode == 0, done.stderr
            assert new.terminate() == 0
        ends = {partition: bounds.end for partition, bounds in log.bounds(range(PARTITIONS)).items()}
        append_all(log, prunes())
        with projector("old", tmp_path, settings, level=1):
            eventually(
                lambda: pauses(postgres_dsn) == dict.fromkeys(range(PARTITIONS), "format-level-ahead"),
                "the pauses",
            )
            assert folded_offsets(postgres_dsn) == ends


def kvfold(*arguments: str, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvfold.deploy.cli", *arguments],
        env=clean_environment(settings),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
