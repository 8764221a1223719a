"""A storage directory belongs to one process at a time, and remembers whether that one stopped in good order.

The file `.kvfold-standalone` is locked for as long as its process lives, however that ends. It holds the floors of versions
(see `storage`), and `open`: a store that finds it true was not closed, and may have given versions that it has forgotten.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kvfold.schemas.errors import ConfigurationError
from kvfold.schemas.limits import INT64_MAX

__all__ = ["DirectoryLock", "DirectoryState", "StorageInUseError"]

_NAME: Final = ".kvfold-standalone"
_BYTES_MAX: Final = 4_096


class StorageInUseError(ConfigurationError):
    """Another process has the storage directory."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="storage-in-use")


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """`created_floor`: below what no key is created; `updated_floor`: at or below what nothing at all is written."""

    created_floor: int
    updated_floor: int


class DirectoryLock:
    """The lock of a directory, held from the beginning until `release`.

    `state` is what the last process left when it was closed; None where it was not, and for a file that cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        """Raises `StorageInUseError` where another process, or another store of this one, holds the lock."""
        path = directory / _NAME
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StorageInUseError(
                f"the storage directory {directory} is used by another process: give each one a directory of its own"
            ) from None
        self.state = _closed_state(os.pread(self._descriptor, _BYTES_MAX, 0))
        self.is_new = os.fstat(self._descriptor).st_size == 0

    def write(self, state: DirectoryState, *, is_open: bool) -> None:
        """Writes the state down. One that is cut off in the middle reads as none, which is as good as `open`."""
        text = json.dumps({"open": is_open, **asdict(state)}).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)
        os.fsync(self._descriptor)

    def release(self) -> None:
        """Lets another process have the directory."""
        os.close(self._descriptor)


def _closed_state(text: bytes) -> DirectoryState | None:
    try:
        document = json.loads(text)
        floors = document["created_floor"], document["updated_floor"]
        if document["open"] is not False or not all(
            type(floor) is int and 0 <= floor <= INT64_MAX for floor in floors
        ):
            return None
        return DirectoryState(*floors)
    except (ValueError, KeyError, TypeError):
        return None
