"""Who waits for what, and what a look at the projection settles. Does no I/O; `waiting` drives it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from kvfold.reads.decisions import DecisionView
from kvfold.schemas.errors import (
    GoneError,
    KvfoldError,
    NotUpToPositionError,
    PartitionPausedError,
)
from kvfold.schemas.position import Position, format_positions

__all__ = ["Look", "Waiters", "Waiting"]

_POSITIONS_ASKED_MAX: Final = 2_000


@dataclass(slots=True, eq=False)
class Waiting:
    """One waiter: the offsets that it wants covered, and until when (monotonic seconds).

    `decides` says that it wants the decision at its one position, and not only that it is reached.
    """

    demand: Mapping[int, int]
    deadline: float
    decides: bool
    future: Future[Any] = field(default_factory=Future)

    def succeed(self, result: object) -> None:
        """Gives the waiter its result; one that went away meanwhile does not matter."""
        with suppress(InvalidStateError):
            self.future.set_result(result)

    def fail(self, error: KvfoldError) -> None:
        """Gives the waiter its error."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def expire(self) -> None:
        """The time is over."""
        where = format_positions(self.demand)
        self.fail(NotUpToPositionError(f"the projection did not reach {where} in time"))


@dataclass(frozen=True, slots=True)
class Look:
    """What one query saw of the serving generation: next offsets, pauses (partition to text), decisions."""

    offsets_next: Mapping[int, int]
    pauses: Mapping[int, str]
    decisions: Mapping[tuple[int, int], DecisionView]


class Waiters:
    """The waiters of a process. For one thread."""

    def __init__(self) -> None:
        # By partition, then by offset: several may wait for one decision.
        self._decisions: dict[int, dict[int, list[Waiting]]] = {}
        self._positions: set[Waiting] = set()

    def __bool__(self) -> bool:
        return bool(self._positions) or bool(self._decisions)

    def add(self, waiting: Waiting) -> None:
        """Takes a waiter in."""
        if not waiting.decides:
            self._positions.add(waiting)
            return
        (place,) = waiting.demand.items()
        self._decisions.setdefault(place[0], {}).setdefault(place[1], []).append(waiting)

    def wants(self, partition: int, offset: int) -> bool:
        """Whether some waiter may be served when `partition` is folded up to `offset`."""
        decisions = self._decisions.get(partition)
        if decisions and min(decisions) <= offset:
            return True
        return any(waiting.demand.get(partition, offset + 1) <= offset for waiting in self._positions)

    def asked(self, seen: Mapping[int, int] | None) -> list[tuple[int, int]]:
        """The positions to ask decisions of: those up to the offsets seen, or all where None; a bounded number."""
        found: list[tuple[int, int]] = []
        for partition, waiting in self._decisions.items():
            limit = None if seen is None else seen.get(partition, -1)
            found.extend((partition, offset) for offset in waiting if limit is None or offset <= limit)
        return found[:_POSITIONS_ASKED_MAX]

    def settle(self, look: Look, asked: list[tuple[int, int]]) -> None:
        """Serves everyone whom the look can serve; `asked` are the positions that its query asked decisions of."""
        for place in asked:
            self._settle_decision(place, look)
        self._settle_paused(look)
        self._positions = {waiting for waiting in self._positions if not _settled(waiting, look)}

    def expire(self, now: float) -> None:
        """Fails the waiters whose time is over, and forgets those that went away."""
        for waiting in self._all():
            if waiting.deadline <= now:
                waiting.expire()
        self._forget_done()

    def fail_all(self, error: KvfoldError) -> None:
        """Fails every waiter."""
        for waiting in self._all():
            waiting.fail(error)
        self._forget_done()

    def _settle_decision(self, place: tuple[int, int], look: Look) -> None:
        partition, offset = place
        view = look.decisions.get(place)
        if view is None and look.offsets_next.get(partition, 0) <= offset:
            return
        for waiting in self._take(partition, offset):
            if view is not None:
                waiting.succeed(view)
            else:
                # Folded, and no decision is kept: trimmed, or no record has this position.
                waiting.fail(GoneError(f"no decision is kept at {Position(partition, offset)}"))

    def _settle_paused(self, look: Look) -> None:
        for partition, text in look.pauses.items():
            offset_next = look.offsets_next.get(partition, 0)
            for offset in [o for o in self._decisions.get(partition, ()) if o >= offset_next]:
                for waiting in self._take(partition, offset):
                    waiting.fail(_paused(partition, text))

    def _take(self, partition: int, offset: int) -> list[Waiting]:
        by_offset = self._decisions.get(partition, {})
        taken = by_offset.pop(offset, [])
        if not by_offset:
            self._decisions.pop(partition, None)
        return taken

    def _all(self) -> list[Waiting]:
        decisions = [w for of in self._decisions.values() for waiting in of.values() for w in waiting]
        return [*self._positions, *decisions]

    def _forget_done(self) -> None:
        self._positions = {waiting for waiting in self._positions if not waiting.future.done()}
        for partition, by_offset in list(self._decisions.items()):
            for offset in list(by_offset):
                if all(waiting.future.done() for waiting in by_offset[offset]):
                    self._take(partition, offset)


def _settled(waiting: Waiting, look: Look) -> bool:
    """Serves a waiter for positions where the look can serve it."""
    behind = [p for p, offset in waiting.demand.items() if look.offsets_next.get(p, 0) <= offset]
    if not behind:
        waiting.succeed(None)
        return True
    paused = next((p for p in behind if p in look.pauses), None)
    if paused is None:
        return waiting.future.done()
    waiting.fail(_paused(paused, look.pauses[paused]))
    return True


def _paused(partition: int, text: str) -> PartitionPausedError:
    return PartitionPausedError(f"partition {partition} is paused: {text}")
