"""Commands run inside the test's process: their output, their exit code, and nothing left of their configuration."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import structlog
from click.testing import CliRunner, Result

__all__ = ["kept_logging", "run_command"]


@contextmanager
def kept_logging() -> Iterator[None]:
    """Whatever is configured for logs inside is as it was before at the end."""
    root, hook = logging.getLogger(), sys.excepthook
    handlers, level = list(root.handlers), root.level
    names = ("kafka", "uvicorn", "httpx")
    levels = {name: logging.getLogger(name).level for name in names}
    configured = structlog.get_config()
    try:
        yield
    finally:
        root.handlers[:], sys.excepthook = handlers, hook
        root.setLevel(level)
        for name, kept in levels.items():
            logging.getLogger(name).setLevel(kept)
        structlog.configure(**configured)


def run_command(
    *arguments: str, environment: Mapping[str, str | None] | None = None, stdin: bytes | None = None
) -> Result:
    """Runs `kvfold ARGUMENTS…`; an exception that the command does not turn into an exit code is raised."""
    from kvfold.deploy.cli.group import kvfold

    with kept_logging():
        return CliRunner().invoke(
            kvfold, list(arguments), env=environment, input=stdin, prog_name="kvfold", catch_exceptions=False
        )
