"""Running kvfold for end-to-end tests: `kvfold dev` in one process, or gateway and projectors in several."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from kvfold.deploy.server_process import is_alive, terminate
from kvfold.schemas.partitioning import partition_of
from support.kvfold_process import KvfoldProcess, wait_until

__all__ = ["DevProcess", "Stack", "running_stack"]


class DevProcess(KvfoldProcess):
    """`kvfold dev` with its data in a folder; also ends the embedded server that a killed one leaves behind."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.data = folder / "data"
        self.url = ""
        settings = {"KVFOLD_DATA": str(self.data), "KVFOLD_PORT": "0", **(environment or {})}
        super().__init__("dev", *options, environment=settings, output=folder / "dev.log")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.end()

    def wait_until_serving(self, *, timeout_s: float = 90.0) -> str:
        """As `KvfoldProcess.wait_until_serving`; the URL is kept as `url`."""
        self.url = super().wait_until_serving(timeout_s=timeout_s)
        return self.url

    def postgres_pid(self) -> int | None:
        """The process id of the embedded server, None if none runs on the data."""
        try:
            pid = abs(int((self.data / "pgdata" / "postmaster.pid").read_text().split("\n", 1)[0]))
        except (FileNotFoundError, ValueError):
            return None
        return pid if is_alive(pid, marks=("postgres", str(self.data))) else None

    def end(self) -> None:
        """Ends the process and its server, however they were left."""
        self.kill()
        pid = self.postgres_pid()
        if pid is not None:
            terminate(pid, first=signal.SIGINT, timeout_s=20.0)


def worker_process(dev: DevProcess, folder: Path, app: str, name: str, **settings: str) -> KvfoldProcess:
    """`kvfold worker` of this name beside a `kvfold dev`, with an application of the folder."""
    environment = {
        "KVFOLD_POSTGRES": (dev.data / "dsn").read_text("utf-8"),
        "KVFOLD_OWNER": name,
        "PYTHONPATH": str(folder),
        **settings,
    }
    return KvfoldProcess("worker", "--app", app, environment=environment, output=folder / f"{name}.log")


class Stack:
    """A gateway and some projectors as processes of their own, over one Postgres and one log."""

    def __init__(self, dsn: str, folder: Path, log_settings: Mapping[str, str], parts: ExitStack) -> None:
        self.dsn = dsn
        self.projectors: dict[str, KvfoldProcess] = {}
        self.url = ""
        self._folder = folder
        self._parts = parts
        self._settings = {"KVFOLD_POSTGRES": dsn, "KVFOLD_TELEMETRY_PORT": "0", **log_settings}
        self._partitions = int(log_settings.get("KVFOLD_PARTITIONS", "12"))
        self.gateway: KvfoldProcess | None = None

    def start_projector(self, owner: str) -> None:
        """Starts a projector of this name, and waits until it holds partitions."""
        process = KvfoldProcess(
            "projector",
            environment={**self._settings, "KVFOLD_OWNER": owner},
            output=self._folder / f"{owner}.log",
        )
        self.projectors[owner] = self._parts.enter_context(process)
        process.wait_for_event("projector ready")

    def start_gateway(self) -> None:
        """Starts the gateway, the second time at the same address, and waits until it answers."""
        port = self.url.rpartition(":")[2] or "0"
        self.gateway = KvfoldProcess(
            "gateway",
            environment={**self._settings, "KVFOLD_PORT": port},
            output=self._folder / "gateway.log",
        )
        self._parts.enter_context(self.gateway)
        self.url = self.gateway.wait_until_serving()

    def holder_of(self, scope: str) -> str:
        """The name of the projector that holds the scope's partition; waits until one does."""
        partition = partition_of(scope.encode(), self._partitions)

        def holder() -> str | None:
            with psycopg.connect(self.dsn) as connection:
                row = connection.execute(
                    "SELECT owner FROM kvfold_g1.claim WHERE partition = %s", (partition,)
                ).fetchone()
            return None if row is None else row[0]

        return wait_until(holder, what=lambda: f"nobody holds partition {partition}")

    def outcomes(self, scope: str) -> dict[str, int]:
        """How many records of the scope have which outcome; `repeat` for those that point to an earlier one."""
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute(
                """
                SELECT CASE WHEN repeat_of IS NULL THEN status ELSE 'repeat' END, count(*)
                FROM kvfold_g1.decision WHERE scope = %s GROUP BY 1
                """,
                (scope,),
            ).fetchall()
        return dict(rows)

    def stop(self) -> dict[str, int]:
        """Stops everything that still runs in good order; gives the exit codes by name."""
        processes = (
            {**self.projectors} if self.gateway is None else {"gateway": self.gateway, **self.projectors}
        )
        return {name: one.terminate() for name, one in processes.items() if one.exit_code is None}


@contextmanager
def running_stack(
    dsn: str, folder: Path, *, owners: tuple[str, ...], log_settings: Mapping[str, str] | None = None
) -> Iterator[Stack]:
    """A stack with a projector of each name and a gateway; everything has ended at the end."""
    with ExitStack() as parts:
        stack = Stack(dsn, folder, log_settings or {}, parts)
        for owner in owners:
            stack.start_projector(owner)
        stack.start_gateway()
        yield stack
