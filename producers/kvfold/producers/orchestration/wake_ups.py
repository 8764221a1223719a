"""Waking up when projectors have committed: one connection that listens, for every loop of a worker.

A notification is only a hint. A loop that found nothing waits for the next one, or for its own interval.
"""

from __future__ import annotations

import threading
from typing import Final

import psycopg

from kvfold.schemas.projection import NOTIFY_CHANNEL

__all__ = ["WakeUps"]

_LOOK_S: Final = 0.5
_RETRY_S: Final = 0.5


class WakeUps:
    """Counts commits of projectors; `wait` returns when the count has moved on. One thread, from `start` to `close`."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._changed = threading.Condition()
        self._count = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="worker-wake-ups", daemon=True)

    @property
    def count(self) -> int:
        """How often something has happened; take it before looking for work."""
        return self._count

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def wake(self) -> None:
        """Wakes every loop."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, count: int, timeout_s: float) -> None:
        """Returns when something has happened since `count` was taken, or when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._count != count, timeout_s)

    def close(self) -> None:
        """Ends the thread and wakes whoever waits."""
        self._closed.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                with psycopg.connect(
                    self._dsn, autocommit=True, connect_timeout=3, application_name="kvfold-worker"
                ) as connection:
                    connection.execute(f"LISTEN {NOTIFY_CHANNEL}")
                    self.wake()
                    while not self._closed.is_set():
                        for _ in connection.notifies(timeout=_LOOK_S, stop_after=1):
                            self.wake()
            except psycopg.Error:
                self._closed.wait(_RETRY_S)
