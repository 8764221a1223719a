"""A Redis (or Valkey) server as a process of its own, which a test may kill, pause and restart."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from redis import Redis
from redis.exceptions import RedisError

from support.kafka_jars import ServerMissingError
from support.kvfold_process import wait_until
from support.orphans import Leash

__all__ = ["RedisServer"]


class RedisServer:
    """Keeps nothing on disk, as the volatile tier is meant to run; `options` are those of `redis.conf`."""

    def __init__(self, directory: Path, **options: str) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._options = {"save": "", "appendonly": "no", "bind": "127.0.0.1", **options}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Starts it, empty, and returns when it answers.

        Raises:
            ServerMissingError: neither Redis nor Valkey is installed.
        """
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise ServerMissingError("no Redis server for the tests: install redis or valkey")
        options = [word for name, value in self._options.items() for word in (f"--{name}", value)]
        with (self._directory / "redis.log").open("ab") as output:
            self._process = subprocess.Popen(
                [program, "--port", str(self.port), "--dir", str(self._directory), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._leash = Leash(self._process.pid)
        wait_until(self._answers, what=lambda: (self._directory / "redis.log").read_text()[-2_000:])

    def kill(self) -> None:
        """SIGKILL: everything in it is gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._leash is not None:
            self._leash.release()
            self._leash = None

    def restart(self) -> None:
        """Kills it and starts it again at the same address, empty."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: it takes connections, and answers nobody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> Redis:
        """A bare client, as another runtime may have it."""
        return Redis.from_url(self.url)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ServerMissingError(f"Redis ended: {(self._directory / 'redis.log').read_text()[-2_000:]}")
        try:
            with self.client() as client:
                return bool(client.ping())
        except RedisError:
            return False
