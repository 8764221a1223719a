"""Scratch generations: folded by one process for its own purpose, and dropped when it is done.

A lock of the process's session tells others that it is in use, so that one whose process was killed is found and dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection

from kvfold.projector.dropping import DropDelayedError, drop_generation
from kvfold.projector.generations import create_generation, list_generations

__all__ = ["drop_orphans", "scratch_generation"]

_SCRATCH_LOCK: Final = (
    0x6B7673  # with the generation's number: whoever holds it works on the scratch generation
)


@contextmanager
def scratch_generation(connection: Connection[Any]) -> Iterator[int]:
    """A generation of this process alone, dropped at the end; its lock tells others that it is in use."""
    with connection.transaction():
        generation = create_generation(connection, "scratch")
        connection.execute("SELECT pg_advisory_lock(%s, %s)", (_SCRATCH_LOCK, generation))
    try:
        yield generation
    finally:
        if not connection.closed:
            drop_generation(connection, generation)
            connection.execute("SELECT pg_advisory_unlock(%s, %s)", (_SCRATCH_LOCK, generation))


def drop_orphans(connection: Connection[Any]) -> None:
    """Drops scratch generations whose process has ended without doing so."""
    for found in list_generations(connection):
        if found.state != "scratch":
            continue
        row = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (_SCRATCH_LOCK, found.id)).fetchone()
        if row is not None and row[0]:
            try:
                drop_generation(connection, found.id)
            except DropDelayedError:
                continue
            finally:
                connection.execute("SELECT pg_advisory_unlock(%s, %s)", (_SCRATCH_LOCK, found.id))
