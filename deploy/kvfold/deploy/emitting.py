"""Events from JSON lines into kvfold, in order, a batch at a time, each with its outcome.

One batch is on its way at any time. What has no outcome yet (no answer, a server that is away, not decided in time) is
sent again before the next one: the ids stand in the events, so nothing is applied twice within 7 days.

The order of a scope's lines is kept, also over an outage in which the log took some events of a batch and not others:
two lines of one scope share a batch only where they write different keys. Worked example, four lines of one scope:

```
put a · put b · put a · clear prefix        → [put a, put b]  [put a]  [clear prefix]
```
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from kvfold.deploy.http_client import KvfoldClient, RefusedError, ServerAwayError
from kvfold.deploy.lines import LINE_BYTES_MAX, Line, Pause
from kvfold.deploy.stopping import StopRequest
from kvfold.producers.cloudevent_http import from_structured
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.mutation import Mutation

__all__ = ["Emitted", "Outcome", "emit_lines"]

_log = structlog.get_logger(__name__)
BATCH_EVENTS_MAX: Final = 200
BATCH_BYTES_MAX: Final = 1024 * 1024
_RETRY_S_MIN: Final = 0.1
_RETRY_S_MAX: Final = 5.0
_FINAL: Final = frozenset({"applied", "conflict", "rejected"})
_KEY_WRITES: Final = frozenset(
    {
        "kvfold.capsule.set.v1",
        "kvfold.capsule.deleted.v1",
        "kvfold.capsule.restored.v1",
        "kvfold.deployment.put.v1",
        "kvfold.deployment.deleted.v1",
        "kvfold.deployment.restored.v1",
    }
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a line. `status` is a decision's, or `invalid`: refused before anything was appended.

    `facts` is the decision, or for an invalid line its code and detail.
    """

    line: int
    status: str
    facts: dict[str, Any]


@dataclass(slots=True)
class Emitted:
    """Counts by status, and the number of the last line that has an outcome."""

    counts: dict[str, int] = field(default_factory=dict)
    last_line: int = 0

    @property
    def is_all_applied(self) -> bool:
        """True if no line was refused in any way."""
        return not self.counts.keys() - {"applied"}

    def add(self, outcome: Outcome) -> None:
        """Counts an outcome."""
        self.counts[outcome.status] = self.counts.get(outcome.status, 0) + 1
        self.last_line = max(self.last_line, outcome.line)


def emit_lines(
    lines: Iterable[Line | Pause],
    client: KvfoldClient,
    stop: StopRequest,
    *,
    tell: Callable[[Outcome], None],
    patience_s: float,
) -> Emitted:
    """Sends the events of all lines and tells each outcome, in the order of the lines within a batch.

    Ends early when the stop was asked for, after the batch under way.

    Raises:
        ServerAwayError: no outcome for `patience_s` seconds; what was told stands.
    """
    emitted = Emitted()

    def told(outcome: Outcome) -> None:
        emitted.add(outcome)
        tell(outcome)

    for batch in _batches(lines, told):
        _send(batch, client, stop, told, patience_s)
        if stop.is_set():
            break
    return emitted


class _Batch:
    """Lines to be sent at once, bounded by count and bytes."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._size = 0
        # By scope, the keys written; None for a scope of which the one line concerns more than a key.
        self._keys: dict[str, set[tuple[str | None, str | None]] | None] = {}

    def takes(self, line: Line, mutation: Mutation) -> bool:
        """Whether the line may go with those that are here."""
        if not self.lines:
            return True
        if len(self.lines) >= BATCH_EVENTS_MAX or self._size + len(line.text) > BATCH_BYTES_MAX:
            return False
        if mutation.scope not in self._keys:
            return True
        keys = self._keys[mutation.scope]
        is_key_write = mutation.type in _KEY_WRITES
        return keys is not None and is_key_write and (mutation.namespace, mutation.subject) not in keys

    def add(self, line: Line, mutation: Mutation) -> None:
        """Adds a line that it takes."""
        self.lines.append(line)
        self._size += len(line.text)
        if mutation.type not in _KEY_WRITES:
            self._keys[mutation.scope] = None
            return
        keys = self._keys.setdefault(mutation.scope, set())
        assert keys is not None, "the batch does not take a line beside one that concerns the whole scope"
        keys.add((mutation.namespace, mutation.subject))


def _batches(lines: Iterable[Line | Pause], told: Callable[[Outcome], None]) -> Iterator[list[Line]]:
    """Lines that hold an event; a line that holds none is told at once."""
    batch = _Batch()
    for line in lines:
        if isinstance(line, Line):
            mutation = _mutation(line)
            if isinstance(mutation, Outcome):
                told(mutation)
                continue
            if not batch.takes(line, mutation):
                yield batch.lines
                batch = _Batch()
            batch.add(line, mutation)
        elif batch.lines:
            yield batch.lines
            batch = _Batch()
    if batch.lines:
        yield batch.lines


def _mutation(line: Line) -> Mutation | Outcome:
    """What a line asks for, or why it is no event. The server judges by the same rules, and by some more."""
    try:
        if line.is_cut:
            raise InvalidError(f"the line has more than {LINE_BYTES_MAX} bytes", code="too-large")
        return from_structured(line.text)
    except InvalidError as error:
        detail = f"{error}; a line is one CloudEvent in JSON, with its id"
        return Outcome(line.number, "invalid", {"code": error.code, "detail": detail})


def _send(
    batch: list[Line],
    client: KvfoldClient,
    stop: StopRequest,
    told: Callable[[Outcome], None],
    patience_s: float,
) -> None:
    """Sends a batch until each of its events has an outcome."""
    deadline, delay_s = time.monotonic() + patience_s, _RETRY_S_MIN
    while True:
        try:
            batch, missing = _sent(batch, client, told)
        except ServerAwayError as away:
            missing = away
        if not batch:
            return
        if stop.is_set():
            return
        if time.monotonic() > deadline:
            raise missing
        _log.warning("outcomes awaited", lines=len(batch), from_line=batch[0].number, error=str(missing))
        stop.wait(delay_s)
        delay_s = min(2 * delay_s, _RETRY_S_MAX)


def _sent(
    batch: list[Line], client: KvfoldClient, told: Callable[[Outcome], None]
) -> tuple[list[Line], ServerAwayError]:
    """Sends a batch once and tells the outcomes; gives the lines without one, and why."""
    try:
        answers = client.mutate_batch([line.text for line in batch])
    except RefusedError as refused:
        # The batch as a whole: each line alone then shows which one it is.
        if len(batch) > 1:
            rest = [line for one in batch for line in _sent([one], client, told)[0]]
            return rest, ServerAwayError(str(refused))
        told(Outcome(batch[0].number, "invalid", {"code": refused.code, "detail": str(refused)}))
        return [], ServerAwayError(str(refused))
    left: list[Line] = []
    why = "not decided yet"
    for line, answer in zip(batch, answers, strict=True):
        outcome = _outcome(line, answer)
        if outcome is None:
            left.append(line)
            why = str(answer.get("detail") or answer.get("code") or why)
        else:
            told(outcome)
    return left, ServerAwayError(why)


def _outcome(line: Line, answer: dict[str, Any]) -> Outcome | None:
    """The outcome in one element of a batch's answer; None if it has none yet."""
    status = answer.get("status")
    if status in _FINAL:
        return Outcome(line.number, str(status), answer)
    if status == "pending" or (isinstance(status, int) and status >= 500):
        return None
    return Outcome(line.number, "invalid", answer)
