"""Processes of servers: whether one is alive, and how it is made to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvfold.deploy.server_errors import EmbeddedPostgresError

__all__ = ["ServerProcess", "is_alive", "terminate"]

_POLL_S: Final = 0.02
_KILL_TIMEOUT_S: Final = 10.0


class ServerProcess:
    """A child of ours: asking whether it is alive also collects it when it is dead."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def is_alive(self) -> bool:
        return self._process.poll() is None


def is_alive(pid: int, *, marks: Sequence[str] = ()) -> bool:
    """Say whether process `pid` runs and its command line holds every mark; a zombie is dead."""
    state, command = _state_and_command(pid)
    return bool(state) and not state.startswith("Z") and all(mark in command for mark in marks)


def terminate(process: ServerProcess | int, *, first: signal.Signals, timeout_s: float) -> None:
    """End a PostgreSQL server, harder at each step, and return when it is gone.

    `first` is sent at once; after `timeout_s` comes SIGQUIT (immediate shutdown), after ten more seconds SIGKILL.
    Raises `EmbeddedPostgresError` where even that does not end it.
    """
    pid = process if isinstance(process, int) else process.pid
    for number, seconds in (
        (first, timeout_s),
        (signal.SIGQUIT, _KILL_TIMEOUT_S),
        (signal.SIGKILL, _KILL_TIMEOUT_S),
    ):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        if _wait_gone(process, seconds):
            return
    raise EmbeddedPostgresError(f"process {pid} of PostgreSQL does not end, not even by SIGKILL")


def _wait_gone(process: ServerProcess | int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        alive = is_alive(process) if isinstance(process, int) else process.is_alive()
        if not alive:
            return True
        time.sleep(_POLL_S)
    return False


def _state_and_command(pid: int) -> tuple[str, str]:
    """Return the state letters and the command line of a process, both empty where there is none."""
    if sys.platform == "linux":
        try:
            # The second field is the name in parentheses, which may hold anything; the state follows the last one.
            state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except (FileNotFoundError, ProcessLookupError):
            return "", ""
        return state, os.fsdecode(command)
    answer = subprocess.run(
        ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, command = answer.stdout.strip().partition(" ")
    return state, command
