"""How a long-running command is asked to stop: SIGTERM or Ctrl-C, also while it is still starting."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["StopRequest", "stop_signals"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Set once, then set for ever. `set` is safe in a signal handler and in any thread.

    A pipe and not a `threading.Event`: a handler runs between two bytecodes of the main thread, which may hold the
    event's lock just then.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def set(self) -> None:
        """Asks for the stop."""
        os.write(self._write, b"x")

    def fileno(self) -> int:
        """A descriptor that is readable from the request on, for waits on several things at once."""
        return self._read

    def is_set(self) -> bool:
        """Whether the stop was asked for."""
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the request, for ever or for `timeout_s` seconds; says whether it came."""
        # The byte stays in the pipe, so that every waiter sees it.
        return bool(select.select([self._read], [], [], timeout_s)[0])


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turns the first SIGTERM or Ctrl-C into a request, and a second one into `KeyboardInterrupt`: at once.

    For the main thread; the earlier handlers are back at the end.
    """
    request = StopRequest()

    def asked(number: int, frame: FrameType | None) -> None:
        if request.is_set():
            raise KeyboardInterrupt
        request.set()

    earlier = {number: signal.signal(number, asked) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
