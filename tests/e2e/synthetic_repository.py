"""A git repository with a history that is hard on a key-value store, made in a second by `git fast-import`.

The same seed makes the same commits. The history holds every kind of change that git knows: new files, edits, deletes,
re-creations, renames, changes of mode and kind, a file that becomes a folder and the reverse, forks and merges; and
contents and paths at the edges: empty files, all bytes, exactly 1 MiB and one byte more, text in many scripts, the same
name composed and decomposed, characters that mean something in a URL, and paths that cannot be keys at all.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["REPORTED_PATHS", "make_repository"]

_MEBIBYTE: Final = 1_048_576
_FILE: Final = "100644"
_EXECUTABLE: Final = "100755"
_SYMLINK: Final = "120000"
_GITLINK: Final = "160000"
_MERGE_EVERY: Final = 17
_WHO: Final = "Nobody <nobody@example.org>"

_PATHS: Final = tuple(
    path.encode()
    for path in (
        "README",
        "readme",
        "src/main.py",
        "src/main.pyc",
        "docs/привет, мир.txt",
        "docs/שלום עולם.txt",
        "docs/日本語/読んで.md",
        "emoji/🚀🛰️👩‍🚀.txt",
        "caf\u00e9/composed",
        "cafe\u0301/decomposed",
        "url/a%2Fb.txt",
        "url/100%.txt",
        "url/q?x=1&y=2#part.txt",
        "url/plus+sign and space.txt",
        " leading and trailing ",
        'quo"ted.txt',
        "back\\slash.txt",
        "semi;colon,comma=equals@at",
        "..hidden/...three/....four",
        "like/a_b%c",
        "like/aXbYc",
        "long/" + "d" * 250 + "/" + "n" * 250,
    )
)
REPORTED_PATHS: Final = (b"latin/\xe9t\xe9.txt", b"tab\there.txt", b"vendor/module", b"big/over.bin")
"""Paths at the head of every made repository that have no entry."""


class _History:
    """The stream of fast-import, and the files of the branch that it is at."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.files: dict[bytes, tuple[str, bytes]] = {}
        self.stream = bytearray()
        self._marks = 0

    def commit(self, branch: str, change: Callable[[], None], *, parents: tuple[int, ...]) -> int:
        """Adds a commit whose files differ from its first parent's by what `change` writes; gives its mark."""
        self._marks += 1
        mark = self._marks
        message = f"Commit {mark}".encode()
        stamp = f"{_WHO} {1_700_000_000 + mark} +0000"
        self._line(f"commit refs/heads/{branch}")
        self._line(f"mark :{mark}")
        self._line(f"committer {stamp}")
        self._data(message)
        for keyword, parent in zip(("from", "merge"), parents, strict=False):
            self._line(f"{keyword} :{parent}")
        change()
        self._line("")
        return mark

    def put(self, path: bytes, content: bytes, mode: str = _FILE) -> None:
        """Writes a file; what stood in its way (a folder of the name, a file as a folder of it) is gone."""
        for other in list(self.files):
            if other.startswith(path + b"/") or path.startswith(other + b"/"):
                del self.files[other]
        self.files[path] = (mode, content)
        if mode == _GITLINK:
            self.stream += f"M {mode} {content.decode('ascii')} ".encode() + _quoted(path) + b"\n"
            return
        self.stream += f"M {mode} inline ".encode() + _quoted(path) + b"\n"
        self._data(content)

    def delete(self, path: bytes) -> None:
        """Deletes a file."""
        del self.files[path]
        self.stream += b"D " + _quoted(path) + b"\n"

    def content(self) -> bytes:
        """Something to write: often short text, sometimes bytes of all kinds, sometimes nothing."""
        kind = self.draw.randrange(10)
        if kind == 0:
            return b""
        if kind == 1:
            return bytes(range(256)) + self.draw.randbytes(self.draw.randrange(2_000))
        if kind == 2:
            return self.draw.randbytes(self.draw.randrange(60_000))
        return f"line {self.draw.random()}\n".encode() * self.draw.randrange(1, 40)

    def _line(self, text: str) -> None:
        self.stream += text.encode() + b"\n"

    def _data(self, content: bytes) -> None:
        self.stream += f"data {len(content)}\n".encode() + content + b"\n"


def make_repository(path: Path, *, seed: int, commits: int) -> Path:
    """Makes a bare repository with at least so many commits on branch `main`; gives its path."""
    history = _History(seed)
    at = history.commit("main", lambda: _edges_first(history), parents=())
    number = 1
    while number < commits:
        if number % _MERGE_EVERY == 0:
            at, made = _fork_and_merge(history, at)
            number += made
        else:
            at = history.commit("main", lambda: _some_changes(history), parents=(at,))
            number += 1
    at = history.commit("main", lambda: _edges_last(history), parents=(at,))
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(path)], check=True)
    subprocess.run(
        ["git", "-C", str(path), "fast-import", "--quiet"], input=bytes(history.stream), check=True
    )
    return path


def _edges_first(history: _History) -> None:
    """Everything that has an edge, before the random changes."""
    for path in _PATHS:
        history.put(path, history.content())
    history.put(b"big/exact.bin", history.draw.randbytes(_MEBIBYTE))
    history.put(b"big/over.bin", b"small at first")
    history.put(b"big/shrinks.bin", bytes(_MEBIBYTE + 1))
    history.put(b"empty", b"")
    history.put(b"link", b"src/main.py", _SYMLINK)
    history.put(b"kind", b"a file")
    history.put(b"latin/\xe9t\xe9.txt", b"not UTF-8")
    history.put(b"tab\there.txt", b"a control character")


def _edges_last(history: _History) -> None:
    """The head: an entry that grew too large, one that fits again, a folder that is a file again, a re-creation."""
    history.put(b"big/over.bin", bytes(_MEBIBYTE + 1))
    history.put(b"big/shrinks.bin", b"fits")
    history.put(b"kind", b"a file again")
    history.put(b"empty", b"")
    history.put(b"big/exact.bin", history.draw.randbytes(_MEBIBYTE))
    history.put(b"vendor/module", b"1" * 40, _GITLINK)
    history.put(b"latin/\xe9t\xe9.txt", b"not UTF-8, still")
    history.put(b"tab\there.txt", b"a control character, still")


def _some_changes(history: _History) -> None:
    """One to five changes of any kind."""
    for _ in range(history.draw.randrange(1, 6)):
        history.draw.choice(_CHANGES)(history)


def _edit(history: _History) -> None:
    history.put(history.draw.choice(_PATHS), history.content())


def _add(history: _History) -> None:
    folder = history.draw.choice(("src", "docs/日本語", "deep/er/and/deeper", "kind"))
    history.put(f"{folder}/file-{history.draw.randrange(60)}".encode(), history.content())


def _remove(history: _History) -> None:
    known = sorted(history.files)
    if len(known) > 10:
        history.delete(history.draw.choice(known))


def _rename(history: _History) -> None:
    known = sorted(path for path, (mode, _) in history.files.items() if mode != _GITLINK)
    old = history.draw.choice(known)
    mode, content = history.files[old]
    history.delete(old)
    history.put(f"moved/{history.draw.randrange(40)} ↦".encode(), content, mode)


def _make_executable(history: _History) -> None:
    path = history.draw.choice(_PATHS)
    if path in history.files:
        history.put(path, history.files[path][1], _EXECUTABLE)


def _file_or_folder(history: _History) -> None:
    if b"kind" in history.files:
        history.put(b"kind/of/folder", history.content())
    else:
        history.put(b"kind", history.content())


_CHANGES: Final = (
    _edit,
    _edit,
    _edit,
    _add,
    _add,
    _remove,
    _remove,
    _rename,
    _make_executable,
    _file_or_folder,
)


def _fork_and_merge(history: _History, base: int) -> tuple[int, int]:
    """A side branch of some commits and a merge that takes its files as they are; gives mark and commits made."""
    before = dict(history.files)
    branch = f"side-{base}"
    at, made = base, 0
    for _ in range(history.draw.randrange(1, 4)):
        at = history.commit(branch, lambda: _some_changes(history), parents=(at,))
        made += 1
    side = history.files
    history.files = dict(before)
    main = history.commit("main", lambda: _some_changes(history), parents=(base,))

    def take_side() -> None:
        for path in sorted(history.files.keys() - side.keys()):
            if path in history.files:
                history.delete(path)
        for path in sorted(side):
            if history.files.get(path) != side[path]:
                history.put(path, side[path][1], side[path][0])

    return history.commit("main", take_side, parents=(main, at)), made + 2


def _quoted(path: bytes) -> bytes:
    """A path as fast-import reads any bytes: in double quotes, with C escapes."""
    escaped = b"".join(
        bytes((byte,)) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}".encode()
        for byte in path
    )
    return b'"' + escaped + b'"'
