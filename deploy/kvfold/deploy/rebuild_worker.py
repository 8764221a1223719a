"""One worker of a rebuild: a process of its own, since an interpreter folds on one core only.

It reads its job, one line of JSON, from standard input, and stops when that is closed: whatever ends the command that
started it ends the worker. It answers with one line of JSON when it has ended: what paused it, if anything did.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import CancelledError
from threading import Thread
from typing import Any

from kvfold.deploy.environment import when_available
from kvfold.deploy.logging import configure_logging
from kvfold.deploy.projector_process import projector_settings
from kvfold.deploy.stopping import StopRequest, stop_signals
from kvfold.log.open import open_log
from kvfold.log.settings import Settings
from kvfold.projector.comparing import DecisionComparison
from kvfold.projector.pace import Pace
from kvfold.projector.postgres_store import connect_for_folding
from kvfold.projector.replaying import ReplayPausedError, replay

__all__: list[str] = []

_COMPARISON_TIMEOUT_MS = 60_000


def main() -> None:
    """Works until the targets are reached, a partition pauses, or standard input is closed."""
    with stop_signals() as stop:
        job = json.loads(sys.stdin.readline())
        Thread(target=_stop_at_end_of_input, args=(stop,), daemon=True).start()
        sys.stdout.write(json.dumps(_work(job, stop)) + "\n")


def _stop_at_end_of_input(stop: StopRequest) -> None:
    sys.stdin.read()
    stop.set()


def _work(job: dict[str, Any], stop: StopRequest) -> dict[str, Any]:
    settings = Settings.model_validate({**job["settings"], "partitions": job["partitions"], "owner": None})
    configure_logging(form=settings.log_format, level=settings.log_level, stream=sys.stderr)
    dsn: str = job["dsn"]
    generation: int = job["generation"]

    def new_comparison() -> DecisionComparison:
        return DecisionComparison(
            lambda: connect_for_folding(
                dsn, transaction_timeout_ms=_COMPARISON_TIMEOUT_MS, name="kvfold-rebuild"
            ),
            generation=generation,
            recorded=job["recorded"],
        )

    log = when_available(lambda: open_log(settings, dsn), stop, what="log")
    if log is None:
        return {"stopped": True}
    try:
        if log.describe().log_id != job["log_id"]:
            return {"code": "log-diverged", "message": "the worker found another log than the command"}
        replay(
            log,
            dsn,
            generation=generation,
            until={int(partition): offset for partition, offset in job["targets"].items()},
            settings=projector_settings(settings),
            pace=None if job["rate"] is None else Pace(job["rate"]),
            new_check=new_comparison,
            should_stop=stop.is_set,
        )
    except CancelledError:
        return {"stopped": True}
    except ReplayPausedError as paused:
        return {"code": paused.code, "message": str(paused)}
    finally:
        log.close()
    return {}


if __name__ == "__main__":
    main()
