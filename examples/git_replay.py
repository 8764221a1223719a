"""Replays the history of a git repository into a kvfold deployment, one mutation for each file that a commit touched.

    kvfold dev &
    python examples/git_replay.py --repository . --deployment git-kvfold

Each file is an entry in the namespace `user`: its key is the path, its value the file's bytes. Every write says which
version it expects (the one that the write before it got, or "absent"), so whatever else writes into the deployment is
noticed as a conflict and never overwritten. Each mutation's id is made from the deployment, the commit and the path: a
write whose answer was lost is sent again with the same id and applied once, and the whole command may be stopped and
repeated. At the end every entry is compared with git.

What has no place in an entry is reported and left out: files over 1 MiB, paths that are not UTF-8, longer than 1,024
bytes or with control characters, and submodules.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self
from urllib.parse import quote
from uuid import NAMESPACE_URL, UUID, uuid5

import httpx

__all__ = [
    "Change",
    "ConflictError",
    "Deployment",
    "Difference",
    "GitRepository",
    "Replay",
    "Report",
    "differences",
    "main",
    "replay",
]

VALUE_BYTES_MAX: Final = 1_048_576
KEY_BYTES_MAX: Final = 1_024

_NAMESPACE: Final[UUID] = uuid5(NAMESPACE_URL, "urn:kvfold:examples:git-replay")
_GITLINK: Final = "160000"
_RETRY_S_MAX: Final = 2.0


# --- git ---


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit did to a path: `blob` is the object it holds from then on, None if it is gone."""

    path: bytes
    mode: str
    blob: str | None


class GitRepository:
    """Read access to a repository through git's own commands. Close it, or use it in a `with`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blobs: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def commits(self, revision: str = "HEAD") -> list[str]:
        """All commits that lead to the revision, parents before children. A shallow clone has only some of them."""
        return self._run("rev-list", "--topo-order", "--reverse", revision).decode("ascii").split()

    def empty_tree(self) -> str:
        """The tree without files, which every git knows; its name depends on the repository's hash function."""
        return self._run("hash-object", "-t", "tree", "/dev/null").decode("ascii").strip()

    def changes(self, before: str, after: str) -> Iterator[Change]:
        """What differs between two commits (or trees). A rename is a deletion and a new file."""
        fields = self._run("diff-tree", "-r", "-z", "--no-renames", before, after).split(b"\0")
        for description, path in zip(fields[0::2], fields[1::2], strict=False):
            # ":100644 100755 OLD NEW M"; a path that is gone has mode 000000.
            _, mode, _, blob, status = description.decode("ascii").lstrip(":").split(" ")
            yield Change(path, mode, None if status == "D" else blob)

    def tree(self, revision: str = "HEAD") -> dict[bytes, tuple[str, str]]:
        """The files of a revision, path to (mode, object), as `git ls-tree -r` lists them."""
        found = {}
        for line in self._run("ls-tree", "-r", "-z", "--full-tree", revision).split(b"\0"):
            if line:
                description, _, path = line.partition(b"\t")
                mode, _, blob = description.decode("ascii").split(" ")
                found[path] = (mode, blob)
        return found

    def blob(self, name: str) -> bytes:
        """The bytes of an object."""
        if self._blobs is None:
            command = ["git", "-C", str(self._path), "cat-file", "--batch"]
            self._blobs = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        requests, answers = _pipe(self._blobs.stdin), _pipe(self._blobs.stdout)
        requests.write(name.encode("ascii") + b"\n")
        requests.flush()
        header = answers.readline().split()
        if len(header) != 3:
            raise RuntimeError(f"git has no object {name}")
        content = answers.read(int(header[2]) + 1)
        return content[:-1]

    def close(self) -> None:
        """Ends the git process that reads objects."""
        if self._blobs is not None:
            self._blobs.communicate()
            self._blobs = None

    def _run(self, *arguments: str) -> bytes:
        command = ["git", "-C", str(self._path), *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "the process was started with pipes"
    return pipe


# --- kvfold ---


class ConflictError(Exception):
    """An entry has another version than the replay left it with: somebody else writes into the deployment."""


class Deployment:
    """A deployment's entries in the namespace `user`, over HTTP. Safe to use from several threads.

    A request whose outcome is unknown (no connection, a lost answer, 503) is repeated with the same `Idempotency-Key` for up
    to `patience_s` seconds: kvfold then answers what it decided the first time.
    """

    def __init__(self, url: str, deployment: str, *, patience_s: float = 60.0) -> None:
        # kvfold answers a write within 8 seconds.
        self._client = httpx.Client(base_url=url, timeout=20.0, trust_env=False)
        self._base = f"/deployments/{quote(deployment, safe='')}"
        self._patience_s = patience_s
        self.name = deployment
        self.repeated = 0
        self.position = ""
        """Of the last of all writes so far: what everything written until now is covered by."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def put(self, key: str, value: bytes, *, version: int, mutation_id: UUID) -> int:
        """Writes an entry that has `version` now (0 = it is absent) and gives its new version.

        Raises:
            ConflictError: it has another version.
        """
        answer = self._write("PUT", key, version, mutation_id, value)
        return int(answer.headers["X-Object-Version"])

    def delete(self, key: str, *, version: int, mutation_id: UUID) -> None:
        """Deletes an entry that has `version` now.

        Raises:
            ConflictError: it has another version.
        """
        self._write("DELETE", key, version, mutation_id, None)

    def get(self, key: str, *, as_of: str | None = None) -> bytes | None:
        """The value of an entry, now or as of a position; None if there is none."""
        parameters = {} if as_of is None else {"as_of": as_of}
        answer = self._patiently(lambda: self._client.get(self._entry(key), params=parameters))
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        return answer.content

    def list_keys(self, *, as_of: str | None = None) -> list[str]:
        """The keys of all entries in byte order, page by page, now or as of a position."""
        found: list[str] = []
        parameters = {"namespace": "user", "limit": "1000"} | ({} if as_of is None else {"as_of": as_of})
        while True:
            answer = self._patiently(lambda: self._client.get(f"{self._base}/objects", params=parameters))
            answer.raise_for_status()
            page = answer.json()
            found += [entry["key"] for entry in page["objects"]]
            if page["next_cursor"] is None:
                return found
            parameters["cursor"] = page["next_cursor"]

    def _entry(self, key: str) -> str:
        # No path in git has a segment "." or "..", so nothing on the way rewrites this one.
        return f"{self._base}/kv/user/{quote(key, safe='/')}"

    def _write(
        self, method: str, key: str, version: int, mutation_id: UUID, value: bytes | None
    ) -> httpx.Response:
        headers = {"X-Object-Version": str(version), "Idempotency-Key": str(mutation_id)}
        answer = self._patiently(
            lambda: self._client.request(method, self._entry(key), headers=headers, content=value)
        )
        if answer.status_code == 409:
            current = answer.headers.get("X-Object-Version", "unknown")
            raise ConflictError(f"{key!r} was expected at version {version} and is at {current}")
        if answer.is_error:
            raise RuntimeError(f"{method} {key!r}: {answer.status_code} {answer.text[:500]}")
        with self._lock:
            # All of a deployment stands in one partition, so the later position is the one with the higher offset.
            self.position = max(self.position, answer.headers["X-Kvfold-Position"], key=_offset)
        return answer

    def _patiently(self, request: Callable[[], httpx.Response]) -> httpx.Response:
        deadline, delay_s = time.monotonic() + self._patience_s, 0.05
        while True:
            try:
                answer = request()
                if answer.status_code != 503 or time.monotonic() > deadline:
                    return answer
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
            self.repeated += 1
            time.sleep(delay_s)
            delay_s = min(2 * delay_s, _RETRY_S_MAX)


def _offset(position: str) -> int:
    return int(position.partition(":")[2] or -1)


# --- the replay ---


@dataclass(slots=True)
class Report:
    """What a replay did. `skipped` names each path that has no entry in the end, with the reason."""

    commits: int = 0
    puts: int = 0
    deletes: int = 0
    skipped: dict[bytes, str] = field(default_factory=dict)

    @property
    def mutations(self) -> int:
        """Mutations that were applied."""
        return self.puts + self.deletes


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry that is not as git has it."""

    path: bytes
    what: str


class Replay:
    """The state of a replay: the version that each entry has. `step` replays one commit."""

    def __init__(
        self,
        repository: GitRepository,
        deployment: Deployment,
        *,
        parallel: int = 8,
        before_write: Callable[[int], None] = lambda number: None,
    ) -> None:
        """`parallel` writes of one commit are on their way at once; `before_write` is told the number of each write."""
        self._repository = repository
        self._deployment = deployment
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="replay")
        self._before_write = before_write
        self._versions: dict[bytes, int] = {}
        self._previous = repository.empty_tree()
        self._numbered = 0
        self.report = Report()

    def step(self, commit: str) -> None:
        """Brings the deployment from the commit before to this one; every write is decided when it returns.

        The order of commits is one line, also where the history forks: each step is the difference to the commit
        replayed before it, so that the last one leaves exactly its own tree.
        """
        writes = []
        for change in self._repository.changes(self._previous, commit):
            write = self._write_of(change, commit)
            if write is not None:
                writes.append(write)
        # Different paths are different entries: their order within the commit does not matter.
        for done in [self._pool.submit(write) for write in writes]:
            done.result()
        self._previous = commit
        self.report.commits += 1

    def close(self) -> None:
        """Waits for writes under way."""
        self._pool.shutdown()

    def _write_of(self, change: Change, commit: str) -> Callable[[], None] | None:
        """The write that a change asks for, None if it asks for none."""
        path, version = change.path, self._versions.get(change.path, 0)
        value = self._value(change)
        if value is None and version == 0:
            return None
        self._numbered += 1
        number, key = self._numbered, path.decode()
        mutation_id = uuid5(_NAMESPACE, f"{self._deployment.name}\n{commit}\n{key}")
        if value is None:
            del self._versions[path]
            self.report.deletes += 1
        else:
            self.report.puts += 1

        def write() -> None:
            self._before_write(number)
            if value is None:
                self._deployment.delete(key, version=version, mutation_id=mutation_id)
            else:
                self._versions[path] = self._deployment.put(
                    key, value, version=version, mutation_id=mutation_id
                )

        return write

    def _value(self, change: Change) -> bytes | None:
        """The entry's value after the change; None if the path has none, with the reason in the report."""
        self.report.skipped.pop(change.path, None)
        if change.blob is None:
            return None
        reason = _unfit(change.path, change.mode)
        if reason is None:
            value = self._repository.blob(change.blob)
            if len(value) <= VALUE_BYTES_MAX:
                return value
            reason = f"{len(value)} bytes, at most {VALUE_BYTES_MAX} fit into an entry"
        self.report.skipped[change.path] = reason
        return None


def replay(
    repository: GitRepository,
    deployment: Deployment,
    commits: Sequence[str],
    *,
    parallel: int = 8,
    before_write: Callable[[int], None] = lambda number: None,
    after_commit: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Replays the commits in this order and says what was done.

    Raises:
        ConflictError: somebody else writes into the deployment, or it was not empty.
    """
    state = Replay(repository, deployment, parallel=parallel, before_write=before_write)
    try:
        for commit in commits:
            state.step(commit)
            after_commit(state.report)
    finally:
        state.close()
    return state.report


def differences(
    repository: GitRepository,
    deployment: Deployment,
    revision: str,
    skipped: Mapping[bytes, str],
    *,
    as_of: str | None = None,
) -> list[Difference]:
    """Compares every entry with git: the list of keys with `git ls-tree`, each value with `git cat-file`.

    As of a position they are compared as they were then.
    """
    tree = {path: blob for path, (_, blob) in repository.tree(revision).items() if path not in skipped}
    keys = [key.encode() for key in deployment.list_keys(as_of=as_of)]
    found = [Difference(path, "is in git and is no entry") for path in sorted(tree.keys() - set(keys))]
    found += [Difference(path, "is an entry and is not in git") for path in sorted(set(keys) - tree.keys())]
    if keys != sorted(set(keys)):
        found.append(Difference(b"", "the list is not in byte order, or names a key twice"))
    for path in sorted(tree.keys() & set(keys)):
        if deployment.get(path.decode(), as_of=as_of) != repository.blob(tree[path]):
            found.append(Difference(path, "has another value than git"))
    return found


def _unfit(path: bytes, mode: str) -> str | None:
    """Why a path cannot be an entry; None if it can."""
    if mode == _GITLINK:
        return "a submodule has no content here"
    try:
        key = path.decode()
    except UnicodeDecodeError:
        return "the path is not UTF-8"
    if len(path) > KEY_BYTES_MAX:
        return f"the path has {len(path)} bytes, at most {KEY_BYTES_MAX} fit into a key"
    if any(ord(character) < 0x20 or 0x7F <= ord(character) <= 0x9F for character in key):
        return "the path holds a control character"
    return None


# --- the command ---


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 if the deployment is in the end what git has at the revision, else 1."""
    options = _parser().parse_args(arguments)
    with (
        GitRepository(options.repository) as repository,
        Deployment(options.url, options.deployment) as deployment,
    ):
        commits = repository.commits(options.revision)[: options.limit]
        if not commits:
            print("the repository has no commits", file=sys.stderr)
            return 1
        started = time.monotonic()

        def tell(report: Report) -> None:
            if report.commits % 100 == 0 or report.commits == len(commits):
                print(
                    f"{report.commits} of {len(commits)} commits, {report.mutations} mutations",
                    file=sys.stderr,
                )

        report = replay(repository, deployment, commits, parallel=options.parallel, after_commit=tell)
        found = differences(repository, deployment, commits[-1], report.skipped)
    summary = {
        "commits": report.commits,
        "puts": report.puts,
        "deletes": report.deletes,
        "repeated": deployment.repeated,
        "skipped": {_shown(path): reason for path, reason in report.skipped.items()},
        "differences": [f"{_shown(one.path)} {one.what}" for one in found],
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(summary, indent=2, ensure_ascii=False))
    return 1 if found else 0


def _shown(path: bytes) -> str:
    return path.decode(errors="backslashreplace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Replays a git repository's history into a kvfold deployment."
    )
    project = Path(__file__).resolve().parents[1]
    parser.add_argument("--repository", type=Path, default=project, help="any path in it (this project)")
    parser.add_argument("--revision", default="HEAD", help="the last commit to replay (HEAD)")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="where kvfold is")
    parser.add_argument("--deployment", default="git", help="the deployment's id; it has to be empty (git)")
    parser.add_argument("--limit", type=int, help="replay only so many commits, the oldest ones")
    parser.add_argument("--parallel", type=int, default=8, help="writes on their way at once (8)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
