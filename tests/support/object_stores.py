"""Object stores that tests drive: at a gateway with its Redis, standalone over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.stack import running_stack
from support.kvfold_process import KvfoldProcess
from support.servers import fresh_database

__all__ = ["ENCRYPTION_KEY", "running_gateway", "running_standalone"]

ENCRYPTION_KEY = base64.b64encode(bytes(range(32))).decode("ascii")


@contextmanager
def running_gateway(postgres_admin_dsn: str, redis_url: str, folder: Path) -> Iterator[str]:
    """A gateway and a projector over the log in Postgres, with a Redis and an encryption key; gives its URL."""
    settings = {"REDIS_URL": redis_url, "KV_ENCRYPTION_KEY": ENCRYPTION_KEY, "KVFOLD_PARTITIONS": "2"}
    with (
        fresh_database(postgres_admin_dsn) as dsn,
        running_stack(dsn, folder, owners=("one",), log_settings=settings) as stack,
    ):
        yield stack.url


@contextmanager
def running_standalone(folder: Path) -> Iterator[str]:
    """`kvfold standalone` on a directory of the folder; gives its URL."""
    process = KvfoldProcess(
        "standalone",
        "--storage-dir",
        str(folder / "store"),
        environment={"KVFOLD_PORT": "0"},
        output=folder / "standalone.log",
    )
    with process:
        yield process.wait_until_serving()
