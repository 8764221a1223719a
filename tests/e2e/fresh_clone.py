"""Starts kvfold as a newcomer does: clone, `./deploy/dev`, one value written and read, SIGTERM.

A script and not a test of pytest: it installs into an environment of its own, which takes a minute. Needs the standard
library only. Ends with 1, and the output of `deploy/dev`, where anything is not as it should be.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

__all__ = ["main"]

_ROOT: Final = Path(__file__).resolve().parents[2]
_READY_TIMEOUT_S: Final = 600.0
_STOP_TIMEOUT_S: Final = 60.0
_REQUEST_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.2
_SETTINGS: Final = (
    "KVFOLD_",
    "PG",
    "OCTO_",
    "ORCHESTRATOR_",
    "REDIS_URL",
    "KV_ENCRYPTION_KEY",
    "RUNTIME_SERVICES_",
)
# Without proxies: the server is on this machine.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotAsPromisedError(Exception):
    """The fresh clone did something else than it should; the message says what."""


def main() -> int:
    """Run it all; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="kvfold-fresh-clone-") as directory:
        clone, output = Path(directory) / "kvfold", Path(directory) / "output.log"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(_ROOT), str(clone)], check=True)
        port = _free_port()
        with output.open("wb") as log:
            process = _start(clone, data=Path(directory) / "data", port=port, output=log.fileno())
        try:
            _check(process, f"http://127.0.0.1:{port}")
        except NotAsPromisedError as error:
            print(
                f"fresh clone: {error}\n--- output of ./deploy/dev:\n{output.read_text(errors='replace')[-8000:]}"
            )
            return 1
        finally:
            _end(process)
    print("fresh clone: started, wrote, read and stopped as promised")
    return 0


def _start(clone: Path, *, data: Path, port: int, output: int) -> subprocess.Popen[bytes]:
    """Start `./deploy/dev` with no setting of the caller's but where to listen and where to keep its data."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("KVFOLD_", "PG", "OCTO_"))
    }
    return subprocess.Popen(
        ["./deploy/dev"],
        cwd=clone,
        env={**kept, "KVFOLD_DATA": str(data), "KVFOLD_PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _check(process: subprocess.Popen[bytes], url: str) -> None:
    started = time.monotonic()
    _wait_ready(process, url)
    print(f"fresh clone: ready after {time.monotonic() - started:.1f} s, installation included")
    value = "grüße".encode()
    path = f"{url}/deployments/fresh-clone/kv/user/greeting"
    _expect(_request("PUT", path, body=value), status=201, version="1")
    answer = _request("GET", path)
    _expect(answer, status=200, version="1")
    if answer.body != value:
        raise NotAsPromisedError(f"wrote {value!r}, read {answer.body!r}")
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NotAsPromisedError(f"it still runs {_STOP_TIMEOUT_S:.0f} s after SIGTERM") from None
    if code != 0:
        raise NotAsPromisedError(f"it ended with {code} after SIGTERM, not with 0")


class _Answer:
    """The parts of an HTTP answer that are looked at."""

    def __init__(self, status: int, version: str | None, body: bytes) -> None:
        self.status = status
        self.version = version
        self.body = body


def _request(method: str, url: str, *, body: bytes | None = None) -> _Answer:
    request = urllib.request.Request(url, data=body, method=method)
    try:
        with _OPENER.open(request, timeout=_REQUEST_TIMEOUT_S) as response:
            return _Answer(response.status, response.headers.get("X-Object-Version"), response.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return _Answer(refused.code, refused.headers.get("X-Object-Version"), refused.read())


def _expect(answer: _Answer, *, status: int, version: str) -> None:
    if (answer.status, answer.version) != (status, version):
        raise NotAsPromisedError(
            f"expected {status} with version {version}, got {answer.status} with {answer.version}: {answer.body!r}"
        )


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotAsPromisedError(f"it ended with {process.returncode} before it was ready")
        try:
            if _request("GET", f"{url}/readyz").status == 200:
                return
        except OSError:
            pass
        time.sleep(_POLL_S)
    raise NotAsPromisedError(f"it was not ready after {_READY_TIMEOUT_S:.0f} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing running: its process group first, in good order where that still works."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
