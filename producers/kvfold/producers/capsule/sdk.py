"""`CapsuleKv`: what capsule code calls. Bytes, JSON, Borsh and versioned data of whoever is being served (C12 to C18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

from kvfold.producers.capsule.borsh_values import from_borsh, to_borsh
from kvfold.producers.capsule.checks import checked_key
from kvfold.producers.capsule.errors import ApiError, BorshError, CasMismatch, JsonError
from kvfold.producers.capsule.json_values import as_type, from_json, to_json
from kvfold.producers.capsule.scoped import ScopedKvStore
from kvfold.producers.capsule.store import KeyPage
from kvfold.producers.capsule.versioned import (
    Current,
    NeedsMigration,
    NotFound,
    Unversioned,
    Versioned,
    checked_version,
    enveloped,
    opened,
)
from kvfold.schemas.limits import PAGE_LIMIT_MAX

__all__ = ["CAS_RETRY_LIMIT", "CapsuleKv"]

T = TypeVar("T")

CAS_RETRY_LIMIT: Final = 8
"""How often `update` tries (002, the session capsule)."""


class CapsuleKv:
    """Keys of the principal that is being served, in this capsule. Plain calls, safe for several threads.

    Every call raises errors of `kvfold.producers.capsule.errors` and no others, but `TypeError` for a value that is not
    bytes: `InvalidKey`, `TooLarge`, `Quota`, `Unavailable` (the host is away), `Unknown`; and `Unbound` where nobody is
    being served.
    """

    def __init__(self, scoped: Callable[[], ScopedKvStore]) -> None:
        """`scoped` gives the store of the moment, or raises `Unbound`."""
        self._scoped = scoped

    # --- bytes ---

    def set_bytes(self, key: str, value: bytes) -> None:
        """Sets a key whatever it holds. Who read before, and writes what follows from it, needs `cas` or `update`."""
        self._scoped().set(key, value)

    def get_bytes(self, key: str) -> bytes:
        """The value; empty if the key is missing. `get_bytes_opt` tells the two apart."""
        return self._scoped().get(key) or b""

    def get_bytes_opt(self, key: str) -> bytes | None:
        """The value; None only if the key is missing."""
        return self._scoped().get(key)

    def delete(self, key: str) -> None:
        """Removes a key; nothing happens if there is none."""
        self._scoped().delete(key)

    def exists(self, key: str) -> bool:
        """Whether the key is there, also with an empty value."""
        return self._scoped().exists(key)

    def list_keys(self, prefix: str = "") -> list[str]:
        """Every key that starts with `prefix` (empty: all), in byte order. `TooLarge` above 1,024 of them."""
        return self._scoped().list_keys_with_prefix(prefix)

    def list_keys_page(
        self, prefix: str = "", cursor: str | None = None, limit: int = PAGE_LIMIT_MAX
    ) -> KeyPage:
        """Up to `limit` (1 to 1,024) keys that start with `prefix`, and the cursor of the next page, None at the end.

        Writes between pages neither repeat nor lose a key that stayed.
        """
        return self._scoped().list_keys_page(prefix, cursor=cursor, limit=limit)

    def clear_prefix(self, prefix: str) -> int:
        """Removes every key that starts with `prefix` (empty: all), all at once; gives how many there were."""
        return self._scoped().clear_prefix(prefix)

    def cas(self, key: str, expected: bytes | None, new: bytes) -> bool:
        """Sets a key iff it holds exactly `expected` (None: iff it is missing); False for a lost race.

        An empty value is not a missing one. Of many at once, exactly one wins. Nothing is tried again here: `update`
        does.
        """
        return self._scoped().compare_and_swap(key, expected, new)

    def update(
        self, key: str, change: Callable[[bytes | None], bytes], *, attempts_max: int = CAS_RETRY_LIMIT
    ) -> bytes:
        """Reads, changes and writes back, again from the start whenever somebody else was quicker; gives the new value.

        `change` is given the value, None if the key is missing, and may be called `attempts_max` times; what it raises
        ends the call with nothing written.

        Raises:
            CasMismatch: every attempt lost its race, and nothing was written.
        """
        for _ in range(attempts_max):
            before = self.get_bytes_opt(key)
            after = change(before)
            if self.cas(key, before, after):
                return after
        raise CasMismatch(f"{attempts_max} attempts in a row were too slow for other writers of the key")

    # --- JSON ---

    def set_json(self, key: str, value: object) -> None:
        """Sets a key to a value's JSON; dataclasses and pydantic models too. `JsonError` where it has none."""
        self._scoped().set(checked_key(key), to_json(value))

    @overload
    def get_json(self, key: str) -> Any: ...

    @overload
    def get_json(self, key: str, kind: type[T]) -> T: ...

    def get_json(self, key: str, kind: Any = None) -> Any:
        """The value that `set_json` wrote, as `kind` where one is named. `JsonError` if missing or not that."""
        raw = self._scoped().get(key)
        if raw is None:
            raise JsonError("the key is missing: there is no JSON to read")
        return _typed(from_json(raw), kind)

    @overload
    def get_json_opt(self, key: str) -> Any | None: ...

    @overload
    def get_json_opt(self, key: str, kind: type[T]) -> T | None: ...

    def get_json_opt(self, key: str, kind: Any = None) -> Any:
        """As `get_json`, and None only if the key is missing: a stored `null` is a `JsonError` here."""
        raw = self._scoped().get(key)
        return None if raw is None else _present(_typed(from_json(raw), kind))

    # --- Borsh ---

    def set_borsh(self, key: str, value: object) -> None:
        """Sets a key to a dataclass instance's Borsh; `borsh_types` has the types of its fields."""
        self._scoped().set(checked_key(key), to_borsh(value))

    def get_borsh(self, key: str, kind: type[T]) -> T:
        """The instance that `set_borsh` wrote. `BorshError` if missing, or not exactly one of `kind`."""
        raw = self._scoped().get(key)
        if raw is None:
            raise BorshError("the key is missing: there is no Borsh to read")
        return from_borsh(raw, kind)

    def get_borsh_opt(self, key: str, kind: type[T]) -> T | None:
        """As `get_borsh`, and None only if the key is missing."""
        raw = self._scoped().get(key)
        return None if raw is None else from_borsh(raw, kind)

    # --- versioned JSON ---

    def set_versioned(self, key: str, data: object, version: int) -> None:
        """Sets a key to data in an envelope that tells its schema's version, 0 to 2^32 - 1."""
        self._scoped().set(checked_key(key), to_json(enveloped(data, version)))

    @overload
    def get_versioned(self, key: str, current_version: int) -> Versioned[Any]: ...

    @overload
    def get_versioned(self, key: str, current_version: int, kind: type[T]) -> Versioned[T]: ...

    def get_versioned(self, key: str, current_version: int, kind: Any = None) -> Versioned[Any]:
        """What stands there, by its version; `kind` is the type of current data alone.

        Raises:
            JsonError: no JSON (an empty value is none), a malformed envelope, or current data that is no `kind`.
            ApiError: the data is of a version above `current_version`.
        """
        checked_version(current_version)
        raw = self._scoped().get(key)
        if raw is None:
            return NotFound()
        found = opened(from_json(raw), current_version)
        return Current(_typed(found.data, kind)) if isinstance(found, Current) else found

    @overload
    def get_versioned_or_migrate(
        self, key: str, current_version: int, migrate: Callable[[Any, int], T]
    ) -> T | None: ...

    @overload
    def get_versioned_or_migrate(
        self, key: str, current_version: int, migrate: Callable[[Any, int], T], kind: type[T]
    ) -> T | None: ...

    def get_versioned_or_migrate(
        self, key: str, current_version: int, migrate: Callable[[Any, int], Any], kind: Any = None
    ) -> Any:
        """The data at the current version; older data is migrated and written back. None only if the key is missing.

        `migrate(raw, stored_version)` gives the data at the current version; unversioned data comes as version 0. It
        must be idempotent. The write back is a plain set, so the last writer wins: where that is not enough, migrate
        inside `update`. What `migrate` raises leaves the stored value as it is.

        Raises: as `get_versioned`; `JsonError` also for data that is `null`, `ApiError` for a migration that gives None.
        """
        found = self.get_versioned(key, current_version, kind)
        match found:
            case NotFound():
                return None
            case Current(data):
                return _present(data)
            case NeedsMigration(raw, stored_version):
                migrated = migrate(raw, stored_version)
            case Unversioned(raw):
                migrated = migrate(raw, 0)
        if migrated is None:
            raise ApiError("the migration gave None, which is what a missing key gives")
        self.set_versioned(key, migrated, current_version)
        return migrated


def _typed(value: Any, kind: Any) -> Any:
    return value if kind is None else as_type(value, kind)


def _present(value: Any) -> Any:
    if value is None:
        raise JsonError("the stored JSON is null, which cannot be told from a missing key here")
    return value
