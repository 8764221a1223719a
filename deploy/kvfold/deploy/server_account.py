"""The system account under which a server that refuses to run as root is started.

Promises: an ordinary user's servers run as that user, with nothing changed. As root, servers run as the owner of their
directory, or as the account `kvfold`, which is made when it is missing.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvfold.deploy.server_errors import EmbeddedPostgresError

__all__ = ["Account", "account_for", "launcher"]

_ACCOUNT_NAME = "kvfold"
# Where no account can be made (no useradd, read-only /etc), these exist on most systems.
_ACCOUNT_FALLBACKS = ("postgres", "nobody", "_postgres")

# With either of these a process may pass directories that its user may not enter; the first gives away less. Their
# numbers are the kernel's (capability.h); a container often has only the second.
_CAPABILITIES = (("dac_read_search", 2), ("dac_override", 1))


@dataclass(frozen=True)
class Account:
    """A user that a server runs as, and the groups that count when it opens a file."""

    name: str
    uid: int
    gid: int

    def is_current(self) -> bool:
        return self.uid == os.geteuid()


def account_for(directory: Path) -> Account:
    """Return the account for a server that keeps its data in `directory` (which need not exist yet).

    Raises `EmbeddedPostgresError` where the process runs as root and no other account exists or can be made.
    """
    if os.geteuid() != 0:
        return _account(pwd.getpwuid(os.geteuid()).pw_name, os.geteuid(), os.getegid())
    owner = directory.stat() if directory.exists() else None
    if owner is not None and owner.st_uid != 0:
        return _account(f"uid {owner.st_uid}", owner.st_uid, owner.st_gid)
    if _named_account(_ACCOUNT_NAME) is None:
        _make_account(_ACCOUNT_NAME)
    for name in (_ACCOUNT_NAME, *_ACCOUNT_FALLBACKS):
        account = _named_account(name)
        if account is not None:
            return account
    raise EmbeddedPostgresError(
        f"PostgreSQL does not run as root, and no account for it exists: make one with 'useradd --system {_ACCOUNT_NAME}'"
    )


def launcher(account: Account, paths: Iterable[Path]) -> list[str]:
    """Return the command words to put before a command that `account` shall run; empty where none are needed.

    Every path must be reachable for the account. Where a directory above one is closed to it, as /root is, the words
    grant the one capability that opens it; with them the process must not be switched to the account by other means.
    Raises `EmbeddedPostgresError`, which names the closed directory, where that is not possible.
    """
    if account.is_current():
        return []
    closed = next((d for path in paths if (d := _closed_directory(path, account)) is not None), None)
    if closed is None:
        return []
    setpriv = shutil.which("setpriv")
    capability = _capability_held()
    if setpriv is None or capability is None:
        raise EmbeddedPostgresError(
            f"the user {account.name}, as whom PostgreSQL runs, may not enter {closed}: "
            f"allow it (chmod o+x {closed}), or keep data and program in another place"
        )
    ids = [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
    # access(2), by which PostgreSQL's programs look for one another, forgets capabilities unless told not to.
    rights = [f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}", "--securebits=+no_setuid_fixup"]
    return [setpriv, *ids, *rights]


def _account(name: str, uid: int, gid: int) -> Account:
    return Account(name=name, uid=uid, gid=gid)


def _named_account(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return None if entry.pw_uid == 0 else _account(name, entry.pw_uid, entry.pw_gid)


def _make_account(name: str) -> None:
    """Make a system account without home and login; does nothing where that is not possible."""
    useradd = shutil.which("useradd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if useradd is not None:
        command = [
            useradd,
            "--system",
            "--user-group",
            "--no-create-home",
            "--shell",
            "/usr/sbin/nologin",
            name,
        ]
        subprocess.run(command, check=False, capture_output=True, timeout=30)


def _closed_directory(path: Path, account: Account) -> Path | None:
    """Return the topmost directory above `path` (itself included) that the account may not enter.

    Judged by the mode bits alone: access control lists are not read.
    """
    for directory in (*reversed(path.parents), path):
        if not directory.is_dir():
            return None
        status = directory.stat()
        if status.st_uid == account.uid:
            allowed = status.st_mode & 0o100
        elif status.st_gid == account.gid:
            allowed = status.st_mode & 0o010
        else:
            allowed = status.st_mode & 0o001
        if not allowed:
            return directory
    return None


def _capability_held() -> str | None:
    """Return the name of a capability of this process that opens closed directories, None where it has none."""
    if sys.platform != "linux":
        return None
    status = Path("/proc/self/status").read_text()
    held = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    return next((name for name, number in _CAPABILITIES if held >> number & 1), None)
