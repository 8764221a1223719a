"""Traces of turns and activities, by the OpenTelemetry API. What joins them is the `traceparent` of the records.

```
who starts an instance ──started──►  turn ──turn──►  activity ──activity-completed──►  turn …
   (the caller's span)                      └─started──►  turn of a child …
```

A turn's span is a child of what started its instance, and linked to what it consumed; an activity's is a child of the
turn that asked for it; what a relay delivers carries the context of the turn that sent it. The projection keeps no
trace: the context of a record is remembered by who appended it, and read from the log by any other worker.

Spans hold names, ids and outcomes, and never a key, a value, an input or a result.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol

import structlog
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, use_span

from kvfold.log.port import Log, LogReader
from kvfold.producers.orchestration.store import DueTask, OutgoingMessage, RunnableInstance
from kvfold.producers.trace_context import context_of, span_context_of, traceparent_in, traceparent_of
from kvfold.schemas.errors import KvfoldError
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.record import Record

__all__ = ["LogContexts", "RecordContexts", "RecordTraces", "TracedWork", "Traces"]

_log: Final = structlog.get_logger(__name__)

_REMEMBERED_MAX: Final = 10_000
_READ_TIMEOUT_MS: Final = 200
_LINKS_MAX: Final = 32


class RecordContexts(Protocol):
    """Finds the trace context that a record carries. Safe for several threads."""

    def find(self, scope: str, offset: int) -> str | None:
        """The `traceparent` of the scope's record at `offset`; None if it has none, or cannot be read now."""
        ...

    def remember(self, scope: str, offset: int, traceparent: str) -> None:
        """What this process appended there."""
        ...


class LogContexts:
    """Reads them from the log, one record at a time, and remembers the last ones."""

    def __init__(self, log: Log, *, remembered_max: int = _REMEMBERED_MAX) -> None:
        self._log = log
        self._remembered_max = remembered_max
        self._remembered: OrderedDict[tuple[str, int], str | None] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._reader: LogReader | None = None
        self._partition_count: int | None = None

    def find(self, scope: str, offset: int) -> str | None:
        """As the port says."""
        with self._lock:
            if (scope, offset) in self._remembered:
                return self._remembered[scope, offset]
        try:
            record = self._read(scope, offset)
        except KvfoldError as error:
            _log.debug("no trace context", code=error.code)
            return None
        if record is None:
            return None
        found = traceparent_in(record)
        self._keep(scope, offset, found)
        return found

    def remember(self, scope: str, offset: int, traceparent: str) -> None:
        """As the port says."""
        self._keep(scope, offset, traceparent)

    def close(self) -> None:
        """Gives the connection back."""
        with self._reading:
            if self._reader is not None:
                self._reader.close()

    def _keep(self, scope: str, offset: int, traceparent: str | None) -> None:
        with self._lock:
            self._remembered[scope, offset] = traceparent
            while len(self._remembered) > self._remembered_max:
                self._remembered.popitem(last=False)

    def _read(self, scope: str, offset: int) -> Record | None:
        with self._reading:
            if self._partition_count is None:
                self._partition_count = self._log.describe().partition_count
            if self._reader is None:
                self._reader = self._log.reader()
            # Also takes back what an earlier call has read ahead.
            self._reader.assign({})
            self._reader.assign({partition_of(scope.encode(), self._partition_count): offset})
            batches = self._reader.poll(timeout_ms=_READ_TIMEOUT_MS, records_max=1, bytes_max=1)
        records = (record for batch in batches for record in batch.records)
        return next((record for record in records if record.offset == offset), None)


class TracedWork:
    """The span of a turn or of an attempt, while it is under way. This one traces nothing."""

    traceparent: str | None = None

    def stamped(self, mutation: Mutation) -> Mutation:
        """The mutation, with this span's context."""
        return mutation if self.traceparent is None else replace(mutation, traceparent=self.traceparent)

    def consumed(self, offsets: Iterable[int]) -> None:
        """The turn consumes these messages: linked to what sent them."""

    def current(self) -> AbstractContextManager[object]:
        """While it is entered, spans of the activity's own code are children of this one."""
        return nullcontext()

    def end(self, outcome: str, offset: int | None = None) -> None:
        """It is over; `offset` is where it was appended, if that is known."""


class Traces:
    """What workers trace with. This one traces nothing."""

    def turn(self, instance: RunnableInstance) -> TracedWork:
        """A turn begins."""
        return TracedWork()

    def activity(self, task: DueTask) -> TracedWork:
        """An attempt begins."""
        return TracedWork()

    def sent_by(self, message: OutgoingMessage) -> str | None:
        """The context of what sent a message: what delivers it carries that on."""
        return None


class RecordTraces(Traces):
    """Traces with a tracer; see the module."""

    def __init__(self, tracer: Tracer, contexts: RecordContexts) -> None:
        self._tracer = tracer
        self._contexts = contexts

    def turn(self, instance: RunnableInstance) -> TracedWork:
        """As the class says."""
        attributes = {"kvfold.history_length": instance.history_length}
        return self._begun(f"turn {instance.name}", instance, instance.incarnation, attributes)

    def activity(self, task: DueTask) -> TracedWork:
        """As the class says."""
        attributes = {"kvfold.event_id": task.event_id, "kvfold.attempt": task.attempt}
        return self._begun(f"activity {task.name}", task, task.record_offset, attributes)

    def sent_by(self, message: OutgoingMessage) -> str | None:
        """As the class says."""
        return self._contexts.find(message.scope, message.record_offset)

    def _begun(
        self, name: str, work: RunnableInstance | DueTask, caused_by: int, attributes: Mapping[str, int]
    ) -> TracedWork:
        """A span below that of the record at `caused_by`."""
        ids: dict[str, str | int] = {
            "kvfold.instance_id": work.instance_id,
            "kvfold.execution_id": work.execution_id,
        }
        parent = context_of(self._contexts.find(work.scope, caused_by))
        span = self._tracer.start_span(name, parent, SpanKind.CONSUMER, {**ids, **attributes})
        return _Traced(span, work.scope, self._contexts)


class _Traced(TracedWork):
    def __init__(self, span: Span, scope: str, contexts: RecordContexts) -> None:
        self.traceparent = traceparent_of(span)
        self._span = span
        self._scope = scope
        self._contexts = contexts

    def consumed(self, offsets: Iterable[int]) -> None:
        if not self._span.is_recording():
            return
        for offset in islice(offsets, _LINKS_MAX):
            context = span_context_of(self._contexts.find(self._scope, offset))
            if context is not None:
                self._span.add_link(context)

    def current(self) -> AbstractContextManager[object]:
        return use_span(self._span, record_exception=False, set_status_on_exception=False)

    def end(self, outcome: str, offset: int | None = None) -> None:
        if offset is not None and self.traceparent is not None:
            self._contexts.remember(self._scope, offset, self.traceparent)
        self._span.set_attribute("kvfold.outcome", outcome)
        if outcome == "failed":
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()
