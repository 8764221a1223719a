"""The process's own log: structlog, as text for people or as one JSON object a line, on standard error.

Tracebacks are plain text and never show local variables, since a variable may hold the value of an entry. What other
libraries log by the standard library comes out in the same form; kafka-python never below WARNING, because at DEBUG it
writes records.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.typing import Processor

__all__ = ["configure_logging"]

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_QUIET: Final = {"kafka": logging.ERROR, "uvicorn": logging.WARNING, "httpx": logging.WARNING}
"""Libraries that repeat at each attempt what we log once, or log each request."""


def configure_logging(
    *, form: Literal["text", "json"], level: Literal["debug", "info", "warning", "error"], stream: TextIO
) -> None:
    """Sets structlog and the standard library's logging up for the whole process; later calls replace earlier ones.

    Colours only where `stream` is a terminal. Times are UTC, ISO 8601.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer = _renderers(form, colors=stream.isatty())
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=stream),
        # Modules keep their loggers from import on; a cached one would keep an earlier configuration too.
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(_LEVELS[level], logging.INFO))
    for name, lowest in _QUIET.items():
        logging.getLogger(name).setLevel(max(lowest, _LEVELS[level]))
    sys.excepthook = _log_uncaught


def _renderers(form: Literal["text", "json"], *, colors: bool) -> list[Processor]:
    """What makes a line of an event; both forms format tracebacks without local variables."""
    if form == "json":
        # `default=str` and not repr: a path or an id is readable, and nothing logged is the value of an entry.
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    return [
        structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
    ]


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    structlog.get_logger(__name__).error("process failed", exc_info=(kind, error, trace))
