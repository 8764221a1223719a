"""`Client`: everything that a service needs to emit and to read, opened from its settings.

```
with Client.from_env(os.environ, source="/shop") as kvfold:
    notes = kvfold.capsule(principal="alice", capsule_id="notes")
    notes.set("todo", b"milk")
```
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from kvfold.log.open import open_log
from kvfold.log.port import Log
from kvfold.log.settings import Settings
from kvfold.producers.capsule import CapsuleClient
from kvfold.producers.capsule.log_store import LogKvStore
from kvfold.producers.deployment import DeploymentClient
from kvfold.producers.orchestration import OrchestrationClient
from kvfold.producers.producer import Producer
from kvfold.reads.executor import Reader, read_pool
from kvfold.reads.waiting import Waiter
from kvfold.schemas.errors import ConfigurationError

__all__ = ["Client"]

_CONNECTIONS_MAX: Final = 8


class Client:
    """A log, a reader and a waiter with the clients of the three families over them. Safe for several threads."""

    def __init__(
        self, log: Log, postgres_dsn: str, *, source: str, connections_max: int = _CONNECTIONS_MAX
    ) -> None:
        """`source` is the CloudEvents source of what this service appends; the log is closed with the client."""
        with ExitStack() as parts:
            parts.callback(log.close)
            pool = read_pool(postgres_dsn, size_max=connections_max)
            parts.callback(pool.close)
            pool.open()
            self.reader = Reader(pool)
            waiter = Waiter(postgres_dsn)
            parts.callback(waiter.close)
            self.producer = Producer(log, waiter, source=source)
            self._parts = parts.pop_all()

    @classmethod
    def from_env(cls, environment: Mapping[str, str], *, source: str) -> Self:
        """Opens what `KVFOLD_KAFKA` and `KVFOLD_POSTGRES` name; without the first, the log embedded in the second.

        Raises:
            ConfigurationError: a variable is wrong, or `KVFOLD_POSTGRES` is missing.
            LogUnavailableError, LogMisconfiguredError: as `open_log`.
        """
        settings = Settings.from_env(environment)
        if settings.postgres is None:
            raise ConfigurationError(
                "KVFOLD_POSTGRES is not set: a service reads from there; `kvfold dev` writes the address of its embedded "
                "server to the file `dsn` in its data folder"
            )
        dsn = settings.postgres.get_secret_value()
        return cls(open_log(settings, dsn), dsn, source=source)

    def capsule(self, *, principal: str, capsule_id: str) -> CapsuleClient:
        """The namespace of one principal in one capsule."""
        return CapsuleClient(self.producer, self.reader, principal=principal, capsule_id=capsule_id)

    def capsule_store(self) -> LogKvStore:
        """The store of all capsules, for a `CapsuleHost`."""
        return LogKvStore(self.producer, self.reader)

    def deployment(self, deployment_id: str) -> DeploymentClient:
        """The store of one deployment."""
        return DeploymentClient(self.producer, self.reader, deployment_id=deployment_id)

    def orchestration(self) -> OrchestrationClient:
        """Instances that this service runs itself."""
        return OrchestrationClient(self.producer, self.reader)

    def close(self) -> None:
        """Sends what is queued, and closes everything."""
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
