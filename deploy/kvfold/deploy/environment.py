"""What a process finds around it: its settings, the database it was given, servers that are still away."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict

from kvfold.deploy.logging import configure_logging
from kvfold.deploy.stopping import StopRequest
from kvfold.log.settings import Settings
from kvfold.schemas.errors import ConfigurationError, UnavailableError

__all__ = [
    "PortTakenError",
    "owner_name",
    "postgres_dsn",
    "started_process",
    "when_available",
]

_log = structlog.get_logger(__name__)
_RETRY_S_MIN: Final = 0.2
_RETRY_S_MAX: Final = 5.0

_T = TypeVar("_T")


class PortTakenError(ConfigurationError):
    """An address to listen on that cannot be had; ends a command with 1, since the settings are well-formed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="port-taken")


def started_process(*, level_unless_set: Literal["info", "warning"] = "info") -> Settings:
    """Reads the settings of this process and configures its log by them; the level is the one given, unless it is set.

    Raises:
        ConfigurationError: names the variable and what is accepted.
    """
    settings = Settings.from_env(os.environ)
    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": level_unless_set})
    configure_logging(form=settings.log_format, level=settings.log_level, stream=sys.stderr)
    return settings


def postgres_dsn(settings: Settings) -> str:
    """The connection string in KVFOLD_POSTGRES.

    Raises:
        ConfigurationError: there is none, or it is not one. The text never shows it: it may hold a password.
    """
    if settings.postgres is None:
        raise ConfigurationError(
            "KVFOLD_POSTGRES is not set: this command needs a PostgreSQL server, such as "
            "KVFOLD_POSTGRES=postgresql://user:password@host/database (the embedded server belongs to `kvfold dev`)"
        )
    dsn = settings.postgres.get_secret_value()
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise ConfigurationError(
            "KVFOLD_POSTGRES is a value that is not shown: accepted is a libpq connection string, such as "
            "postgresql://user:password@host:5432/database or 'host=… dbname=…'"
        ) from None
    return dsn


def owner_name(settings: Settings) -> str:
    """The name of this process in claims: KVFOLD_OWNER, else host, process id and a few random letters."""
    return settings.owner or f"{socket.gethostname()[:20]}-{os.getpid()}-{secrets.token_hex(3)}"


def when_available(attempt: Callable[[], _T], stop: StopRequest, *, what: str) -> _T | None:
    """Tries until the servers that `attempt` needs answer, with a line in the log for each time they do not.

    Waits 0.2 s after the first failure and up to 5 s later. None when the stop was asked for. Every error but
    `UnavailableError` goes on to the caller.
    """
    delay_s = _RETRY_S_MIN
    while not stop.is_set():
        try:
            return attempt()
        except UnavailableError as error:
            _log.warning("start delayed", waiting_for=what, retry_s=delay_s, error=str(error))
        stop.wait(delay_s)
        delay_s = min(2 * delay_s, _RETRY_S_MAX)
    return None
