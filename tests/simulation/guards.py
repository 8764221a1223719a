"""Guards of the fold and the driver, each taken away alone; and which checker then finds the bug, at which seed.

`python -m simulation.guards` (from `tests/`) looks for the first seed of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from kvfold.projector import batch, fold, partition
from kvfold.projector.batch import Batch, _Projection
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.needs import Step
from kvfold.projector.partition import PartitionFold
from kvfold.projector.store import ProjectionStore
from kvfold.projector.tables import DeploymentScope
from kvfold.schemas import form
from simulation.checkers import CheckError
from simulation.world import World

__all__ = ["GUARDS", "Guard", "found_by"]


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard, how it is taken away, and what finds that."""

    name: str
    remove: Callable[[], AbstractContextManager[Any]]
    found_by: str
    seed: int
    is_transactional: bool = True

    def world(self, seed: int) -> World:
        """A world without the guard."""

        @contextmanager
        def sabotage() -> Iterator[None]:
            with self.remove():
                yield

        return World(seed, sabotage=sabotage, is_transactional=self.is_transactional)


def found_by(error: BaseException) -> str:
    """Who found it: a checker's name, or the module whose assertion failed."""
    if isinstance(error, CheckError):
        return error.checker
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return "assertion in " + str(trace.tb_frame.f_globals["__name__"]).rsplit(".", 1)[-1]


_commit, _fold = MemoryStore.commit, PartitionFold.fold


def _commit_under_any_epoch(self: MemoryStore, changes: Batch, *, epoch: int) -> None:
    _commit(self, changes, epoch=self.shared.epochs.get(changes.partition, 0))


def _commit_from_any_offset(self: MemoryStore, changes: Batch, *, epoch: int) -> None:
    changes.offset_expected = self.state(changes.partition).offset_next
    _commit(self, changes, epoch=epoch)


def _fold_up_to_last_record(
    self: PartitionFold, store: ProjectionStore, steps: list[Step], offset_next: int
) -> list[Batch]:
    return _fold(self, store, steps, steps[-1][0].offset + 1 if steps else self.offset_next)


def _fold_one_too_far(
    self: PartitionFold, store: ProjectionStore, steps: list[Step], offset_next: int
) -> list[Batch]:
    return _fold(self, store, steps, offset_next + 1)


def _fold_one_short(
    self: PartitionFold, store: ProjectionStore, steps: list[Step], offset_next: int
) -> list[Batch]:
    return _fold(self, store, steps, max(self.offset_next + 1, offset_next - 1))


_step = _Projection.step


def _raw_time(self: _Projection, record: Any, formed: Any) -> None:
    self._time_ms = min(self._time_ms, record.timestamp_ms)
    _step(self, record, formed)


class _AnyPartition:
    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def _any_partition(_key: bytes, _count: int) -> _AnyPartition:
    return _AnyPartition()


def _no_cut(steps: list[Step]) -> list[list[Step]]:
    return [steps] if steps else []


def _do_nothing(*_: object) -> None:
    return None


def _patch(target: Any, name: str, new: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(target, name, new)


def _forget_floor(scope: str, _floor: int) -> DeploymentScope:
    return DeploymentScope(scope, 0)


_IDENTITY: Final = "identity and version"
GUARDS: Final = (
    Guard(
        "a commit needs the newest epoch", _patch(MemoryStore, "commit", _commit_under_any_epoch), "owner", 0
    ),
    Guard(
        "a commit needs the expected offset",
        _patch(MemoryStore, "commit", _commit_from_any_offset),
        "assertion in memory_store",
        7,
    ),
    Guard("a commit is all or nothing", nullcontext, "fold", 2, is_transactional=False),
    Guard(
        "the next offset is where reading goes on",
        _patch(PartitionFold, "fold", _fold_up_to_last_record),
        "caught up",
        0,
    ),
    Guard("the next offset skips no record", _patch(PartitionFold, "fold", _fold_one_too_far), "position", 0),
    Guard(
        "the next offset is past the last record",
        _patch(PartitionFold, "fold", _fold_one_short),
        "assertion in batch",
        0,
    ),
    Guard("a range stands alone in its batch", _patch(partition, "cut", _no_cut), _IDENTITY, 0),
    Guard("an overwritten row moves to history", _patch(_Projection, "_supersede", _do_nothing), "fold", 0),
    Guard(
        "a record sees those before it in its batch",
        _patch(_Projection, "_remember", _do_nothing),
        "fold",
        0,
    ),
    Guard("effective time never steps back", _patch(_Projection, "step", _raw_time), _IDENTITY, 0),
    Guard("a repeat is one for seven days only", _patch(batch, "DEDUPE_WINDOW_MS", 1 << 60), _IDENTITY, 1),
    Guard("a repeat is found", _patch(batch, "DEDUPE_WINDOW_MS", -1), _IDENTITY, 0),
    Guard("a repeat has the same content", _patch(batch, "fingerprint", lambda *_, **__: b""), "fold", 0),
    Guard("a secret's body is no content", _patch(batch, "is_secret", lambda _: False), "fold", 0),
    Guard("the partition is murmur2 of the scope", _patch(form, "_partition", _any_partition), "fold", 1),
    Guard("a version goes on over an undeploy", _patch(fold, "DeploymentScope", _forget_floor), "fold", 0),
)


def _search() -> None:
    for guard in GUARDS:
        for seed in range(200):
            try:
                guard.world(seed).run()
            except Exception as error:
                print(f"{guard.name}: {found_by(error)}, {seed}: {str(error)[:90]}")
                break
        else:
            print(f"{guard.name}: NOT FOUND")


if __name__ == "__main__":
    _search()
