"""What orchestration code awaits. A future is settled by a message of the history and by nothing else.

The stepper (`execution`) resumes the code when the future that it awaits is done. Awaiting one that is done already
does not interrupt the code, so a replay takes the same way through it as the first run did.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from kvfold.producers.orchestration.errors import OrchestrationError

__all__ = ["AllOf", "AnyOf", "DurableFuture", "EventFuture", "MappedFuture"]

T = TypeVar("T")
S = TypeVar("S")


class DurableFuture(Generic[T]):
    """An answer that is to come. Await it in the orchestration that asked for it, as often as you like."""

    def __init__(self) -> None:
        self._value: T | None = None
        self._error: OrchestrationError | None = None
        self._settled = False

    @property
    def done(self) -> bool:
        """Whether the answer is there."""
        return self._settled

    def result(self) -> T:
        """The answer; raises the failure that it is, and `RuntimeError` while there is none."""
        if not self.done:
            raise RuntimeError("the future is not done: await it")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def settle(self, value: T) -> None:
        """The runtime's: the answer has come."""
        self._value, self._settled = value, True

    def fail(self, error: OrchestrationError) -> None:
        """The runtime's: the answer is a failure."""
        self._error, self._settled = error, True

    def parts(self) -> Sequence[DurableFuture[Any]]:
        """What this future waits for, if it is made of others."""
        return ()

    def pending_events(self) -> Iterator[EventFuture]:
        """The raised events that whoever awaits this waits for now, in the order in which they were asked for."""
        for part in self.parts():
            if not part.done:
                yield from part.pending_events()

    def __await__(self) -> Generator[DurableFuture[Any], None, T]:
        while not self.done:
            yield self
        return self.result()


class EventFuture(DurableFuture[Any]):
    """A raised event of a name. It takes an event only while it is awaited: one that lost a race takes none."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def pending_events(self) -> Iterator[EventFuture]:
        if not self.done:
            yield self


class MappedFuture(DurableFuture[T]):
    """The answer of another future, put through a function; what the function raises is the failure."""

    def __init__(self, source: DurableFuture[S], function: Callable[[S], T]) -> None:
        super().__init__()
        self._source = source
        self._function = cast(Callable[[Any], T], function)

    @property
    def done(self) -> bool:
        return self._source.done

    def result(self) -> T:
        return self._function(self._source.result())

    def parts(self) -> Sequence[DurableFuture[Any]]:
        return (self._source,)


class AllOf(DurableFuture[list[Any]]):
    """All of some futures, in the order in which they were given, whatever order they finish in."""

    def __init__(self, futures: Sequence[DurableFuture[Any]]) -> None:
        super().__init__()
        self._futures = tuple(futures)
        self._open = [future for future in self._futures if not future.done]

    @property
    def done(self) -> bool:
        # Each is looked at until it is done and no longer: 2,000 of them cost 2,000 looks, not their square.
        while self._open and self._open[-1].done:
            self._open.pop()
        return not self._open

    def result(self) -> list[Any]:
        """Every answer; the first failure in the order given is raised, once all are done."""
        if not self.done:
            raise RuntimeError("not all are done: await it")
        return [future.result() for future in self._futures]

    def parts(self) -> Sequence[DurableFuture[Any]]:
        return self._futures


class AnyOf(DurableFuture[tuple[int, Any]]):
    """The first of some futures that is done, with its index; of several, the first as given."""

    def __init__(self, futures: Sequence[DurableFuture[Any]]) -> None:
        super().__init__()
        self._futures = tuple(futures)

    @property
    def done(self) -> bool:
        return any(future.done for future in self._futures)

    def result(self) -> tuple[int, Any]:
        """Index and answer of the winner; its failure is raised."""
        for index, future in enumerate(self._futures):
            if future.done:
                return index, future.result()
        raise RuntimeError("none is done: await it")

    def parts(self) -> Sequence[DurableFuture[Any]]:
        return self._futures
