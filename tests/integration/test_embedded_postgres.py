"""The embedded PostgreSQL server: it starts, and it starts again whatever ended it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kvfold.deploy import embedded_postgres as module
from kvfold.deploy.embedded_postgres import (
    EmbeddedPostgres,
    EmbeddedPostgresAlreadyRunningError,
    EmbeddedPostgresError,
)
from kvfold.deploy.server_process import is_alive

pytestmark = pytest.mark.postgres

# Starts a server, says its process id, and waits to be killed.
_OWNER = """
import sys
from pathlib import Path
from kvfold.deploy.embedded_postgres import EmbeddedPostgres
server = EmbeddedPostgres.start(Path(sys.argv[1]))
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "postgres"


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres.start(home) as running:
        yield running


def ask(dsn: str, query: str) -> object:
    with psycopg.connect(dsn, connect_timeout=10, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def write_row(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (7)")


def test_it_answers_in_utf8_with_byte_order_and_utc(server: EmbeddedPostgres) -> None:
    assert ask(server.dsn, "SELECT current_setting('server_encoding')") == "UTF8"
    assert ask(server.dsn, "SELECT datlocale FROM pg_database WHERE datname = 'postgres'") == "C.UTF-8"
    assert ask(server.dsn, "SELECT current_setting('TimeZone')") == "UTC"
    assert ask(server.dsn, "SELECT current_setting('fsync')") == "on"


def test_settings_reach_the_server(home: Path) -> None:
    with EmbeddedPostgres.start(
        home, settings={"max_connections": "17", "application_name": "a b'c"}
    ) as server:
        assert ask(server.dsn, "SELECT current_setting('max_connections')") == "17"


def test_nobody_else_can_reach_it(server: EmbeddedPostgres, home: Path) -> None:
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "password").stat().st_mode) == 0o600
    assert (home / "run").stat().st_uid == (home / "pgdata").stat().st_uid != 0
    assert ask(server.dsn, "SELECT current_setting('listen_addresses')") == ""


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_wrong_or_missing_password_is_refused(server: EmbeddedPostgres, password: str | None) -> None:
    given = conninfo_to_dict(server.dsn)
    del given["password"]
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(make_conninfo("", **given, **({} if password is None else {"password": password})))


def test_it_keeps_its_data_over_an_orderly_stop(server: EmbeddedPostgres, home: Path) -> None:
    write_row(server.dsn)
    server.stop()
    assert not is_alive(server.pid)
    with EmbeddedPostgres.start(home) as again:
        assert ask(again.dsn, "SELECT n FROM kept") == 7


def test_a_second_stop_does_nothing(server: EmbeddedPostgres) -> None:
    server.stop()
    server.stop()
    assert not server.is_running()


def test_a_fast_stop_does_not_wait_for_a_client_in_a_transaction(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE lost (n int)")
        server.stop("fast", timeout_s=30)
        assert not server.is_running()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    server.restart()
    assert ask(server.dsn, "SELECT to_regclass('lost') IS NULL") is True


def test_it_starts_again_after_sigkill_without_losing_what_was_committed(server: EmbeddedPostgres) -> None:
    write_row(server.dsn)
    killed, dsn = server.pid, server.dsn
    os.kill(killed, signal.SIGKILL)
    server.restart()
    assert server.pid != killed
    assert server.dsn == dsn
    assert ask(dsn, "SELECT n FROM kept") == 7


def test_a_live_owner_keeps_others_out(server: EmbeddedPostgres, home: Path) -> None:
    with pytest.raises(
        EmbeddedPostgresAlreadyRunningError, match=f"process {os.getpid()} already runs"
    ) as refused:
        EmbeddedPostgres.start(home)
    assert refused.value.owner_pid == os.getpid()
    assert ask(server.dsn, "SELECT 1") == 1


def test_the_server_of_a_killed_owner_is_stopped_and_a_new_one_started(home: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        orphan = int(owner.stdout.readline())
        with pytest.raises(EmbeddedPostgresAlreadyRunningError):
            EmbeddedPostgres.start(home)
        owner.kill()
        owner.wait()
        assert is_alive(orphan), "the server outlives its owner: else this test shows nothing"
        with EmbeddedPostgres.start(home) as server:
            assert not is_alive(orphan)
            assert ask(server.dsn, "SELECT 1") == 1


def test_a_zombie_is_not_taken_for_a_server(server: EmbeddedPostgres, home: Path) -> None:
    pid_file = home / "pgdata" / "postmaster.pid"
    left_behind = pid_file.read_text()
    server.stop()
    with subprocess.Popen(["true"]) as zombie:
        # Ended and not yet waited for: its number exists, kill(pid, 0) succeeds.
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        pid_file.write_text("\n".join([str(zombie.pid), *left_behind.splitlines()[1:]]) + "\n")
        (home / "run" / ".s.PGSQL.5432.lock").write_text(f"{zombie.pid}\n")
        with EmbeddedPostgres.start(home) as again:
            assert ask(again.dsn, "SELECT 1") == 1


def test_a_number_given_to_another_program_is_not_taken_for_a_server(
    server: EmbeddedPostgres, home: Path
) -> None:
    pid_file = home / "pgdata" / "postmaster.pid"
    left_behind = pid_file.read_text()
    server.stop()
    pid_file.write_text("\n".join(["1", *left_behind.splitlines()[1:]]) + "\n")
    with EmbeddedPostgres.start(home) as again:
        assert ask(again.dsn, "SELECT 1") == 1


@pytest.mark.parametrize("rest", ["", "x\n", "12"])
def test_a_torn_pid_file_does_not_block_the_start(server: EmbeddedPostgres, home: Path, rest: str) -> None:
    server.stop()
    (home / "pgdata" / "postmaster.pid").write_text(rest)
    with EmbeddedPostgres.start(home) as again:
        assert ask(again.dsn, "SELECT 1") == 1


def test_a_kill_during_initdb_does_no_harm(home: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        while not list(home.glob("pgdata.partial-*/*")):
            assert owner.poll() is None
        owner.kill()
    assert not (home / "pgdata").exists(), "killed too late: the test shows nothing"
    with EmbeddedPostgres.start(home) as server:
        assert ask(server.dsn, "SELECT 1") == 1
    assert not list(home.glob("*partial*"))


def test_a_long_path_leads_to_a_port_on_loopback_that_stays_the_same(tmp_path: Path) -> None:
    with EmbeddedPostgres.start(tmp_path / ("d" * 100)) as server:
        dsn = server.dsn
        assert conninfo_to_dict(dsn)["host"] == "127.0.0.1"
        assert ask(dsn, "SELECT 1") == 1
        server.restart()
        assert server.dsn == dsn
        assert ask(dsn, "SELECT 1") == 1


def test_program_and_data_may_lie_where_only_the_caller_may_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    package = module._binaries().parents[1]
    for part in (package, package.with_name("embedded_postgres.libs")):
        if part.exists():
            shutil.copytree(part, closed / part.name)
    monkeypatch.setattr(module, "_binaries", lambda: closed / package.name / "pginstall" / "bin")
    with EmbeddedPostgres.start(closed / "postgres") as server:
        assert ask(server.dsn, "SELECT 1") == 1
        assert (closed / "postgres" / "pgdata").stat().st_uid != 0


def test_a_foreign_directory_is_refused_and_left_alone(home: Path) -> None:
    home.mkdir()
    (home / "thesis.txt").touch()
    before = home.stat()
    with pytest.raises(EmbeddedPostgresError, match="not empty"):
        EmbeddedPostgres.start(home)
    assert [entry.name for entry in home.iterdir()] == ["thesis.txt"]
    assert (home.stat().st_mode, home.stat().st_uid) == (before.st_mode, before.st_uid)


def test_a_wrong_setting_is_told_in_the_servers_words(home: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        EmbeddedPostgres.start(home, settings={"no_such_setting": "1"})
    with EmbeddedPostgres.start(home) as server:
        assert ask(server.dsn, "SELECT 1") == 1


def test_a_cluster_of_another_major_version_is_refused(server: EmbeddedPostgres, home: Path) -> None:
    server.stop()
    (home / "pgdata" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(EmbeddedPostgresError, match=r"made by PostgreSQL 9\.6"):
        EmbeddedPostgres.start(home)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(server: EmbeddedPostgres) -> None:
    assert os.getpgid(server.pid) != os.getpgrp()
    assert os.getsid(server.pid) != os.getsid(0)
