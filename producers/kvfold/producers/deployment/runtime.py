"""The store that a runtime has, chosen by its environment (003, "How the runtime talks to it"; rows D7, D9).

| variable | meaning |
|---|---|
| `RUNTIME_SERVICES_MODULE` | `k8s` or `standalone`; absent: `k8s` where `ORCHESTRATOR_URL` is set, else `standalone` |
| `ORCHESTRATOR_URL`, `OCTO_DEPLOYMENT_ID` | k8s: who keeps the persistent tier, and whose store it is |
| `ORCHESTRATOR_TOKEN` | k8s: a bearer token for the orchestrator |
| `REDIS_URL` | k8s: the volatile tier, dialled directly; absent: it goes through the orchestrator, too |
| `OCTO_STORAGE_DIR` | standalone: where persistent namespaces are kept, `./octo-store`; empty: nowhere, all is in memory |

An empty variable is an absent one, but for `OCTO_STORAGE_DIR`.
"""

from __future__ import annotations

import atexit
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Final, Literal, NoReturn, Self

from kvfold.producers.deployment.entries import EntriesStore
from kvfold.producers.deployment.http_store import HttpStore
from kvfold.producers.deployment.object_store import ObjectStore, check_namespace
from kvfold.producers.deployment.secret_store import SecretStore
from kvfold.producers.deployment.standalone import StandaloneStorage
from kvfold.producers.deployment.volatile import VolatileTier
from kvfold.reads.deployment import DeploymentValue, ObjectPage
from kvfold.schemas.errors import ConfigurationError
from kvfold.schemas.limits import PAGE_LIMIT_DEFAULT
from kvfold.schemas.tiers import Tier

__all__ = ["STORAGE_DIR_DEFAULT", "RuntimeStore", "open_object_store", "services_module", "storage_dir"]

STORAGE_DIR_DEFAULT: Final = Path("octo-store")
_DEPLOYMENT_ID_STANDALONE: Final = "standalone"


class RuntimeStore:
    """`ObjectStore` of a runtime: each namespace in the tier that its suffix names. Close it when the runtime ends."""

    def __init__(self, kept: ObjectStore, volatile: ObjectStore, *, close: Callable[[], None]) -> None:
        """`kept` has persistent and secret namespaces; `close` is called once, at the end."""
        self._kept = kept
        self._volatile = volatile
        self._close = close
        self.secrets = SecretStore(self)

    def get(self, namespace: str, key: str) -> DeploymentValue | None:
        """As `ObjectStore.get`."""
        return self._of(namespace).get(namespace, key)

    def put(self, namespace: str, key: str, value: bytes, *, expected: int = 0) -> int:
        """As `ObjectStore.put`."""
        return self._of(namespace).put(namespace, key, value, expected=expected)

    def delete(self, namespace: str, key: str, *, expected: int = 0) -> None:
        """As `ObjectStore.delete`."""
        self._of(namespace).delete(namespace, key, expected=expected)

    def list(
        self, namespace: str, *, prefix: str = "", cursor: str | None = None, limit: int = PAGE_LIMIT_DEFAULT
    ) -> ObjectPage:
        """As `ObjectStore.list`."""
        return self._of(namespace).list(namespace, prefix=prefix, cursor=cursor, limit=limit)

    def close(self) -> None:
        """Closes connections; a standalone store is on disk when it returns."""
        close, self._close = self._close, lambda: None
        close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _of(self, namespace: str) -> ObjectStore:
        return self._volatile if check_namespace(namespace) is Tier.VOLATILE else self._kept


def open_object_store(environment: Mapping[str, str]) -> RuntimeStore:
    """Opens the store that the environment names, such as `os.environ`. Asks no server.

    A standalone store is flushed when the process ends, by Ctrl-C and by SIGTERM, too, unless the program handles that.

    Raises:
        ConfigurationError: names the variable and what is accepted; `storage-in-use` where another process has the
            directory.
    """
    return _k8s(environment) if services_module(environment) == "k8s" else _standalone(environment)


def services_module(environment: Mapping[str, str]) -> Literal["k8s", "standalone"]:
    """Which of the two the environment asks for.

    Raises:
        ConfigurationError: RUNTIME_SERVICES_MODULE is something else.
    """
    match environment.get("RUNTIME_SERVICES_MODULE") or None:
        case "k8s":
            return "k8s"
        case "standalone":
            return "standalone"
        case None:
            return "k8s" if environment.get("ORCHESTRATOR_URL") else "standalone"
        case other:
            raise ConfigurationError(
                f"RUNTIME_SERVICES_MODULE is {other[:80]!r}: accepted is k8s, standalone, or nothing"
            )


def storage_dir(text: str | None) -> Path | None:
    """The directory that OCTO_STORAGE_DIR names: the default where it is absent, None (memory) where it is empty."""
    if text is None:
        return STORAGE_DIR_DEFAULT
    return Path(text) if text else None


def _k8s(environment: Mapping[str, str]) -> RuntimeStore:
    url, deployment_id = (_needed(environment, name) for name in ("ORCHESTRATOR_URL", "OCTO_DEPLOYMENT_ID"))
    token = environment.get("ORCHESTRATOR_TOKEN") or None
    redis_url = environment.get("REDIS_URL") or None
    with ExitStack() as parts:
        try:
            kept = HttpStore(url, deployment_id, token=token)
        except ConfigurationError as error:
            # The URL is shown by nobody: it may hold a password, too.
            raise ConfigurationError(f"ORCHESTRATOR_URL or ORCHESTRATOR_TOKEN is wrong: {error}") from None
        parts.callback(kept.close)
        volatile: ObjectStore = kept
        if redis_url is not None:
            tier = _redis_tier(redis_url)
            parts.callback(tier.close)
            volatile = EntriesStore(tier.entries(deployment_id))
        return RuntimeStore(kept, volatile, close=parts.pop_all().close)


def _redis_tier(url: str) -> VolatileTier:
    try:
        from kvfold.producers.deployment.redis_volatile import RedisVolatileTier
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "REDIS_URL is set, and the package redis is missing: install kvfold[redis]"
        ) from error
    return RedisVolatileTier(url)


def _standalone(environment: Mapping[str, str]) -> RuntimeStore:
    storage = StandaloneStorage(storage_dir(environment.get("OCTO_STORAGE_DIR")))
    store = EntriesStore(storage.entries(environment.get("OCTO_DEPLOYMENT_ID") or _DEPLOYMENT_ID_STANDALONE))

    def close() -> None:
        atexit.unregister(storage.close)
        storage.close()

    atexit.register(storage.close)
    _end_in_order_by_sigterm()
    return RuntimeStore(store, store, close=close)


def _end_in_order_by_sigterm() -> None:
    """Lets SIGTERM end the process as `sys.exit` does, so that what is registered runs; not where the program has a say."""
    if current_thread() is main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    sys.exit(128 + number)


def _needed(environment: Mapping[str, str], name: str) -> str:
    text = environment.get(name)
    if not text:
        raise ConfigurationError(
            f"{name} is not set: a runtime with RUNTIME_SERVICES_MODULE=k8s, or with ORCHESTRATOR_URL, needs it"
        )
    return text
