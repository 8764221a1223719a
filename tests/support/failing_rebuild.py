"""`kvfold rebuild` that kills itself at a named boundary, for tests that start it as a process.

`KVFOLD_TEST_FAILPOINT=BOUNDARY`:

| boundary | the generation's state then |
|---|---|
| `begun` | created |
| `replaying` | replaying, no worker started yet |
| `folding` | replaying, some records folded, workers at work |
| `reached` | replaying, everything up to the targets folded |
| `catching-up` | catching-up, nothing more compared |
| `compared` | catching-up, everything compared |
"""

from __future__ import annotations

import os
import signal
from typing import Any, Final

from kvfold.deploy import rebuilding
from kvfold.deploy.cli import main
from kvfold.projector.rebuilding import begin_rebuild, move_on

__all__ = ["BOUNDARIES", "STATES", "VARIABLE"]

VARIABLE: Final = "KVFOLD_TEST_FAILPOINT"
STATES: Final = {
    "begun": "created",
    "replaying": "replaying",
    "folding": "replaying",
    "reached": "replaying",
    "catching-up": "catching-up",
    "compared": "catching-up",
}
BOUNDARIES: Final = tuple(STATES)


def _install(boundary: str) -> None:
    def reached(name: str) -> None:
        if name == boundary:
            print(f"boundary reached: {name}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def begin_and_die(*arguments: Any, **options: Any) -> Any:
        begun = begin_rebuild(*arguments, **options)
        reached("begun")
        return begun

    def move_on_and_die(connection: Any, generation: int, *, before: Any, after: Any) -> None:
        reached({"catching-up": "reached", "verified": "compared"}.get(after, ""))
        move_on(connection, generation, before=before, after=after)
        reached(after)

    class FailingWatch(rebuilding._Watch):
        def replay(self, workers: Any) -> None:
            told = self._tell

            def tell(step: str, done: int, total: int | None) -> None:
                if done > 0:
                    reached("folding")
                told(step, done, total)

            self._tell = tell
            super().replay(workers)

    setattr(rebuilding, "begin_rebuild", begin_and_die)  # noqa: B010 - no variables to mypy
    setattr(rebuilding, "move_on", move_on_and_die)  # noqa: B010
    setattr(rebuilding, "_Watch", FailingWatch)  # noqa: B010


if __name__ == "__main__":
    _install(os.environ.pop(VARIABLE))
    main()
