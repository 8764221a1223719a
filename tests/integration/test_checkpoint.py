"""Checkpoints: what is folded from one is what the whole log folds to, and a file that is not whole is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition

from kvfold.log.kafka import KafkaLog
from kvfold.log.port import Log
from kvfold.projector import checkpoint as checkpoints
from kvfold.projector.checkpoint import (
    CheckpointError,
    load_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from kvfold.projector.generations import list_generations
from kvfold.projector.replaying import replay
from kvfold.projector.scratch import scratch_generation
from kvfold.projector.supervision import ProjectorSettings
from support.cli import run_command
from support.projection import (
    append_all,
    content,
    differences,
    fold_in_memory,
    read_log,
    store_for,
    wait_until_folded,
)
from support.projectors import kafka_log, postgres_log, running_projector, some_records
from support.servers import fresh_database

pytestmark = [pytest.mark.postgres, pytest.mark.row("X6")]
PARTITIONS = 3
Connection = psycopg.Connection[Any]


@pytest.fixture
def log(postgres_dsn: str) -> Iterator[Log]:
    with postgres_log(postgres_dsn, partitions=PARTITIONS) as opened:
        append_all(opened, some_records(1, 400))
        yield opened


@pytest.fixture
def connection(postgres_dsn: str) -> Iterator[Connection]:
    with psycopg.connect(postgres_dsn, autocommit=True) as opened:
        yield opened


def folded(log: Log, dsn: str) -> None:
    with running_projector(log, dsn):
        wait_until_folded(dsn, log)


def settings_of(dsn: str, **more: str) -> dict[str, str]:
    return {"KVFOLD_POSTGRES": dsn, "KVFOLD_PARTITIONS": str(PARTITIONS), **more}


def assert_same_as_a_fold_of_the_log(log: Log, dsn: str, generation: int) -> None:
    with closing(store_for(dsn, generation=generation)) as store:
        actual = content(store, range(PARTITIONS))
    assert differences(content(fold_in_memory(*read_log(log)), range(PARTITIONS)), actual) == {}


def test_what_is_folded_from_a_checkpoint_is_what_the_whole_log_folds_to(
    postgres_dsn: str, log: Log, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_PAGE_ROWS", 7)
    folded(log, postgres_dsn)
    file = tmp_path / "projection"
    written = write_checkpoint(connection, 1, log.describe(), file)
    assert read_checkpoint(file) == written
    assert [path.name for path in tmp_path.iterdir()] == ["projection"]
    assert file.stat().st_mode & 0o077 == 0, "it holds every value"
    append_all(log, some_records(2, 400))
    _, ends = read_log(log)
    with scratch_generation(connection) as generation:
        # What an interrupted load has left is gone before the next one begins.
        connection.execute(
            f"INSERT INTO kvfold_g{generation}.capsule_scope VALUES ('c:left:capsule:over', 1, 1, 1)".encode()
        )
        load_checkpoint(connection, generation, written)
        settings = ProjectorSettings(owner="checkpoint", claim_ms=5_000, turn_ms=50)
        replay(log, postgres_dsn, generation=generation, until=ends, settings=settings)
        assert_same_as_a_fold_of_the_log(log, postgres_dsn, generation)


def test_a_file_that_is_not_whole_is_refused(
    postgres_dsn: str, log: Log, connection: Connection, tmp_path: Path
) -> None:
    folded(log, postgres_dsn)
    file = tmp_path / "projection"
    write_checkpoint(connection, 1, log.describe(), file)
    good = file.read_bytes()
    damaged = [good[:cut] for cut in (0, 4, 100, len(good) // 2, len(good) - 1)]
    damaged += [good + b"\x00"]
    for place in (0, 3, 7, len(good) // 3, len(good) // 2, len(good) - 40, len(good) - 1):
        damaged.append(good[:place] + bytes((good[place] ^ 1,)) + good[place + 1 :])
    for bad in damaged:
        file.write_bytes(bad)
        with pytest.raises(CheckpointError):
            read_checkpoint(file)
    file.write_bytes(good.replace(b'"kvfold_checkpoint": 1', b'"kvfold_checkpoint": 2'))
    with pytest.raises(CheckpointError, match="no checkpoint of format 1"):
        read_checkpoint(file)
    result = run_command("checkpoint", "show", str(file))
    assert result.exit_code == 1 and "no checkpoint of format 1" in result.stderr


def test_a_file_is_whole_under_its_name_or_as_it_was(
    postgres_dsn: str, log: Log, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded(log, postgres_dsn)
    file = tmp_path / "projection"
    file.write_bytes(b"the one before")

    def breaks(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoints, "_write_table", breaks)
    with pytest.raises(OSError, match="no space"):
        write_checkpoint(connection, 1, log.describe(), file)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
        ("projection", b"the one before")
    ]


def test_only_a_verified_projection_is_written(
    postgres_dsn: str, log: Log, connection: Connection, tmp_path: Path
) -> None:
    folded(log, postgres_dsn)
    connection.execute("UPDATE kvfold_g1.decision SET detail = 'x' WHERE partition = 0 AND record_offset = 0")
    file = tmp_path / "projection"
    result = run_command("checkpoint", "write", str(file), environment=settings_of(postgres_dsn))
    assert result.exit_code == 1 and "1 rows of generation 1 differ" in result.stderr
    assert list(tmp_path.iterdir()) == []
    assert [found.state for found in list_generations(connection)] == ["serving"]


def test_a_checkpoint_of_another_log_is_refused(
    postgres_dsn: str, log: Log, connection: Connection, tmp_path: Path
) -> None:
    folded(log, postgres_dsn)
    file = tmp_path / "projection"
    write_checkpoint(connection, 1, log.describe(), file)
    with fresh_database(postgres_dsn) as other, postgres_log(other, partitions=PARTITIONS) as elsewhere:
        append_all(elsewhere, some_records(1, 400))
        folded(elsewhere, other)
        for command in ("rebuild", "verify"):
            result = run_command(command, "--from-checkpoint", str(file), environment=settings_of(other))
            assert result.exit_code == 1 and "is of the postgres log" in result.stderr, result.stderr


@pytest.mark.kafka
def test_a_log_whose_oldest_records_are_gone_is_rebuilt_and_verified_from_a_checkpoint_that_covers_them(
    postgres_dsn: str, kafka_bootstrap: str, tmp_path: Path
) -> None:
    with kafka_log(kafka_bootstrap, partitions=PARTITIONS) as log, running_projector(log, postgres_dsn):
        topic = log.describe().name
        settings = settings_of(postgres_dsn, KVFOLD_KAFKA=kafka_bootstrap, KVFOLD_TOPIC=topic)
        early, late = tmp_path / "early", tmp_path / "late"
        append_all(log, some_records(1, 200))
        wait_until_folded(postgres_dsn, log)
        assert run_command("checkpoint", "write", str(early), environment=settings).exit_code == 0
        append_all(log, some_records(2, 200))
        wait_until_folded(postgres_dsn, log)
        done = run_command(
            "checkpoint", "write", str(late), "--from-checkpoint", str(early), environment=settings
        )
        assert done.exit_code == 0, done.stderr
        whole = read_log(log)
        _delete_records(kafka_bootstrap, late, settings)
        append_all(log, some_records(3, 200))
        wait_until_folded(postgres_dsn, log)

        # Without a checkpoint, and from one that does not cover what is gone, nothing begins.
        for arguments in (
            ("rebuild",),
            ("verify",),
            ("rebuild", "--from-checkpoint", str(early)),
            ("verify", "--from-checkpoint", str(early)),
        ):
            refused = run_command(*arguments, environment=settings)
            assert refused.exit_code == 1, (arguments, refused.stderr)
        listed = run_command("generations", "--json", environment=settings).stdout.splitlines()
        assert [json.loads(line)["state"] for line in listed] == ["serving"]

        verified = run_command("verify", "--from-checkpoint", str(late), "--json", environment=settings)
        assert verified.exit_code == 0, verified.stderr
        rebuilt = run_command("rebuild", "--from-checkpoint", str(late), "--json", environment=settings)
        assert rebuilt.exit_code == 0, rebuilt.stderr
        generation = json.loads(rebuilt.stdout)["generation"]
        _assert_equals(log, postgres_dsn, generation, whole)


def _assert_equals(log: KafkaLog, dsn: str, generation: int, whole: tuple[Any, Any]) -> None:
    """The generation is what the log would fold to if all of it were there still."""
    records, ends = {partition: list(kept) for partition, kept in whole[0].items()}, dict(whole[1])
    reader = log.reader()
    reader.assign(ends)
    bounds = log.bounds(range(PARTITIONS))
    while any(ends[partition] < bounds[partition].stable_end for partition in ends):
        for batch in reader.poll(timeout_ms=200, records_max=1_000, bytes_max=8 << 20):
            records[batch.partition].extend(batch.records)
            ends[batch.partition] = batch.offset_next
    reader.close()
    with closing(store_for(dsn, generation=generation)) as store:
        actual = content(store, range(PARTITIONS))
    assert differences(content(fold_in_memory(records, ends), range(PARTITIONS)), actual) == {}


def _delete_records(bootstrap: str, checkpoint: Path, settings: dict[str, str]) -> None:
    """As an operator does with kafka-delete-records, from what `checkpoint show` prints."""
    shown = run_command("checkpoint", "show", str(checkpoint), "--delete-records", environment=settings)
    assert shown.exit_code == 0, shown.stderr
    wanted = json.loads(shown.stdout)["partitions"]
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.delete_records(
            {TopicPartition(each["topic"], each["partition"]): each["offset"] for each in wanted}
        )
    finally:
        admin.close()
