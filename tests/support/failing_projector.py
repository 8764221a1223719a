"""`kvfold projector` that dies or stops at a named boundary of a fold commit, for tests that start it as a process.

`KVFOLD_TEST_FAILPOINT=BOUNDARY:COUNT:SIGNAL` sends itself the signal when the boundary is reached for the COUNTth time.

| boundary | where |
|---|---|
| `loaded` | the state of a batch is loaded, nothing decided |
| `projected` | decided and folded in memory, no transaction open |
| `written` | every statement of the transaction is carried out, the offset row is locked, no COMMIT |
| `committed` | the COMMIT is answered, this process does not know yet |

With `KVFOLD_TEST_UNBOUNDED` a transaction is never ended by a time-out, so that a stopped process holds its locks.
"""

from __future__ import annotations

import os
import signal
from itertools import count
from typing import Any, Final

from kvfold.deploy.cli import main
from kvfold.projector import generation_run, postgres_store
from kvfold.projector.batch import Batch, Loaded
from kvfold.projector.needs import Needs
from kvfold.projector.postgres_store import PostgresStore

__all__ = ["BOUNDARIES", "failpoint"]

BOUNDARIES: Final = ("loaded", "projected", "written", "committed")


def failpoint(boundary: str, *, at: int, send: signal.Signals) -> str:
    """The value of the variable."""
    assert boundary in BOUNDARIES
    return f"{boundary}:{at}:{int(send)}"


def _install(boundary: str, at: int, number: int) -> None:
    hits = count(1)

    def reached(name: str) -> None:
        if name == boundary and next(hits) == at:
            print(f"boundary reached: {name}", flush=True)
            os.kill(os.getpid(), number)

    class FailingStore(PostgresStore):
        def load(self, partition: int, needs: Needs) -> Loaded:
            loaded = super().load(partition, needs)
            reached("loaded")
            return loaded

        def commit(self, batch: Batch, *, epoch: int) -> None:
            reached("projected")
            super().commit(batch, epoch=epoch)
            reached("committed")

    class FailingWrite(postgres_store._Write):
        def is_large(self) -> bool:
            # Statement by statement, so that the process can stop between the last one and the COMMIT.
            return True

        def all(self) -> None:
            super().all()
            reached("written")

    setattr(postgres_store, "_Write", FailingWrite)  # noqa: B010 - a class is no variable to mypy
    setattr(generation_run, "PostgresStore", FailingStore)  # noqa: B010


def _unbounded() -> None:
    connect = postgres_store.connect_for_folding

    def without_timeout(dsn: str, *, transaction_timeout_ms: int, name: str) -> Any:
        return connect(dsn, transaction_timeout_ms=0, name=name)

    setattr(generation_run, "connect_for_folding", without_timeout)  # noqa: B010


if __name__ == "__main__":
    setting = os.environ.pop("KVFOLD_TEST_FAILPOINT").split(":")
    _install(setting[0], int(setting[1]), int(setting[2]))
    if os.environ.pop("KVFOLD_TEST_UNBOUNDED", ""):
        _unbounded()
    main()
