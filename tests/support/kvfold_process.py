"""A kvfold process under test: started as a user starts it, waited for by what it says, killed or paused at will.

Its output, both streams, is one file; every failure here quotes the end of it. Logs are JSON lines, so that a test can
wait for an event and read its fields:

```
with KvfoldProcess("projector", environment={"KVFOLD_POSTGRES": dsn}, output=tmp_path / "projector.log") as process:
    process.wait_for_event("projector ready")
    process.kill()
```
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from support.orphans import Leash

__all__ = ["KvfoldProcess", "KvfoldProcessError", "clean_environment", "wait_until"]

TIMEOUT_S: Final = 90.0
"""How long anything is waited for; generous, since the machine is shared and nothing is timed."""

_POLL_S: Final = 0.02
_QUOTED_CHARS: Final = 6_000
_SETTINGS: Final = ("KVFOLD_", "PG", "OCTO_", "ORCHESTRATOR_", "REDIS_URL", "KV_ENCRYPTION_KEY")

_T = TypeVar("_T")


class KvfoldProcessError(AssertionError):
    """The process did something else than the test waits for; the message quotes its output."""


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process without any setting of kvfold, PostgreSQL or Redis, and with `settings`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    return {**kept, **settings}


def wait_until(
    condition: Callable[[], _T | None], *, what: Callable[[], str], timeout_s: float = TIMEOUT_S
) -> _T:
    """Asks until the condition gives something that is true; fails with what `what` says then."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise KvfoldProcessError(f"not within {timeout_s:.0f} s: {what()}")
        time.sleep(_POLL_S)


class KvfoldProcess:
    """One process `kvfold COMMAND …`; a context manager that starts it, and ends it by SIGKILL if it still runs.

    `start` may be called again after the process has ended: same command, same output file, another process.
    """

    def __init__(
        self, *command: str, environment: Mapping[str, str], output: Path, module: str = "kvfold.deploy.cli"
    ) -> None:
        self._command = [sys.executable, "-m", module, *command]
        self._name = f"kvfold {' '.join(command)}"
        self._environment = {"KVFOLD_LOG_FORMAT": "json", "KVFOLD_LOG_LEVEL": "info", **environment}
        self._output = output
        self._begun_at = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None:
            error.add_note(self._quoted())

    @property
    def pid(self) -> int:
        """The process id, also after its end."""
        assert self._process is not None, "the process was started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Starts the process; what it says from now on is what the waits below look at."""
        assert self._process is None or self._process.poll() is not None, "one at a time"
        with self._output.open("ab") as output:
            self._begun_at = output.tell()
            self._process = subprocess.Popen(
                self._command,
                env=clean_environment(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._leash = Leash(self._process.pid)

    # --- what it says ---

    def text(self, *, all_starts: bool = False) -> str:
        """Everything it has said since its last start, or since its first one."""
        with self._output.open("rb") as output:
            output.seek(0 if all_starts else self._begun_at)
            return output.read().decode(errors="replace")

    def events(self, name: str, *, all_starts: bool = False) -> Iterator[dict[str, Any]]:
        """The events of this name in its log since its last start (or first one), with their fields."""
        for line in self.text(all_starts=all_starts).splitlines():
            if line.startswith("{") and line.endswith("}"):
                fields = json.loads(line)
                if fields.get("event") == name:
                    yield fields

    def wait_for_event(self, name: str, *, timeout_s: float = TIMEOUT_S, **fields: object) -> dict[str, Any]:
        """Waits for the first event of this name that has these fields."""

        def found() -> dict[str, Any] | None:
            ended = self.exit_code is not None
            for event in self.events(name):
                if fields.items() <= event.items():
                    return event
            if ended:
                raise self._error(f"it ended before the event {name!r}")
            return None

        return wait_until(found, what=lambda: f"the event {name!r}; {self._quoted()}", timeout_s=timeout_s)

    def wait_for_text(self, text: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Waits until its output holds the text."""

        def found() -> bool:
            ended = self.exit_code is not None
            if text in self.text():
                return True
            if ended:
                raise self._error(f"it ended before it said {text!r}")
            return False

        wait_until(found, what=lambda: f"the text {text!r}; {self._quoted()}", timeout_s=timeout_s)

    def wait_until_serving(self, *, timeout_s: float = TIMEOUT_S) -> str:
        """Waits for the HTTP server's event `server started` and for a `/readyz` of 200; gives its base URL."""
        event = self.wait_for_event("server started", timeout_s=timeout_s)
        host, port = str(event["host"]), int(event["port"])
        self.wait_until_ready(host, port, timeout_s=timeout_s)
        return f"http://{host}:{port}"

    def wait_until_ready(self, host: str, port: int, *, timeout_s: float = TIMEOUT_S) -> None:
        """Waits until `/readyz` at this address answers 200."""
        last = "no answer"

        def ready() -> bool:
            nonlocal last
            if self.exit_code is not None:
                raise self._error("it ended before it was ready")
            status, last = _get(host, port, "/readyz")
            return status == 200

        wait_until(ready, what=lambda: f"/readyz is {last!r}; {self._quoted()}", timeout_s=timeout_s)

    # --- what is done to it ---

    def kill(self) -> None:
        """SIGKILL, and waits for its end; nothing if it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._let_go()

    def pause(self) -> None:
        """SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        assert self._process is not None, "the process was started"
        self._process.send_signal(number)

    def terminate(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """SIGTERM, and waits for the orderly end; gives the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s=timeout_s)

    def wait(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """Waits for the end; gives the exit code, negative for a signal."""
        assert self._process is not None, "the process was started"
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._error(f"it still runs after {timeout_s:.0f} s") from None
        self._let_go()
        return code

    def _let_go(self) -> None:
        leash, self._leash = self._leash, None
        if leash is not None:
            leash.release()

    def _error(self, what: str) -> KvfoldProcessError:
        return KvfoldProcessError(f"{what}; {self._quoted()}")

    def _quoted(self) -> str:
        code = self.exit_code
        state = "runs" if code is None else f"ended with {code}"
        return f"{self._name} {state}, its output ends:\n{self.text()[-_QUOTED_CHARS:]}"


def _get(host: str, port: int, path: str) -> tuple[int, str]:
    """Status and body; status 0 where nobody answers."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(2_000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()
