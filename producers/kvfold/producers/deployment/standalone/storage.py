"""The standalone store: entries in memory, and persistent namespaces in files.

Writes are answered from memory; what they changed is written within `FLUSH_DELAY_S` and the time that writing takes, and at
once when the store is closed. SIGKILL loses no more than that. Secret and volatile namespaces never meet the disk: there is
no key to encrypt with, and volatile means volatile.

**Versions never come back.** A key that is created gets a version above those of all keys that its namespace has lost, so a
writer that still holds version 1 of a deleted key cannot win over its successor. Where versions may have been given that
nobody remembers (the last process was killed; a file was damaged; there is no file at all), new ones begin at the
microseconds of the clock, which is above them.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Event, Lock, Thread
from typing import Final

import structlog

from kvfold.producers.deployment.memory_volatile import MemoryVolatileTier
from kvfold.producers.deployment.object_store import (
    check_key,
    check_listed,
    check_namespace,
    check_page,
    check_value,
)
from kvfold.producers.deployment.standalone.directory_lock import (
    DirectoryLock,
    DirectoryState,
    StorageInUseError,
)
from kvfold.producers.deployment.standalone.namespace_file import (
    CorruptFileError,
    Entry,
    NamespaceContent,
    path_of,
    read_file,
    replace_file,
    set_aside,
    stored_files,
    sync_folder,
)
from kvfold.reads.deployment import DeploymentObject, DeploymentValue, ObjectPage
from kvfold.reads.paging import page_range
from kvfold.schemas.errors import ConfigurationError, InvalidError, RejectedError, StoreUnavailableError
from kvfold.schemas.limits import PAGE_LIMIT_DEFAULT
from kvfold.schemas.names import check_deployment_name, utf8_length
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.precondition import Precondition
from kvfold.schemas.tiers import Tier

__all__ = ["FLUSH_DELAY_S", "STORAGE_BYTES_MAX", "StandaloneStorage", "StorageInUseError"]

FLUSH_DELAY_S: Final = 0.1
"""Writes that come within this time are written to disk together."""

STORAGE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of keys and values, with an allowance for each entry, that are kept outside volatile namespaces."""

_RETRY_S: Final = 1.0
_ENTRY_OVERHEAD_BYTES: Final = 256
_FORGOTTEN_VERSIONS_MAX: Final = 1_000_000

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Namespace:
    """A namespace in memory. `changes` counts its writes, `written` says how many of them are on disk."""

    created_floor: int
    entries: dict[str, Entry] = field(default_factory=dict)
    changes: int = 0
    written: int = 0


_Name = tuple[str, str]


class StandaloneStorage:
    """The deployments of one storage directory. Safe for several threads; one process at a time has a directory."""

    def __init__(self, directory: Path | None) -> None:
        """Opens a directory, which is made if it is absent; None keeps everything in memory.

        Raises:
            StorageInUseError: another process has it.
            ConfigurationError: it cannot be read or written.
        """
        self._directory = directory
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._closing = Event()
        self._writing = Lock()  # held while files are replaced; taken before `_lock`
        self._namespaces: dict[_Name, _Namespace] = {}
        self._volatile = MemoryVolatileTier()
        self._bytes = 0
        self._floors = DirectoryState(_now_us(), _now_us())
        # A secret that was created before a restart is forgotten by it, with its version.
        self._secret_floor = _now_us()
        self._directory_lock: DirectoryLock | None = None
        self._thread = Thread(target=self._keep_flushing, name="kvfold-standalone", daemon=True)
        if directory is not None:
            self._open(directory)
            self._thread.start()

    def entries(self, deployment_id: str) -> StandaloneEntries:
        """One deployment's part.

        Raises:
            InvalidError: `malformed-name`.
        """
        problem = check_deployment_name("the deployment id", deployment_id)
        if problem is not None:
            raise InvalidError(problem, code="malformed-name")
        return StandaloneEntries(self, deployment_id, self._volatile)

    def undeploy(self, deployment_id: str) -> int:
        """Removes every entry of a deployment, in every tier, and gives how many there were. On disk when it returns.

        Raises:
            InvalidError: as `entries`.
            OSError: a file could not be removed; nothing of the deployment is readable all the same, until a restart.
        """
        self.entries(deployment_id)
        removed = 0 if ":" in deployment_id else self._volatile.sweep(deployment_id)
        with self._writing, self._lock:
            names = [name for name in self._namespaces if name[0] == deployment_id]
            for name in names:
                gone = self._namespaces.pop(name)
                removed += len(gone.entries)
                self._bytes -= sum(_size(key, entry.value) for key, entry in gone.entries.items())
                versions = [entry.version for entry in gone.entries.values()]
                floor = max([self._floors.created_floor, gone.created_floor, *versions])
                self._floors = DirectoryState(floor, self._floors.updated_floor)
            if self._directory is not None:
                _remove_files(self._directory, names)
        return removed

    def flush(self) -> None:
        """Returns when everything that was written is on disk.

        Raises:
            OSError: it cannot be written; it stays in memory, and is tried again.
        """
        with self._writing:
            for name in self._dirty():
                self._write(name)

    def close(self) -> None:
        """Flushes, and lets another process have the directory. Further calls do nothing.

        Raises:
            OSError: as `flush`; the directory is free all the same.
        """
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            self._changed.notify_all()
        if self._directory_lock is None:
            return
        self._thread.join()
        try:
            self.flush()
            self._directory_lock.write(self._floors, is_open=False)
        finally:
            self._directory_lock.release()

    # --- what the entries of a deployment do ---

    def get(self, name: _Name, key: str) -> DeploymentValue | None:
        """One entry of a persistent or secret namespace."""
        with self._lock:
            namespace = self._namespaces.get(name)
            entry = None if namespace is None else namespace.entries.get(key)
        return None if entry is None else DeploymentValue(entry.value, entry.version)

    def put(self, name: _Name, key: str, value: bytes, expected: Precondition, tier: Tier) -> Decision:
        """Compares and writes, as one step."""
        with self._lock:
            self._require_open()
            namespace = self._namespaces.get(name) or _Namespace(
                self._secret_floor if tier is Tier.SECRET else 0
            )
            entry = namespace.entries.get(key)
            if not expected.holds(None if entry is None else str(entry.version)):
                return _conflict(entry)
            size = _size(key, value) - (0 if entry is None else _size(key, entry.value))
            if size > 0 and self._bytes + size > STORAGE_BYTES_MAX:
                raise RejectedError(
                    f"the store is full: it keeps at most {STORAGE_BYTES_MAX} bytes of keys and values",
                    code="limit",
                )
            self._bytes += size
            version = self._version_after(namespace, entry)
            namespace.entries[key] = Entry(value, version, time.time_ns() // 1_000_000)
            self._namespaces[name] = namespace
            self._touched(namespace, tier)
        return Decision(DecisionStatus.APPLIED, version=version)

    def delete(self, name: _Name, key: str, expected: Precondition, tier: Tier) -> Decision:
        """Compares and removes, as one step."""
        with self._lock:
            self._require_open()
            namespace = self._namespaces.get(name)
            entry = None if namespace is None else namespace.entries.get(key)
            if namespace is None or entry is None:
                return Decision(DecisionStatus.APPLIED, version=0)
            if not expected.holds(str(entry.version)):
                return _conflict(entry)
            del namespace.entries[key]
            self._bytes -= _size(key, entry.value)
            namespace.created_floor = max(namespace.created_floor, entry.version)
            self._touched(namespace, tier)
        return Decision(DecisionStatus.APPLIED, version=entry.version)

    def objects(self, name: _Name, start: str, end: str) -> list[DeploymentObject]:
        """The objects of a namespace from `start` up to, not including, `end`, in byte order."""
        with self._lock:
            namespace = self._namespaces.get(name)
            found = [] if namespace is None else list(namespace.entries.items())
        # Code points stand in the order of their bytes.
        return [
            DeploymentObject(key, entry.version, len(entry.value), entry.updated_ms)
            for key, entry in sorted(found)
            if start <= key < end
        ]

    def names(self, deployment_id: str) -> set[str]:
        """The persistent and secret namespaces of a deployment that have entries."""
        with self._lock:
            return {
                name[1] for name, one in self._namespaces.items() if name[0] == deployment_id and one.entries
            }

    def _require_open(self) -> None:
        if self._closing.is_set():
            raise StoreUnavailableError("the standalone store is closed")

    # --- versions ---

    def _version_after(self, namespace: _Namespace, entry: Entry | None) -> int:
        floors = self._floors
        if entry is not None:
            return max(entry.version, floors.updated_floor) + 1
        return max(namespace.created_floor, floors.created_floor, floors.updated_floor) + 1

    # --- the disk ---

    def _open(self, directory: Path) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory_lock = DirectoryLock(directory)
            try:
                self._load(directory, self._directory_lock)
            except BaseException:
                self._directory_lock.release()
                raise
        except OSError as error:
            raise ConfigurationError(
                f"the storage directory {directory} cannot be used: {error.strerror}: {error.filename or directory}"
            ) from error

    def _load(self, directory: Path, lock: DirectoryLock) -> None:
        """Reads every file; one that is damaged is set aside, and costs its namespace alone."""
        is_damaged = False
        for path in stored_files(directory):
            try:
                content = read_file(path)
            except CorruptFileError as error:
                is_damaged = True
                aside = set_aside(path)
                _log.error("storage file set aside", file=str(path), reason=str(error), kept_as=str(aside))
                continue
            name = content.deployment_id, content.namespace
            self._namespaces[name] = _Namespace(content.created_floor, content.entries)
            self._bytes += sum(_size(key, entry.value) for key, entry in content.entries.items())
        self._floors = self._floors_at_start(lock, is_damaged=is_damaged)
        lock.write(self._floors, is_open=True)
        sync_folder(directory)

    def _floors_at_start(self, lock: DirectoryLock, *, is_damaged: bool) -> DirectoryState:
        left = lock.state
        if left is None and lock.is_new and not self._namespaces:
            left = DirectoryState(0, 0)  # nobody was here before
        known = [one.created_floor for one in self._namespaces.values()]
        known += [entry.version for one in self._namespaces.values() for entry in one.entries.values()]
        # Also where the clock has stepped back since.
        unknown = max([_now_us(), *(version + _FORGOTTEN_VERSIONS_MAX for version in known)])
        if left is None:
            return DirectoryState(unknown, unknown)
        return DirectoryState(max(left.created_floor, unknown), left.updated_floor) if is_damaged else left

    def _touched(self, namespace: _Namespace, tier: Tier) -> None:
        if tier is Tier.PERSISTENT:
            namespace.changes += 1
            self._changed.notify()

    def _dirty(self) -> list[_Name]:
        if self._directory is None:
            return []
        with self._lock:
            return [name for name, one in self._namespaces.items() if one.changes > one.written]

    def _write(self, name: _Name) -> None:
        """Replaces one file; `_writing` is held, so that an older content never replaces a newer one."""
        assert self._directory is not None
        with self._lock:
            namespace = self._namespaces[name]
            changes = namespace.changes
            content = NamespaceContent(*name, namespace.created_floor, dict(namespace.entries))
        replace_file(path_of(self._directory, *name), content)
        namespace.written = changes

    def _keep_flushing(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._closing.is_set() or self._is_dirty())
            # A pause, so that the writes of a burst go together; a close does not wait for it.
            if self._closing.wait(FLUSH_DELAY_S):
                return
            try:
                self.flush()
            except OSError as error:
                _log.error(
                    "storage not written", directory=str(self._directory), error=str(error), retry_s=_RETRY_S
                )
                if self._closing.wait(_RETRY_S):
                    return

    def _is_dirty(self) -> bool:
        return any(one.changes > one.written for one in self._namespaces.values())


class StandaloneEntries:
    """`Entries` of one deployment: every namespace, by its suffix in files or in memory alone."""

    def __init__(self, storage: StandaloneStorage, deployment_id: str, volatile: MemoryVolatileTier) -> None:
        self._storage = storage
        self._deployment_id = deployment_id
        self._tier = volatile

    def get(self, namespace: str, key: str) -> DeploymentValue | None:
        if check_namespace(namespace) is Tier.VOLATILE:
            return self._tier.entries(self._deployment_id).get(namespace, key)
        check_key(key)
        return self._storage.get((self._deployment_id, namespace), key)

    def put(self, namespace: str, key: str, value: bytes, *, expected: Precondition) -> Decision:
        tier = check_namespace(namespace)
        if tier is Tier.VOLATILE:
            return self._tier.entries(self._deployment_id).put(namespace, key, value, expected=expected)
        check_key(key)
        check_value(value)
        return self._storage.put((self._deployment_id, namespace), key, bytes(value), expected, tier)

    def delete(self, namespace: str, key: str, *, expected: Precondition) -> Decision:
        tier = check_namespace(namespace)
        if tier is Tier.VOLATILE:
            return self._tier.entries(self._deployment_id).delete(namespace, key, expected=expected)
        check_key(key)
        return self._storage.delete((self._deployment_id, namespace), key, expected, tier)

    def list(
        self, namespace: str, *, prefix: str = "", cursor: str | None = None, limit: int = PAGE_LIMIT_DEFAULT
    ) -> ObjectPage:
        if check_listed(namespace) is Tier.VOLATILE:
            return self._tier.entries(self._deployment_id).list(
                namespace, prefix=prefix, cursor=cursor, limit=limit
            )
        check_page(prefix=prefix, cursor=cursor, limit=limit)
        found = self._storage.objects((self._deployment_id, namespace), *page_range(prefix, cursor))
        return ObjectPage(tuple(found[:limit]), found[limit - 1].key if len(found) > limit else None)

    def namespaces(self) -> tuple[str, ...]:
        persistent = {
            name
            for name in self._storage.names(self._deployment_id)
            if check_namespace(name) is Tier.PERSISTENT
        }
        if ":" in self._deployment_id:
            return tuple(sorted(persistent))
        return tuple(sorted(persistent.union(self._tier.entries(self._deployment_id).namespaces())))


def _remove_files(directory: Path, names: list[_Name]) -> None:
    for name in names:
        path = path_of(directory, *name)
        if not path.exists():
            continue
        path.unlink()
        sync_folder(path.parent)
        with suppress(OSError):  # another namespace's file may be there, or one that was set aside
            path.parent.rmdir()


def _now_us() -> int:
    return time.time_ns() // 1_000


def _conflict(entry: Entry | None) -> Decision:
    return Decision(
        DecisionStatus.CONFLICT, "version-conflict", version=0 if entry is None else entry.version
    )


def _size(key: str, value: bytes) -> int:
    return _ENTRY_OVERHEAD_BYTES + utf8_length(key) + len(value)
