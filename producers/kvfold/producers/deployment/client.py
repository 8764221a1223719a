"""One deployment's persistent store (rows D1 to D5, D16): the core under the deployment client."""

from __future__ import annotations

from dataclasses import dataclass

from kvfold.producers import mutations
from kvfold.producers.deployment.object_store import check_key, check_namespace, check_page
from kvfold.producers.doors import check_tier
from kvfold.producers.outcomes import applied
from kvfold.producers.producer import Producer
from kvfold.producers.reading import AsOf, OwnWritesReader, QueryReader
from kvfold.reads.deployment import (
    DeploymentValue,
    ObjectPage,
    deployment_namespaces,
    deployment_objects,
    deployment_value,
)
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import OPEN_WAIT_SECONDS_MAX, PAGE_LIMIT_DEFAULT
from kvfold.schemas.names import check_deployment_name, deployment_scope
from kvfold.schemas.precondition import ABSENT, ANY, Precondition

__all__ = ["DeploymentClient", "Expected", "Removed"]

Expected = int | None
"""An expected version: 0 = must be absent, N = exactly that one, None = whatever it is."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What a delete removed: the version that was there, 0 if nothing was."""

    version: int


class DeploymentClient:
    """Entries of one deployment. Reads see this producer's writes. Safe for several threads.

    Every write waits for its decision and raises, besides what `Producer.execute` raises: `InvalidError`
    (`invalid-key`, `invalid-namespace`, `too-large`, `secret-and-volatile`, `volatile-in-log`), `UnavailableError`
    (`encryption-key-missing`), and `ConflictError` with the current version.
    """

    def __init__(
        self,
        producer: Producer,
        reader: QueryReader,
        *,
        deployment_id: str,
        actor: str | None = None,
        timeout_s: float = OPEN_WAIT_SECONDS_MAX,
    ) -> None:
        """Raises `InvalidError` `malformed-name` for what is no deployment id."""
        problem = check_deployment_name("the deployment id", deployment_id)
        if problem is not None:
            raise InvalidError(problem, code="malformed-name")
        self._producer = producer
        self._reads = OwnWritesReader(producer, reader, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._actor = actor
        self.scope = deployment_scope(deployment_id)

    # --- writes ---

    def put(self, namespace: str, key: str, value: bytes, *, expected: Expected = None) -> int:
        """Puts an entry and gives its new version, which only grows, also over deletes (row D2).

        Raises:
            ConflictError: `version-conflict`, with the current version, None if the entry is absent.
        """
        mutation = mutations.deployment_put(
            self.scope, namespace, key, value, expected=_precondition(expected), actor=self._actor
        )
        version = applied(self._producer.execute(mutation, self._timeout_s)).version
        assert version is not None
        return version

    def delete(self, namespace: str, key: str, *, expected: Expected = None) -> Removed:
        """Removes an entry; removing an absent one succeeds whatever is expected (row D3).

        Raises:
            ConflictError: `version-conflict`, with the current version.
        """
        mutation = mutations.deployment_deleted(
            self.scope, namespace, key, expected=_precondition(expected), actor=self._actor
        )
        version = applied(self._producer.execute(mutation, self._timeout_s)).version
        assert version is not None
        return Removed(version)

    def undeploy(self) -> int:
        """Removes every entry of every namespace in the log's tier; gives how many there were (row D16)."""
        mutation = mutations.deployment_undeployed(self.scope, actor=self._actor)
        removed = applied(self._producer.execute(mutation, self._timeout_s)).removed
        assert removed is not None
        return removed

    # --- reads ---

    def get(self, namespace: str, key: str, *, as_of: AsOf = None) -> DeploymentValue | None:
        """Value and version, now or as of the past; None if the entry is absent, which an empty value is not.

        Raises what the writes raise for names, and what `OwnWritesReader.read` raises, as every read here.
        """
        _check_namespace(namespace)
        check_key(key)
        at = self._reads.offset(self.scope, as_of)
        return self._reads.read(
            self.scope,
            lambda partition: deployment_value(self.scope, namespace, key, partition=partition, as_of=at),
        )

    def list(
        self,
        namespace: str,
        *,
        prefix: str = "",
        cursor: str | None = None,
        limit: int = PAGE_LIMIT_DEFAULT,
        as_of: AsOf = None,
    ) -> ObjectPage:
        """Up to `limit` (1 to 1,024) entries whose keys start with `prefix`, after `cursor`, in byte order.

        As of the past a page may be short: go on while there is a cursor.

        Raises:
            InvalidError: `invalid-key` for prefix or cursor, `malformed-limit`.
        """
        _check_namespace(namespace)
        check_page(prefix=prefix, cursor=cursor, limit=limit)
        at = self._reads.offset(self.scope, as_of)
        return self._reads.read(
            self.scope,
            lambda partition: deployment_objects(
                self.scope,
                namespace,
                prefix=prefix,
                cursor=cursor,
                limit=limit,
                partition=partition,
                as_of=at,
            ),
        )

    def namespaces(self, *, as_of: AsOf = None) -> tuple[str, ...]:
        """Every namespace with an entry, in byte order."""
        at = self._reads.offset(self.scope, as_of)
        return self._reads.read(
            self.scope, lambda partition: deployment_namespaces(self.scope, partition=partition, as_of=at)
        )


def _precondition(expected: Expected) -> Precondition:
    match expected:
        case None:
            return ANY
        case 0:
            return ABSENT
        case _:
            return Precondition.version(expected)


def _check_namespace(namespace: str) -> None:
    check_namespace(namespace)
    check_tier(namespace)
