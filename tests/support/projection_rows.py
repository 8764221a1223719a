"""A projection for tests of reads: real tables, and rows put there by hand, as a projector would leave them."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from kvfold.log.port import LogDescription
from kvfold.projector.generations import ensure_serving_generation
from kvfold.projector.statements import sql_files
from kvfold.schemas.names import capsule_scope, deployment_scope, orchestration_scope
from kvfold.schemas.partitioning import partition_of

__all__ = ["PARTITIONS", "ProjectionRows"]

PARTITIONS = 4


class ProjectionRows:
    """The tables of a database, and short ways to fill them. Each method commits by itself."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connection: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)
        log = LogDescription("memory", "kvfold.mutations", "log-1", PARTITIONS)
        self.generation = ensure_serving_generation(self.connection, log)

    def close(self) -> None:
        """Ends the connection; the rows stay."""
        self.connection.close()

    def execute(self, statement: str, *parameters: object, generation: int | None = None) -> None:
        """Runs a statement with `{g}` for the schema."""
        schema = f"kvfold_g{generation or self.generation}"
        self.connection.execute(statement.replace("{g}", schema).encode(), parameters)

    def insert(self, table: str, *, generation: int | None = None, **columns: object) -> None:
        """Inserts a row, replacing none."""
        statement = sql.SQL("INSERT INTO {}.{} ({}) VALUES ({})").format(
            sql.Identifier(f"kvfold_g{generation or self.generation}"),
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(sql.Placeholder() * len(columns)),
        )
        self.connection.execute(statement, list(columns.values()))

    def advance(self, partition: int, offset: int, *, generation: int | None = None) -> None:
        """The partition is folded up to `offset`; nobody is told."""
        statement = "UPDATE {g}.partition_offset SET offset_next = %s WHERE partition = %s"
        self.execute(statement, offset + 1, partition, generation=generation)

    def notify(self, partition: int, offset: int, *, generation: int | None = None) -> None:
        """Tells that the partition is folded up to `offset`."""
        payload = f"{generation or self.generation}:{partition}:{offset}"
        self.connection.execute("SELECT pg_notify('kvfold', %s)", (payload,))

    def pause(self, partition: int, reason: str = "bad-thing", detail: str = "a thing is bad") -> None:
        """The partition stopped."""
        self.insert("pause", partition=partition, reason=reason, detail=detail)

    def decide(
        self,
        partition: int,
        offset: int,
        *,
        scope: str | None = "d:dep",
        mutation_id: UUID | None = None,
        status: str = "applied",
        repeat_of: int | None = None,
        **columns: object,
    ) -> None:
        """A decision; with an id, also the row that finds it by id, unless it repeats another."""
        row: dict[str, Any] = {
            "code": None,
            "version": 1,
            "type": "kvfold.deployment.put.v1",
            "time_ms": 1_000,
            **columns,
        }
        self.insert(
            "decision",
            partition=partition,
            record_offset=offset,
            scope=scope,
            mutation_id=mutation_id,
            status=status,
            repeat_of=repeat_of,
            **row,
        )
        if mutation_id is not None and repeat_of is None:
            self.insert(
                "mutation_id",
                partition=partition,
                id=mutation_id,
                scope=scope,
                record_offset=offset,
                fingerprint=b"",
                time_ms=1_000,
            )

    def capsule(self, principal: str, capsule_id: str, key: str, value: bytes) -> None:
        """A capsule's entry."""
        self.insert(
            "capsule_entry",
            scope=capsule_scope(principal, capsule_id),
            key=key,
            version=1,
            value=value,
            sha256=hashlib.sha256(value).digest(),
            valid_from=0,
            time_ms=1_000,
        )

    def capsule_usage(
        self, principal: str, capsule_id: str, *, keys: int, size: int, bytes_max: int | None
    ) -> None:
        """A capsule's namespace, as the fold keeps it."""
        scope = capsule_scope(principal, capsule_id)
        self.insert("capsule_scope", scope=scope, keys=keys, bytes=size, bytes_max=bytes_max)

    def deployment(
        self, deployment_id: str, namespace: str, key: str, value: bytes | None, *, version: int = 1
    ) -> None:
        """A deployment's entry; None as a value is a tombstone."""
        self.insert(
            "deployment_entry",
            scope=deployment_scope(deployment_id),
            namespace=namespace,
            key=key,
            version=version,
            value=value,
            valid_from=0,
            time_ms=1_700_000_000_000,
        )

    def instance(self, instance_id: str, *, status: str = "Running", **columns: object) -> None:
        """An orchestration instance."""
        row: dict[str, Any] = {
            "incarnation": 7,
            "execution_id": 1,
            "mode": "external",
            "name": "order",
            "input": '{"n":1}',
            "history_length": 3,
            "created_ms": 1_700_000_000_000,
            "updated_ms": 1_700_000_000_500,
            "updated_at": 9,
            **columns,
        }
        self.insert("orchestration_instance", scope=orchestration_scope(instance_id), status=status, **row)

    def kv(self, instance_id: str, key: str, value: str, *, execution_id: int = 1) -> None:
        """A key of an orchestration instance."""
        self.insert(
            "orchestration_kv",
            scope=orchestration_scope(instance_id),
            key=key,
            value=value,
            execution_id=execution_id,
            valid_from=0,
            time_ms=1_000,
        )

    def new_generation(self, generation: int) -> None:
        """Makes the tables of another generation, empty."""
        self.connection.execute(f"CREATE SCHEMA kvfold_g{generation}".encode())
        for statement in sql_files("generation", generation):
            self.connection.execute(statement.encode())
        self.execute(
            "INSERT INTO {g}.partition_offset (partition) SELECT * FROM generate_series(0, %s)",
            PARTITIONS - 1,
            generation=generation,
        )
        self.execute(
            "INSERT INTO kvfold.generation (id, state, schema_version) VALUES (%s, 'verified', 1)", generation
        )

    def swap(self, generation: int) -> None:
        """Makes another generation the serving one."""
        self.execute("UPDATE kvfold.pointer SET serving = %s", generation)

    @staticmethod
    def partition(scope: str) -> int:
        """The partition of a scope."""
        return partition_of(scope.encode(), PARTITIONS)
