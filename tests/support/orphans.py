"""Servers end with the tests, however these end: also by SIGKILL, which no cleanup of ours survives."""

from __future__ import annotations

import subprocess

__all__ = ["Leash"]

# The shell waits for the end of its input, which comes when the last holder of the pipe's other end is gone.
_WATCH = 'trap "" INT HUP; read _; kill -9 "$0" 2>/dev/null'


class Leash:
    """Kills process `pid` when this process ends without having called `release`."""

    def __init__(self, pid: int) -> None:
        self._watcher = subprocess.Popen(
            ["sh", "-c", _WATCH, str(pid)], stdin=subprocess.PIPE, start_new_session=True
        )

    def release(self) -> None:
        """Let go: the process number may belong to another program from now on."""
        self._watcher.kill()
        self._watcher.communicate()
