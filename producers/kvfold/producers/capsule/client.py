"""One capsule's namespace (rows C1 to C10, C15, C21): the core under the capsule SDK."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from time import monotonic, sleep
from types import MappingProxyType
from typing import Final

from kvfold.producers import mutations
from kvfold.producers.errors import AppendUnacknowledgedError
from kvfold.producers.outcomes import Decided, applied
from kvfold.producers.producer import Producer
from kvfold.producers.reading import AsOf, OwnWritesReader, QueryReader
from kvfold.reads.capsule import (
    CapsuleUsage,
    KeyPage,
    capsule_keys,
    capsule_usage,
    capsule_value,
)
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import CAPSULE_LIST_KEYS_MAX, OPEN_WAIT_SECONDS_MAX, PAGE_LIMIT_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.names import (
    capsule_scope,
    check_capsule_key,
    check_capsule_prefix,
    check_principal_part,
)
from kvfold.schemas.outcome import DecisionStatus
from kvfold.schemas.precondition import ABSENT, Precondition

__all__ = ["CapsuleClient"]

_ATTEMPTS_MAX: Final = 3
_REPEAT_PAUSE_S: Final = 0.1


class CapsuleClient:
    """Keys and values of one (principal, capsule). Reads see this producer's writes. Safe for several threads.

    Every write waits for its decision; one that the log did not acknowledge is repeated with the same id, twice at
    most. It raises, besides what `Producer.execute` raises:
    `InvalidError` (`invalid-key`, `too-large`; nothing was appended) and `RejectedError` (`quota`).
    """

    def __init__(
        self,
        producer: Producer,
        reader: QueryReader,
        *,
        principal: str,
        capsule_id: str,
        timeout_s: float = OPEN_WAIT_SECONDS_MAX,
    ) -> None:
        """Raises `InvalidError` `malformed-name` for a principal or capsule id that could forge a namespace."""
        problem = check_principal_part("the principal", principal) or check_principal_part(
            "the capsule id", capsule_id
        )
        if problem is not None:
            raise InvalidError(problem, code="malformed-name")
        self._producer = producer
        self._reads = OwnWritesReader(producer, reader, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._actor = principal
        self.scope = capsule_scope(principal, capsule_id)

    # --- writes ---

    def set(self, key: str, value: bytes) -> int:
        """Sets a key whatever it holds; gives its version, 1 for a new key."""
        decision = applied(self._execute(mutations.capsule_set(self.scope, key, value, actor=self._actor)))
        assert decision.version is not None
        return decision.version

    def delete(self, key: str) -> bool:
        """Removes a key; False if there was none."""
        decision = applied(self._execute(mutations.capsule_deleted(self.scope, key, actor=self._actor)))
        return bool(decision.version)

    def cas(self, key: str, expected: bytes | None, new: bytes) -> bool:
        """Sets a key iff it holds exactly `expected` (None: iff it is missing); False for a lost race (row C15)."""
        mutation = mutations.capsule_set(self.scope, key, new, expected=_holding(expected), actor=self._actor)
        return self._swapped(mutation)

    def batch(
        self,
        sets: Mapping[str, bytes],
        deletes: Iterable[str] = (),
        *,
        expected: Mapping[str, bytes | None] = MappingProxyType({}),
    ) -> bool:
        """Sets and removes keys all at once, iff every key of `expected` holds just that; else False and no change.

        `expected` is about the keys before the batch, None: the key is missing; they need not be among those that are
        written. A key is set or removed, not both; one that is missing may be removed.

        Raises:
            InvalidError: `invalid-key`; `too-large`: more than 1,024 keys are written, or expected, or all of it is
                above 1 MiB as JSON, in which a value takes four bytes for three; `malformed`: nothing is written, or a
                key twice.
        """
        removed = tuple(deletes)
        for key in (*sets, *removed, *expected):
            _check(check_capsule_key(key))
        conditions = {key: _holding(value) for key, value in expected.items()}
        mutation = mutations.capsule_batch(
            self.scope, sets=sets, deletes=removed, conditions=conditions, actor=self._actor
        )
        return self._swapped(mutation)

    def clear_prefix(self, prefix: str) -> int:
        """Removes every key that starts with `prefix` (empty: all), all at once; gives how many there were."""
        return self._range(mutations.capsule_prefix_cleared(self.scope, prefix, actor=self._actor))

    def clear_namespace(self) -> int:
        """Removes every key, all at once; gives how many there were."""
        return self._range(mutations.capsule_namespace_cleared(self.scope, actor=self._actor))

    def set_quota(self, bytes_max: int) -> None:
        """Sets the most bytes of keys and values; below the usage is allowed, and only shrinking is then."""
        applied(self._execute(mutations.capsule_quota_set(self.scope, bytes_max, actor=self._actor)))

    # --- reads ---

    def get(self, key: str, *, as_of: AsOf = None) -> bytes | None:
        """The value, now or as of the past; None if the key is missing, which an empty value is not.

        Raises `InvalidError` `invalid-key`, and what `OwnWritesReader.read` raises, as every read here.
        """
        _check(check_capsule_key(key))
        at = self._reads.offset(self.scope, as_of)
        found = self._reads.read(
            self.scope, lambda partition: capsule_value(self.scope, key, partition=partition, as_of=at)
        )
        return None if found is None else found.value

    def exists(self, key: str) -> bool:
        """Whether the key is there, also with an empty value. The value is not fetched."""
        _check(check_capsule_key(key))
        # In byte order a key comes before all others that begin with it.
        return self.list_keys_page(key, limit=1).keys == (key,)

    def list_keys(self, prefix: str = "") -> tuple[str, ...]:
        """Every key that starts with `prefix`, in byte order.

        Raises:
            InvalidError: `too-large`: more than 1,024 keys match; `list_keys_page` lists them.
        """
        page = self.list_keys_page(prefix, limit=CAPSULE_LIST_KEYS_MAX)
        if page.next_cursor is not None:
            raise InvalidError(
                f"more than {CAPSULE_LIST_KEYS_MAX} keys match: list them page by page (list_keys_page)",
                code="too-large",
            )
        return page.keys

    def list_keys_page(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int = PAGE_LIMIT_MAX,
        as_of: AsOf = None,
    ) -> KeyPage:
        """Up to `limit` (1 to 1,024) keys that start with `prefix`, after `cursor` (row C9).

        As of the past a page may be short: go on while there is a cursor.

        Raises:
            InvalidError: `invalid-key` for the prefix, `malformed-cursor`, `malformed-limit`.
        """
        _check(check_capsule_prefix(prefix))
        if not 1 <= limit <= PAGE_LIMIT_MAX:
            raise InvalidError(
                f"the limit is {limit}: 1 to {PAGE_LIMIT_MAX} are accepted", code="malformed-limit"
            )
        if cursor is not None and check_capsule_key(cursor) is not None:
            raise InvalidError("the cursor is none that a page gave", code="malformed-cursor")
        at = self._reads.offset(self.scope, as_of)
        return self._reads.read(
            self.scope,
            lambda partition: capsule_keys(
                self.scope, prefix=prefix, cursor=cursor, limit=limit, partition=partition, as_of=at
            ),
        )

    def usage(self) -> CapsuleUsage:
        """Keys, bytes of keys and values, and the quota in force."""
        return self._reads.read(self.scope, lambda partition: capsule_usage(self.scope, partition=partition))

    def _swapped(self, mutation: Mutation) -> bool:
        decided = self._execute(mutation)
        if decided.decision.status is DecisionStatus.CONFLICT:
            return False
        applied(decided)
        return True

    def _range(self, mutation: Mutation) -> int:
        removed = applied(self._execute(mutation)).removed
        assert removed is not None
        return removed

    def _execute(self, mutation: Mutation) -> Decided:
        """The decision; an append whose answer was lost is repeated with the same id, so it is applied once (row X4)."""
        deadline = monotonic() + self._timeout_s
        mutation = self._producer.stamped(mutation)
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                return self._producer.execute(mutation, max(0.0, deadline - monotonic()))
            except AppendUnacknowledgedError:
                if attempt == _ATTEMPTS_MAX or monotonic() + _REPEAT_PAUSE_S >= deadline:
                    raise
                sleep(_REPEAT_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")


def _holding(expected: bytes | None) -> Precondition:
    return ABSENT if expected is None else Precondition.sha256(hashlib.sha256(expected).hexdigest())


def _check(problem: str | None) -> None:
    if problem is not None:
        raise InvalidError(problem, code="invalid-key")
