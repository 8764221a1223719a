"""Runs a rebuild: worker processes that replay the log, and this process, which watches them and moves the states on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from psycopg import Connection
from pydantic import SecretStr

from kvfold.deploy.operating import connected, operated, operated_dsn
from kvfold.deploy.stopping import StopRequest
from kvfold.log.port import Log
from kvfold.log.settings import Settings
from kvfold.projector.checkpoint import Checkpoint, clear_generation, load_checkpoint, read_checkpoint
from kvfold.projector.comparing import DecisionComparison, DecisionsDifferError
from kvfold.projector.dropping import drop_generation
from kvfold.projector.generations import GenerationStateError
from kvfold.projector.postgres_store import connect_for_folding
from kvfold.projector.rebuilding import Rebuild, RebuildLook, begin_rebuild, find_rebuild, look, move_on
from kvfold.projector.replaying import next_offsets
from kvfold.projector.statements import sql_file
from kvfold.schemas.errors import KvfoldError
from kvfold.schemas.position import parse_positions

__all__ = ["RebuildOptions", "RebuildStoppedError", "cancel_rebuild", "run_rebuild"]

_log = structlog.get_logger(__name__)
_LOOK_S: Final = 0.2
_NAMED_EVERY_S: Final = 5.0
_STOP_WAIT_S: Final = 20.0
_BEGIN_LOCK: Final = 0x6B7662  # with the generation's number: whoever holds it fills the generation
_COMPARISON_TIMEOUT_MS: Final = 60_000

Tell = Callable[[str, int, int | None], None]
"""Takes (step, done, total)."""


class RebuildStoppedError(KvfoldError):
    """A rebuild came to an end that it should not have: `code` says why; the generation stays as it is."""


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """`rate`: records a second, over all workers; None = as fast as it goes. `to_position` as positions, None = all.

    `checkpoint`: a file to begin from, instead of the log's start.
    """

    workers: int = 1
    rate: float | None = None
    to_position: str | None = None
    checkpoint: Path | None = None


def run_rebuild(
    settings: Settings, options: RebuildOptions, stop: StopRequest, *, tell: Tell = lambda *_: None
) -> Rebuild:
    """Rebuilds until the generation is verified, or stands at the position asked for; goes on with one that was begun.

    Raises:
        CancelledError: the stop was asked for; the same call goes on.
        RebuildStoppedError: a partition paused, a decision differs from the recorded one, somebody dropped the
            generation, or the workers ended.
        GenerationStateError, LogDivergedError: as `begin_rebuild`.
        UnavailableError: log or Postgres is away at the start.
    """
    positions = None if options.to_position is None else parse_positions(options.to_position)
    with operated(settings) as (connection, log):
        begin = None if options.checkpoint is None else read_checkpoint(options.checkpoint)
        if begin is not None:
            begin.check(log.describe(), log.bounds(range(log.describe().partition_count)))
        offsets = None if begin is None else begin.offsets
        rebuild = begin_rebuild(connection, log, to_position=positions, checkpoint=offsets)
        _log.info("rebuild begun", generation=rebuild.generation, resumed=rebuild.resumed)
        watch = _Watch(operated_dsn(settings), connection, log, rebuild, stop, tell)
        watch.begin(begin)
        if watch.look().state == "replaying":
            watch.forget_old_pauses()
            with _workers(settings, options, rebuild) as workers:
                watch.replay(workers)
            watch.compare(rebuild.targets)
            if rebuild.to_position is not None:
                return rebuild
            move_on(connection, rebuild.generation, before="replaying", after="catching-up")
        watch.catch_up()
        move_on(connection, rebuild.generation, before="catching-up", after="verified")
        return rebuild


def cancel_rebuild(settings: Settings, stop: StopRequest) -> int:
    """Drops the generation of the rebuild that is not finished; gives its number. A command that works on it ends.

    Raises:
        GenerationStateError: there is none.
        DropDelayedError: its workers did not end, or somebody queries its tables; the drop may be tried again.
    """
    with connected(settings) as connection:
        rebuild = find_rebuild(connection)
        if rebuild is None:
            raise GenerationStateError("no rebuild is under way: `kvfold generations` shows what there is")
        drop_generation(connection, rebuild.generation, should_stop=stop.is_set)
        return rebuild.generation


class _Watch:
    """What this process does while others fold."""

    def __init__(
        self,
        dsn: str,
        connection: Connection[Any],
        log: Log,
        rebuild: Rebuild,
        stop: StopRequest,
        tell: Tell,
    ) -> None:
        self._dsn = dsn
        self._connection = connection
        self._log = log
        self._rebuild = rebuild
        self._stop = stop
        self._tell = tell
        self._named_at = time.monotonic()

    def look(self) -> RebuildLook:
        """Where the rebuild is.

        Raises:
            RebuildStoppedError: the generation is being dropped.
            CancelledError: the stop was asked for.
        """
        generation = self._rebuild.generation
        if self._stop.is_set():
            raise CancelledError(
                f"the rebuild of generation {generation} stopped: the same command goes on with it, and "
                "`kvfold rebuild --cancel` throws it away"
            )
        found = look(self._connection, generation)
        if found is None:
            raise RebuildStoppedError(f"generation {generation} was cancelled", code="cancelled")
        return found

    def begin(self, checkpoint: Checkpoint | None) -> None:
        """Fills the generation from the checkpoint, if there is one, before anything is folded into it.

        One command at a time, under a lock: one that comes later finds the state moved on, or what an interrupted load has
        left, and clears that first.
        """
        generation = self._rebuild.generation
        lock = (_BEGIN_LOCK, generation)
        while self._connection.execute("SELECT pg_try_advisory_lock(%s, %s)", lock).fetchone() != (True,):
            self.look()
            self._stop.wait(_LOOK_S)
        try:
            if self.look().state != "created":
                return
            if checkpoint is None:
                clear_generation(self._connection, generation)
            else:
                self._tell("loading", 0, None)
                load_checkpoint(self._connection, generation, checkpoint)
            move_on(self._connection, generation, before="created", after="replaying")
        finally:
            self._connection.execute("SELECT pg_advisory_unlock(%s, %s)", lock)

    def forget_old_pauses(self) -> None:
        """What stopped an earlier run is tried again; a partition that does not go on pauses anew."""
        if self.look().workers == 0:
            self._connection.execute(sql_file("rebuild/forget_pauses", self._rebuild.generation))

    def replay(self, workers: list[subprocess.Popen[str]]) -> None:
        """Waits until the workers have folded up to the targets."""
        targets = self._rebuild.targets
        total = sum(targets.values())
        while True:
            seen = self.look()
            behind = [p for p, target in targets.items() if seen.offsets[p] < target]
            self._tell("replaying", sum(min(seen.offsets[p], target) for p, target in targets.items()), total)
            for partition, (reason, detail) in seen.paused.items():
                raise RebuildStoppedError(f"partition {partition} stopped: {reason}: {detail}", code=reason)
            ended = [worker for worker in workers if worker.poll() is not None]
            for worker in ended:
                _raise_what_it_said(worker)
            if not behind and (len(ended) == len(workers)):
                return
            if len(ended) == len(workers):
                raise RebuildStoppedError(
                    "the workers of the rebuild ended before they were done: standard error says why",
                    code="workers-ended",
                )
            self._name_open_transactions(behind)
            self._stop.wait(_LOOK_S)

    def catch_up(self) -> None:
        """Waits until the generation has what the serving one had when this began, and compares what is left."""
        rebuild = self._rebuild
        wanted = next_offsets(self._connection, rebuild.compared_with)
        while True:
            seen = self.look()
            done = sum(min(seen.offsets[partition], offset) for partition, offset in wanted.items())
            self._tell("catching up", done, sum(wanted.values()))
            for partition, (reason, detail) in seen.paused.items():
                raise RebuildStoppedError(f"partition {partition} stopped: {reason}: {detail}", code=reason)
            if all(seen.offsets[partition] >= offset for partition, offset in wanted.items()):
                self.compare(wanted)
                return
            if seen.workers == 0 and self._is_time_to_name():
                _log.warning(
                    "generation waits",
                    generation=rebuild.generation,
                    reason="no projector folds it: start one of this release (kvfold projector)",
                )
            self._stop.wait(_LOOK_S)

    def compare(self, wanted: Mapping[int, int]) -> None:
        """Compares the decisions up to these next offsets, as far as both generations have them and nobody has yet."""
        comparison = DecisionComparison(
            lambda: connect_for_folding(
                self._dsn, transaction_timeout_ms=_COMPARISON_TIMEOUT_MS, name="kvfold-rebuild"
            ),
            generation=self._rebuild.generation,
            recorded=self._rebuild.compared_with,
        )
        try:
            for partition, offset in wanted.items():
                comparison.committed(partition, offset)
        except DecisionsDifferError as error:
            raise RebuildStoppedError(str(error), code=error.code) from error
        finally:
            comparison.close()

    def _name_open_transactions(self, behind: list[int]) -> None:
        if behind and self._is_time_to_name():
            for partition, first, producer in self._log.open_transactions(behind):
                _log.warning(
                    "open transaction waited for", partition=partition, first_offset=first, producer=producer
                )

    def _is_time_to_name(self) -> bool:
        now = time.monotonic()
        if now - self._named_at < _NAMED_EVERY_S:
            return False
        self._named_at = now
        return True


def _raise_what_it_said(worker: subprocess.Popen[str]) -> None:
    assert worker.stdout is not None
    said = worker.stdout.read()
    if worker.returncode == 0 and said.strip():
        answer = json.loads(said)
        if "code" in answer:
            raise RebuildStoppedError(answer["message"], code=answer["code"])


@contextmanager
def _workers(
    settings: Settings, options: RebuildOptions, rebuild: Rebuild
) -> Iterator[list[subprocess.Popen[str]]]:
    """The worker processes; closing their standard input ends them."""
    job = {
        # Secrets among them: through a pipe, and nowhere else.
        "settings": {
            name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            for name in settings.model_fields_set
            if (value := getattr(settings, name)) is not None
        },
        "dsn": operated_dsn(settings),
        "log_id": rebuild.log_id,
        "generation": rebuild.generation,
        "recorded": rebuild.compared_with,
        "partitions": len(rebuild.targets),
        "targets": rebuild.targets,
        "rate": None if options.rate is None else options.rate / options.workers,
    }
    workers: list[subprocess.Popen[str]] = []
    try:
        for _ in range(options.workers):
            worker = subprocess.Popen(
                [sys.executable, "-m", "kvfold.deploy.rebuild_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                # Ctrl-C comes to us alone: we end them in order.
                start_new_session=True,
            )
            workers.append(worker)
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(job) + "\n")
            worker.stdin.flush()
        yield workers
    finally:
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.close()
        for worker in workers:
            try:
                worker.wait(_STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()
