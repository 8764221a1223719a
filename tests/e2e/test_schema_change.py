"""A table changes from one release to the next: the old one serves, the new one rebuilds, swaps, and retires it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kvfold.log.postgres import PostgresLog
from kvfold.projector.postgres_store import PostgresStore, connect_for_folding
from kvfold.schemas.codec import encode
from kvfold.schemas.partitioning import partition_of
from support.kvfold_process import KvfoldProcess, clean_environment
from support.mutations import deployment_put
from support.projection import append_all, content, differences, eventually, fold_in_memory, read_log
from support.projectors import postgres_log, some_records

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.row("X6")]
PARTITIONS = 4
SCOPE = "d:shop"
OBJECTS = "/deployments/shop/objects?namespace=user"


class Releases:
    """Processes of both releases over one database."""

    def __init__(self, dsn: str, folder: Path, parts: ExitStack) -> None:
        self._folder = folder
        self._parts = parts
        self.settings = {
            "KVFOLD_POSTGRES": dsn,
            "KVFOLD_PARTITIONS": str(PARTITIONS),
            "KVFOLD_PORT": "0",
            "KVFOLD_TELEMETRY_PORT": "0",
        }

    def start(self, command: str, name: str, *, old: bool = False) -> KvfoldProcess:
        """A process that is ended with the test."""
        environment: Mapping[str, str] = {**self.settings, "KVFOLD_OWNER": name}
        module = "kvfold.deploy.cli"
        if old:
            module = "support.earlier_release"
            release = {"KVFOLD_TEST_RELEASE": "2:1", "PYTHONPATH": str(Path(__file__).parents[1])}
            environment = {**environment, **release}
        output = self._folder / f"{name}.log"
        process = KvfoldProcess(command, environment=environment, output=output, module=module)
        self._parts.enter_context(process)
        process.wait_for_event("projector ready" if command == "projector" else "server started")
        return process

    def run(self, *arguments: str, code: int = 0) -> str:
        """A command of the new release."""
        result = subprocess.run(
            [sys.executable, "-m", "kvfold.deploy.cli", *arguments],
            env=clean_environment(self.settings),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == code, result.stderr
        return result.stdout


def objects(url: str, *, has_past: bool = False) -> dict[str, str | None]:
    """Each object's digest, as a listing has it; with `has_past` that of the same moment as of its position, too."""
    answer = httpx.get(url + OBJECTS, timeout=30)
    assert answer.status_code == 200, answer.text
    items = answer.json()["objects"]
    if has_past:
        position = answer.headers["X-Kvfold-Position"]
        past = httpx.get(f"{url}{OBJECTS}&as_of={position}", timeout=30)
        assert past.status_code == 200, past.text
        assert past.json()["objects"] == items
    return {item["key"]: item["sha256"] for item in items}


def put(log: PostgresLog, *keys: str) -> dict[str, str | None]:
    """Appends values; gives their digests."""
    partition = partition_of(SCOPE.encode(), PARTITIONS)
    append_all(log, [(partition, encode(deployment_put(key, key.encode() * 3, scope=SCOPE))) for key in keys])
    return {key: hashlib.sha256(key.encode() * 3).hexdigest() for key in keys}


def generations(releases: Releases) -> dict[int, tuple[str, int]]:
    found: list[dict[str, Any]] = [
        json.loads(line) for line in releases.run("generations", "--json").splitlines()
    ]
    return {view["id"]: (view["state"], view["schema_version"]) for view in found}


def assert_equals_a_fold_in_memory(dsn: str, log: PostgresLog, generation: int) -> None:
    records, offsets = read_log(log)

    def folded() -> bool:
        with psycopg.connect(dsn, autocommit=True) as connection:
            found: dict[int, int] = dict(
                connection.execute(
                    f"SELECT partition, offset_next FROM kvfold_g{generation}.partition_offset"
                ).fetchall()
            )
        return all(found[partition] >= offset for partition, offset in offsets.items())

    eventually(folded, f"generation {generation} folded")
    connect = connect_for_folding(dsn, transaction_timeout_ms=20_000, name="kvfold-fold test")
    with closing(PostgresStore(lambda: connect, generation)) as store:
        actual = content(store, range(PARTITIONS))
    assert differences(content(fold_in_memory(records, offsets), range(PARTITIONS)), actual) == {}


def test_the_old_release_serves_while_the_new_one_rebuilds_swaps_and_retires_it(
    postgres_dsn: str, tmp_path: Path
) -> None:
    with ExitStack() as parts:
        log = parts.enter_context(postgres_log(postgres_dsn, partitions=PARTITIONS))
        releases = Releases(postgres_dsn, tmp_path, parts)
        old = releases.start("projector", "old", old=True)
        old_reads = releases.start("query-api", "old-reads", old=True)
        old_url = old_reads.wait_until_serving()
        append_all(log, some_records(1, 200, partitions=PARTITIONS))
        written = put(log, "a", "b", "c")
        eventually(lambda: objects(old_url).keys() == written.keys(), "the old release serves")

        # The new release beside it: it folds and reads the old tables, with the same answers as from its own.
        releases.start("projector", "new")
        reads = releases.start("query-api", "new-reads")
        url = reads.wait_until_serving()
        assert generations(releases) == {1: ("serving", 1)}
        assert objects(url, has_past=True) == written
        releases.run("rebuild")
        assert generations(releases) == {1: ("serving", 1), 2: ("verified", 2)}
        written |= put(log, "while-both-are-folded")
        releases.run("swap")

        # The old release reads on, and folds on what it knows; then its processes end, one by one.
        eventually(lambda: objects(old_url).keys() == written.keys(), "the old release reads the new tables")
        assert old_reads.terminate() == 0
        assert old.terminate() == 0
        written |= put(log, "after-the-swap")
        eventually(lambda: objects(url, has_past=True) == written, "the new release reads its own tables")
        assert generations(releases) == {1: ("retired", 1), 2: ("serving", 2)}
        assert_equals_a_fold_in_memory(postgres_dsn, log, 1)
        assert_equals_a_fold_in_memory(postgres_dsn, log, 2)

        # Back, as long as the old tables are there; then forward for good.
        releases.run("swap", "1")
        written |= put(log, "back-on-the-old-tables")
        eventually(lambda: objects(url, has_past=True) == written, "the new release reads the old tables")
        releases.run("swap", "2")
        releases.run("drop", "1")
        assert objects(url, has_past=True) == written
        assert generations(releases) == {2: ("serving", 2)}
