"""The file of one namespace: what is in it, where it is, and how it is replaced.

```
kvfold-namespace 1 9f86d0…                                   the SHA-256 of all that follows the line
{"deployment": "shop", "namespace": "user", "created_floor": 4,
 "entries": [["theme", 3, 1760000000000, "Ymx1ZQ=="]]}       key, version, milliseconds since 1970, value
```

A file is whole or it is not there: it is written beside the old one, flushed to the disk, and takes its place in one
step. Only its owner may read it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvfold.schemas.limits import DEPLOYMENT_VALUE_BYTES_MAX, INT64_MAX
from kvfold.schemas.names import check_deployment_key, check_deployment_name
from kvfold.schemas.tiers import Tier, tier_of

__all__ = [
    "CorruptFileError",
    "Entry",
    "NamespaceContent",
    "path_of",
    "read_file",
    "replace_file",
    "set_aside",
    "stored_files",
    "sync_folder",
]

_MAGIC: Final = "kvfold-namespace 1 "
_SUFFIX: Final = ".kv"
_UNSAFE: Final = re.compile(rb"[^a-z0-9_-]")
_NAME_CHARS_MAX: Final = 200


class CorruptFileError(Exception):
    """The file is not as it was written; the text says what is wrong with it, and nothing of what it holds."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's value, its version, and when it was written."""

    value: bytes
    version: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class NamespaceContent:
    """A namespace as a file holds it. `created_floor`: no key that is created may have this version or a lower one."""

    deployment_id: str
    namespace: str
    created_floor: int
    entries: dict[str, Entry]


def path_of(directory: Path, deployment_id: str, namespace: str) -> Path:
    """The file of a namespace. Names differ where the file system knows no case, too."""
    return directory / _file_name(deployment_id) / (_file_name(namespace) + _SUFFIX)


def stored_files(directory: Path) -> Iterator[Path]:
    """Every namespace's file under a directory."""
    return iter(sorted(directory.glob(f"*/*{_SUFFIX}")))


def read_file(path: Path) -> NamespaceContent:
    """What a file holds.

    Raises:
        CorruptFileError: it is no such file, or was damaged.
        OSError: it cannot be read.
    """
    head, _, body = path.read_bytes().partition(b"\n")
    if head != (_MAGIC + hashlib.sha256(body).hexdigest()).encode():
        raise CorruptFileError("its checksum is not that of its content")
    try:
        content = _content(json.loads(body))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptFileError("its content has another form") from error
    if path_of(path.parent.parent, content.deployment_id, content.namespace) != path:
        raise CorruptFileError("it belongs to another name")
    return content


def replace_file(path: Path, content: NamespaceContent) -> None:
    """Puts the content in the place of what the file held, all or nothing.

    Raises:
        OSError: it could not be written; the old file is as it was.
    """
    document = {
        "deployment": content.deployment_id,
        "namespace": content.namespace,
        "created_floor": content.created_floor,
        "entries": [
            [key, entry.version, entry.updated_ms, base64.b64encode(entry.value).decode("ascii")]
            for key, entry in content.entries.items()
        ],
    }
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    written = path.with_name(f".{path.name}.new")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # also where one was left behind by somebody else's umask
        file.write((_MAGIC + hashlib.sha256(body).hexdigest() + "\n").encode())
        file.write(body)
        file.flush()
        os.fsync(descriptor)
    written.replace(path)
    for folder in (path.parent, path.parent.parent):
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Makes names in a folder as lasting as their files."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Renames a file to the first name of the form `user.kv.corrupt-1` that is free, and gives that."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside


def _file_name(name: str) -> str:
    """A file name for any name: `User/1` is `%55ser%2f1`; too long a one is its SHA-256."""
    encoded = _UNSAFE.sub(lambda found: b"%%%02x" % found[0][0], name.encode()).decode("ascii")
    return encoded if len(encoded) <= _NAME_CHARS_MAX else "=" + hashlib.sha256(name.encode()).hexdigest()


def _content(document: Any) -> NamespaceContent:
    deployment_id, namespace = document["deployment"], document["namespace"]
    for name in (deployment_id, namespace):
        _require(check_deployment_name("the name", name) is None)
    # What is never written to disk is not believed where it stands there.
    _require(tier_of(namespace) is Tier.PERSISTENT)
    entries = dict(_entry(*row) for row in document["entries"])
    _require(len(entries) == len(document["entries"]))
    return NamespaceContent(deployment_id, namespace, _whole(document["created_floor"], 0), entries)


def _entry(key: str, version: int, updated_ms: int, encoded: str) -> tuple[str, Entry]:
    _require(check_deployment_key(key) is None)
    value = base64.b64decode(encoded.encode("ascii"), validate=True)
    _require(len(value) <= DEPLOYMENT_VALUE_BYTES_MAX)
    return key, Entry(value, _whole(version, 1), _whole(updated_ms, 0))


def _whole(number: Any, least: int) -> int:
    _require(type(number) is int and least <= number <= INT64_MAX)
    return int(number)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError
