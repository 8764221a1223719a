"""The W3C trace context of the code that runs now, as records carry it (`ce_traceparent`). No decision uses it."""

from __future__ import annotations

from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kvfold.schemas.record import Record

__all__ = ["context_of", "span_context_of", "traceparent_in", "traceparent_of"]

_RECORD_HEADER: Final = "ce_traceparent"
_HEADER: Final = "traceparent"
_W3C: Final = TraceContextTextMapPropagator()


def traceparent_of(span: Span | None = None) -> str | None:
    """The span's context, or that of the current span; None where nothing is traced."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span) if span is not None else None)
    return carrier.get(_HEADER)


def context_of(traceparent: str | None) -> Context:
    """A context whose span is the one that a record names; an empty one where it names none, or is malformed."""
    return _W3C.extract({} if traceparent is None else {_HEADER: traceparent}, Context())


def span_context_of(traceparent: str | None) -> SpanContext | None:
    """The span that a record names; None where it names none, or is malformed."""
    context = get_current_span(context_of(traceparent)).get_span_context()
    return context if context.is_valid else None


def traceparent_in(record: Record) -> str | None:
    """What a record carries, as it stands there; None where it carries none, or no text."""
    values = [value for name, value in record.headers if name == _RECORD_HEADER]
    try:
        return values[0].decode("ascii") if len(values) == 1 else None
    except UnicodeDecodeError:
        return None
