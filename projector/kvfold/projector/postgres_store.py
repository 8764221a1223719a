"""The projection in Postgres: a batch is loaded in one round trip and committed in one (or, when it is large, by COPY).

The fence comes first in every commit: `advance` moves the offset row only if it is as this worker left it, and raises
otherwise. Rows that are overwritten are moved to the history before the new ones are inserted, so nothing is ever
updated in place but small per-scope rows. Commits are not flushed (`synchronous_commit=off`): state and offset roll back
together after a crash of the server, and the log still has the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import Connection, Cursor, adapters
from psycopg.adapt import Dumper
from psycopg.pq import Format

from kvfold.projector.batch import Batch, Loaded, SeenId
from kvfold.projector.changes import RangeRemoval
from kvfold.projector.decide.state import Head, RangeTotals
from kvfold.projector.needs import Needs
from kvfold.projector.statements import (
    copy_sql,
    delete_sql,
    insert_sql,
    move_sql,
    sql_file,
    sweep_sql,
    upsert_sql,
)
from kvfold.projector.store import FencedError
from kvfold.projector.tables import (
    TABLES,
    CapsuleScope,
    Child,
    DeploymentScope,
    Execution,
    InboxMessage,
    Instance,
    KvEntry,
    OutboxMessage,
    PartitionState,
    Queue,
    Row,
    Task,
)
from kvfold.schemas.errors import StoreUnavailableError
from kvfold.schemas.names import prefix_range_end
from kvfold.schemas.outcome import Decision, DecisionStatus
from kvfold.schemas.projection import NOTIFY_CHANNEL, schema_name

__all__ = ["PostgresStore", "connect_for_folding", "translated"]

_COPY_ROWS_MIN: Final = 48
"""From this many rows in a table on, COPY beats arrays (and its extra round trips)."""

_RETRIED_CLASSES: Final = frozenset({"08", "40", "53", "57", "58"})
# A lock that was not to be had; and our own time-outs, which end a transaction before its claim does.
_RETRIED_CODES: Final = frozenset({"55P03", "25P03", "25P04"})
_FENCED: Final = "KVF01"
# Row by row through the primary keys: a plan that depends on table statistics could turn to scanning whole tables.
_SETTINGS: Final = (
    "synchronous_commit=off",
    "enable_seqscan=off",
    "enable_bitmapscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "jit=off",
    "plan_cache_mode=force_generic_plan",
)


def connect_for_folding(dsn: str, *, transaction_timeout_ms: int, name: str) -> Connection[Any]:
    """A connection whose transactions end by themselves before the claim does, in milliseconds.

    Raises:
        StoreUnavailableError: the server cannot be reached.
    """
    settings = [
        *_SETTINGS,
        f"transaction_timeout={transaction_timeout_ms}",
        f"idle_in_transaction_session_timeout={transaction_timeout_ms}",
    ]
    options = " ".join(f"-c {setting}" for setting in settings)
    with translated():
        connection = psycopg.connect(
            dsn, autocommit=True, options=options, application_name=name, connect_timeout=5
        )
    connection.prepare_threshold = 1
    # By oid only: COPY asks for it by the column's type, and every other string stays text.
    connection.adapters.register_dumper(None, _UuidTextDumper)
    return connection


class _UuidTextDumper(Dumper):
    """Canonical UUID text to the sixteen bytes of the type `uuid`, without an object in between."""

    oid = adapters.types["uuid"].oid
    format = Format.BINARY

    def dump(self, obj: str) -> bytes:
        return bytes.fromhex(obj.replace("-", ""))


@contextmanager
def translated() -> Iterator[None]:
    """Classes the driver's errors: the infrastructure's become `StoreUnavailableError`, a fence `FencedError`.

    Anything else is our own mistake and goes on as it is: the partition pauses with its name.
    """
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate
        if state == _FENCED:
            raise FencedError(str(error).partition("\n")[0]) from error
        lost = state is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if lost or (state is not None and (state[:2] in _RETRIED_CLASSES or state in _RETRIED_CODES)):
            raise StoreUnavailableError(f"Postgres: {str(error).partition(chr(10))[0]}") from error
        raise


class PostgresStore:
    """A `ProjectionStore` over one connection, made anew after it broke."""

    def __init__(self, connect: Callable[[], Connection[Any]], generation: int) -> None:
        self._connect = connect
        self._generation = generation
        self._connection: Connection[Any] | None = None
        self._timeout_lifted = False

    def backend_pid(self) -> int:
        """The server process behind the connection, for the claim row."""
        return self._open().info.backend_pid

    def state(self, partition: int) -> PartitionState:
        with translated():
            row = self._open().execute(self._sql("load/state"), {"partition": partition}).fetchone()
        assert row is not None, f"generation {self._generation} has no offset row for partition {partition}"
        return PartitionState(*row)

    def load(self, partition: int, needs: Needs) -> Loaded:
        with translated():
            connection = self._open()
            if needs.range is not None:
                # A range may take long; its claim is renewed from another connection meanwhile.
                connection.execute("SET transaction_timeout = 0")
                self._timeout_lifted = True
            return _Load(connection, self._sql, partition, needs).loaded()

    def commit(self, batch: Batch, *, epoch: int) -> None:
        with translated():
            connection = self._open()
            fence = {"partition": batch.partition, "epoch": epoch, "expected": batch.offset_expected}
            write = _Write(connection.cursor(), self._sql, self._generation, batch)
            try:
                if write.is_large():
                    self._commit_large(connection, fence, batch, write)
                else:
                    self._commit_small(connection, fence, batch, write)
            except psycopg.Error:
                self._roll_back(connection)
                raise
            if self._timeout_lifted:
                connection.execute("RESET transaction_timeout")
                self._timeout_lifted = False

    def _commit_small(
        self, connection: Connection[Any], fence: dict[str, Any], batch: Batch, write: _Write
    ) -> None:
        with connection.pipeline():
            connection.execute("BEGIN")
            connection.execute(self._sql("fold/advance"), fence | batch.state._asdict())
            write.all()
            connection.execute("COMMIT")
            connection.execute(*self._notification(batch))

    def _commit_large(
        self, connection: Connection[Any], fence: dict[str, Any], batch: Batch, write: _Write
    ) -> None:
        connection.execute("BEGIN")
        connection.execute(self._sql("fold/advance"), fence | batch.state._asdict())
        write.all()
        connection.execute("COMMIT")
        connection.execute(*self._notification(batch))

    def _notification(self, batch: Batch) -> tuple[str, tuple[str, str]]:
        payload = f"{self._generation}:{batch.partition}:{batch.state.offset_next - 1}"
        return "SELECT pg_notify(%s, %s)", (NOTIFY_CHANNEL, payload)

    def rows(self, table: str) -> Iterator[Row]:
        spec = TABLES[table.removesuffix("_history")]
        began = [spec.valid_from] if table.endswith("_history") else []
        order = ", ".join([*spec.columns[: spec.key_size], *began])
        names = ", ".join([*spec.columns, *["valid_to"] * len(began)])
        statement = f"SELECT {names} FROM {schema_name(self._generation)}.{table} ORDER BY {order}"
        with translated():
            for row in self._open().execute(statement):
                yield tuple(str(value) if isinstance(value, UUID) else value for value in row)

    def reset(self) -> None:
        if self._connection is not None and not self._connection.closed:
            self._roll_back(self._connection)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self.close()
            self._connection = self._connect()
            self._timeout_lifted = False
        return self._connection

    def _roll_back(self, connection: Connection[Any]) -> None:
        """Ends what is open; a connection that cannot even do that is thrown away."""
        try:
            connection.rollback()
            if self._timeout_lifted:
                connection.execute("RESET transaction_timeout")
                self._timeout_lifted = False
        except psycopg.Error:
            self.close()

    def _sql(self, name: str) -> str:
        return sql_file(name, self._generation)


class _Load:
    """The reads of one batch, sent together."""

    def __init__(
        self, connection: Connection[Any], sql: Callable[[str], str], partition: int, needs: Needs
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._partition = partition
        self._needs = needs

    def loaded(self) -> Loaded:
        needs = self._needs
        with self._connection.pipeline():
            ids = self._ask("ids", _arrays(needs.ids, "scopes", "ids") | {"partition": self._partition})
            capsules = self._ask("capsule_heads", _arrays(needs.capsule_keys, "scopes", "keys"))
            usages = self._ask("capsule_scopes", {"scopes": list(needs.capsule_scopes)})
            deployments = self._ask(
                "deployment_heads", _arrays(needs.deployment_keys, "scopes", "namespaces", "keys")
            )
            floors = self._ask("deployment_scopes", {"scopes": list(needs.deployment_scopes)})
            occupied = self._ask("deployment_occupied", {"scopes": list(needs.restored_scopes)})
            scopes = {"scopes": list(needs.instances)}
            instances, executions, kv = (
                self._ask(name, scopes) for name in ("instances", "executions", "kv")
            )
            queues = self._ask("queues", scopes)
            messages = self._ask("inbox", _arrays(needs.messages, "scopes", "offsets"))
            tasks = self._ask("tasks", _arrays(needs.tasks, "scopes", "executions", "events"))
            outgoing = self._ask(
                "outbox", _arrays(needs.outgoing, "scopes", "incarnations", "executions", "events", "kinds")
            )
            children = None if needs.children is None else self._ask("children", {"scope": needs.children})
            totals = self._ask_range()
            # Last: each statement has a snapshot of its own. If the state is still as this worker left it, nobody has
            # committed before, so all that was read is of that state.
            state = self._ask("state", {"partition": self._partition})
        row = state.fetchone() if state is not None else None
        assert row is not None, f"no offset row for partition {self._partition}"
        loaded = Loaded(PartitionState(*row))
        for scope, mutation_id, offset, fingerprint, time_ms, status, *rest in _rows(ids):
            decision = Decision(DecisionStatus(status), *rest)
            loaded.ids[scope, mutation_id] = SeenId(offset, fingerprint, time_ms, decision)
        loaded.capsule_entries.update(((row[0], row[1]), Head(*row[2:])) for row in _rows(capsules))
        loaded.capsule_scopes.update((row[0], CapsuleScope(*row)) for row in _rows(usages))
        loaded.deployment_entries.update((row[:3], Head(*row[3:])) for row in _rows(deployments))
        loaded.deployment_scopes.update((row[0], DeploymentScope(*row)) for row in _rows(floors))
        loaded.occupied.update(row[0] for row in _rows(occupied))
        loaded.instances.update((row[0], Instance(*row)) for row in _rows(instances))
        loaded.executions.update((row[0], Execution(*row)) for row in _rows(executions))
        for row in _rows(kv):
            loaded.kv.setdefault(row[0], {})[row[1]] = KvEntry(*row)
        loaded.queues.update((row[0], Queue(*row)) for row in _rows(queues))
        for row in _rows(messages):
            loaded.messages.setdefault(row[0], {})[row[1]] = InboxMessage(*row)
        for row in _rows(tasks):
            loaded.tasks.setdefault(row[0], {})[row[1], row[2]] = Task(*row)
        loaded.outgoing.update((row[:5], OutboxMessage(*row)) for row in _rows(outgoing))
        loaded.children = tuple(Child(*row) for row in _rows(children))
        self._take_range(totals, loaded)
        return loaded

    def _ask(self, name: str, params: Mapping[str, Any]) -> Cursor[Any] | None:
        """Sends a statement; None where there is nothing to ask for."""
        if any(isinstance(value, list) and not value for value in params.values()):
            return None
        return self._connection.execute(self._sql(f"load/{name}"), params)

    def _ask_range(self) -> Cursor[Any] | None:
        wanted = self._needs.range
        if wanted is None:
            return None
        params = {"scope": wanted.scope} | _prefix(wanted.prefix)
        return self._connection.execute(self._sql(f"load/range_{wanted.table}"), params)

    def _take_range(self, totals: Cursor[Any] | None, loaded: Loaded) -> None:
        if totals is None:
            return
        assert self._needs.range is not None
        if self._needs.range.table == "orchestration_execution":
            loaded.execution_ids = frozenset(row[0] for row in totals)
        else:
            loaded.range = RangeTotals(*next(iter(totals)))


class _Write:
    """The writes of one batch, in an order that leaves no key twice: history first, then removals, then new rows."""

    _RANGES: Final = {
        "capsule_entry": "remove_capsule_range",
        "deployment_entry": "remove_deployment_range",
        "orchestration_kv": "remove_kv_range",
        "orchestration_instance": "remove_instance_range",
        "orchestration_execution": "remove_execution_range",
        "orchestration_event": "remove_event_range",
    }

    def __init__(self, cursor: Cursor[Any], sql: Callable[[str], str], generation: int, batch: Batch) -> None:
        self._cursor = cursor
        self._sql = sql
        self._generation = generation
        self._batch = batch

    def is_large(self) -> bool:
        """Whether any table gets enough rows for COPY, which cannot go in a pipeline."""
        tables = (*self._batch.additions.values(), *self._batch.puts.values())
        return any(len(rows) >= _COPY_ROWS_MIN for rows in tables)

    def all(self) -> None:
        batch, generation = self._batch, self._generation
        for table, moved in batch.superseded.items():
            rows = [(*key, valid_to) for key, valid_to in moved.items()]
            self._cursor.execute(move_sql(table, generation), _columns(rows))
        for removal in batch.ranges:
            self._remove_range(removal)
        for table, scopes in batch.sweeps.items():
            self._cursor.execute(sweep_sql(table, generation), [list(scopes)])
        for table, keys in batch.removals.items():
            gone = [key for key in keys if key not in batch.superseded.get(table, {})]
            if gone:
                self._cursor.execute(delete_sql(table, generation), _columns(gone))
        for table, puts in batch.puts.items():
            if TABLES[table].has_history or table == "mutation_id":
                self._insert(table, list(puts.values()))
            elif puts:
                self._execute_rows(upsert_sql, table, list(puts.values()))
        for table, rows_ in batch.additions.items():
            self._insert(table, rows_)

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        if len(rows) < _COPY_ROWS_MIN:
            if rows:
                self._execute_rows(insert_sql, table, rows)
            return
        statement, types = copy_sql(table, self._generation)
        with self._cursor.copy(statement) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def _execute_rows(self, statement_of: Callable[..., str], table: str, rows: Sequence[Row]) -> None:
        single = len(rows) == 1
        params = rows[0] if single else _columns(rows)
        self._cursor.execute(statement_of(table, self._generation, single=single), params)

    def _remove_range(self, removal: RangeRemoval) -> None:
        if removal.table not in self._RANGES:
            self._cursor.execute(sweep_sql(removal.table, self._generation), [[removal.scope]])
            return
        executions = None if removal.execution_ids is None else list(removal.execution_ids)
        params = {"scope": removal.scope, "valid_to": self._batch.range_valid_to, "executions": executions}
        self._cursor.execute(
            self._sql(f"fold/{self._RANGES[removal.table]}"), params | _prefix(removal.prefix)
        )


def _prefix(prefix: str | None) -> dict[str, str | None]:
    return {"prefix": prefix or "", "end": prefix_range_end(prefix or "")}


def _columns(rows: Sequence[Row]) -> list[list[Any]]:
    """Rows turned into one list a column."""
    return [list(column) for column in zip(*rows, strict=True)]


def _arrays(keys: set[Any], *names: str) -> dict[str, list[str]]:
    columns = list(zip(*keys, strict=True)) or [()] * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _rows(cursor: Cursor[Any] | None) -> Sequence[Any]:
    return () if cursor is None else cursor.fetchall()
