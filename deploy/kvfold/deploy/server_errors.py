"""What can go wrong with a server that this package runs itself."""

from __future__ import annotations

from pathlib import Path

from kvfold.schemas.errors import KvfoldError

__all__ = ["EmbeddedPostgresAlreadyRunningError", "EmbeddedPostgresError"]


class EmbeddedPostgresError(KvfoldError):
    """The embedded PostgreSQL server could not be set up, started or stopped."""

    def __init__(self, message: str, *, code: str = "embedded-postgres") -> None:
        super().__init__(message, code=code)


class EmbeddedPostgresAlreadyRunningError(EmbeddedPostgresError):
    """Another live process runs a server on this directory; `owner_pid` is None where it left no number."""

    def __init__(self, directory: Path, *, owner_pid: int | None) -> None:
        who = "another process" if owner_pid is None else f"process {owner_pid}"
        super().__init__(
            f"{who} already runs the PostgreSQL server in {directory}",
            code="embedded-postgres-already-running",
        )
        self.directory = directory
        self.owner_pid = owner_pid
