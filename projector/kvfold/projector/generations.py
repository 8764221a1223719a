"""Generations: complete sets of projection tables, each in a schema of its own, and the pointer to the serving one.

```
created ─► replaying ─► catching-up ─► verified ─► serving ◄─► retired          scratch
   fold of a rebuild   │        folded on by every projector          │          its maker's alone
                       └──────────────► dropping ◄────────────────────┘
```

What may be built on, for a generation beside the serving one:

    generation = create_generation(connection, "scratch")     # empty tables, offsets at 0
    replay(log, dsn, generation=generation, until=offsets)    # kvfold.projector.replaying: folds up to there, exactly
    drop_generation(connection, generation)                   # kvfold.projector.dropping

Running projectors fold the generations in `FOLDED_STATES` and leave the others alone. Claims, offsets and pauses are the
generation's own, so nothing that is folded beside the serving generation touches a row of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from psycopg import Connection

from kvfold.log.port import LogDescription
from kvfold.projector.statements import sql_files
from kvfold.projector.views import show_generation
from kvfold.schemas.errors import KvfoldError, LogDivergedError, LogMisconfiguredError
from kvfold.schemas.projection import schema_name

__all__ = [
    "FOLDED_STATES",
    "SCHEMA_VERSION",
    "Generation",
    "GenerationState",
    "GenerationStateError",
    "bind_log",
    "check_set_up",
    "create_generation",
    "ensure_serving_generation",
    "find_generation",
    "knows_schema",
    "list_generations",
    "serving_generation",
]

SCHEMA_VERSION: Final = 2
"""Version of the tables that this release makes: those of `sql/generation`, and what `sql/generation_N` adds to them."""

GenerationState = Literal[
    "created", "replaying", "catching-up", "verified", "serving", "retired", "dropping", "scratch"
]
FOLDED_STATES: Final[frozenset[GenerationState]] = frozenset(
    {"catching-up", "verified", "serving", "retired"}
)
"""A generation in one of these states is folded by every projector that knows its schema version."""

_SETUP_LOCK: Final = 0x6B76666F6C64  # "kvfold": one process at a time sets a database up


class GenerationStateError(KvfoldError):
    """What was asked for does not go with the state that the generations are in; the message says what would."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="generation-state")


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation as the catalogue has it."""

    id: int
    state: GenerationState
    schema_version: int


def ensure_serving_generation(connection: Connection[Any], log: LogDescription) -> int:
    """Makes the catalogue and the first generation where there is none, and binds the database to its log.

    Safe for any number of processes at once. Gives the number of the serving generation.

    Raises:
        LogMisconfiguredError: the database's projections were folded from a log with another partition count.
        LogDivergedError: … from another log, or from a topic that was made anew since.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))
        for statement in sql_files("catalog", 0):
            connection.execute(statement)
        bind_log(connection, log)
        row = connection.execute("SELECT serving FROM kvfold.pointer").fetchone()
        if row is not None:
            return int(row[0])
        _create(connection, 1, "serving")
        connection.execute("INSERT INTO kvfold.pointer (serving) VALUES (1)")
        show_generation(connection, 1)
        return 1


def create_generation(connection: Connection[Any], state: Literal["created", "scratch"]) -> int:
    """Makes a generation with empty tables and every offset at 0; gives its number, which was never used before.

    The database has a serving generation already (`ensure_serving_generation`). In a transaction of the caller it is
    undone with it.
    """
    with connection.transaction():
        row = connection.execute("SELECT nextval('kvfold.generation_number')").fetchone()
        assert row is not None
        _create(connection, int(row[0]), state)
        return int(row[0])


def list_generations(connection: Connection[Any]) -> list[Generation]:
    """Every generation, oldest first."""
    rows = connection.execute("SELECT id, state, schema_version FROM kvfold.generation ORDER BY id")
    return [Generation(*row) for row in rows]


def find_generation(connection: Connection[Any], generation: int) -> Generation:
    """One generation.

    Raises:
        GenerationStateError: there is none of this number; the message names those that there are.
    """
    known = list_generations(connection)
    for found in known:
        if found.id == generation:
            return found
    names = ", ".join(f"{each.id} ({each.state})" for each in known)
    raise GenerationStateError(f"there is no generation {generation}: there are {names}")


def serving_generation(connection: Connection[Any]) -> int:
    """The number of the generation that serves reads now."""
    row = connection.execute("SELECT serving FROM kvfold.pointer").fetchone()
    assert row is not None, "the catalogue has its pointer"
    return int(row[0])


def knows_schema(version: int) -> bool:
    """Whether this release folds generations of this schema version: the one that it makes, and the one before.

    So a generation of the release before goes on beside a new one, and a swap back to it stays possible.
    """
    return SCHEMA_VERSION - 1 <= version <= SCHEMA_VERSION


def check_set_up(connection: Connection[Any]) -> None:
    """Makes sure that a projector of this release, or of a later one, has set the database up.

    Raises:
        LogMisconfiguredError: it was never set up, or by an older release alone.
    """
    row = connection.execute(
        "SELECT to_regclass('kvfold.pointer'), to_regclass('kvfold.projector')"
    ).fetchone()
    assert row is not None
    if None in row:
        raise LogMisconfiguredError(
            "no projector of this release has run on this database yet: start `kvfold projector` (or `kvfold dev`) first"
        )


def bind_log(connection: Connection[Any], log: LogDescription) -> None:
    """Remembers the log at first use, and from then on refuses any other."""
    row = connection.execute("SELECT kind, name, log_id, partition_count FROM kvfold.log").fetchone()
    if row is None:
        connection.execute(
            "INSERT INTO kvfold.log (kind, name, log_id, partition_count) VALUES (%s, %s, %s, %s)",
            (log.kind, log.name, log.log_id, log.partition_count),
        )
        return
    bound = LogDescription(*row)
    if bound.partition_count != log.partition_count:
        raise LogMisconfiguredError(
            f"the log {log.name!r} has {log.partition_count} partitions, but this database was folded from "
            f"{bound.partition_count}: a count never changes once a log is in use. Bring the old count back, or fold "
            "into an empty database."
        )
    if bound != log:
        raise LogDivergedError(
            f"this database was folded from the {bound.kind} log {bound.name!r} with id {bound.log_id}, and this is the "
            f"{log.kind} log {log.name!r} with id {log.log_id}: the topic was made anew, or the settings name another "
            "one. Point to the old log, or fold into an empty database."
        )


def _create(connection: Connection[Any], generation: int, state: GenerationState) -> None:
    schema = schema_name(generation)
    connection.execute(f"CREATE SCHEMA {schema}")
    added = [f"generation_{version}" for version in range(2, SCHEMA_VERSION + 1)]
    for folder in ("generation", *added):
        for statement in sql_files(folder, generation):
            connection.execute(statement)
    for table in ("partition_offset", "claim"):
        connection.execute(
            f"INSERT INTO {schema}.{table} (partition) SELECT generate_series(0, partition_count - 1) FROM kvfold.log"
        )
    connection.execute(
        "INSERT INTO kvfold.generation (id, state, schema_version) VALUES (%s, %s, %s)",
        (generation, state, SCHEMA_VERSION),
    )
