"""A capsule store as a dictionary, with the document's rules written down a second time, to compare real stores with."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from kvfold.producers.capsule.errors import HostError
from kvfold.producers.capsule.store import PagedKvStore

__all__ = ["KEYS", "CapsuleModel", "Operation", "Refused", "operations", "outcome", "run_on"]

_MIB = 1024 * 1024

KEYS = (
    *("a", "ab", "a.b", "a.c", "a_", "a%", "b", "é", "\U0001f600", "/", "//", " ", "k" * 256),
    *("", "\x00", "a\x00", "e\u0301", "\ud800", "\x7f", "k" * 257, "\U0001f600" * 65),
)
"""Keys and prefixes to draw from, some of which are none."""

_VALUES = (b"", b"1", b"22", b"\x00\xff" * 8)


class Refused(Exception):
    """The model refuses, with a code."""


@dataclass(frozen=True)
class Operation:
    """A call by its name, as on `PagedKvStore`; `quota` is an operator's."""

    name: str
    arguments: dict[str, Any]


def outcome(act: Callable[[], Any]) -> tuple[str, Any]:
    """What a call gave: its result, or the code that it was refused with."""
    try:
        result = act()
    except Refused as refused:
        return "refused", str(refused)
    except HostError as error:
        return "refused", error.code
    return "gave", list(result) if isinstance(result, tuple) else result


@dataclass
class CapsuleModel:
    """One namespace."""

    values: dict[str, bytes] = field(default_factory=dict)
    quota: int = 64 * _MIB

    def run(self, operation: Operation) -> Any:
        """Does an operation. Raises `Refused`."""
        return getattr(self, operation.name)(**operation.arguments)

    def get(self, key: str) -> bytes | None:
        return self.values.get(_key(key))

    def exists(self, key: str) -> bool:
        return _key(key) in self.values

    def set(self, key: str, value: bytes) -> None:
        _key(key)
        self._put(key, _value(value))

    def delete(self, key: str) -> bool:
        return self.values.pop(_key(key), None) is not None

    def compare_and_swap(self, key: str, expected: bytes | None, new: bytes) -> bool:
        _key(key)
        _value(new)
        if self.values.get(key) != expected:
            return False
        self._put(key, new)
        return True

    def list_keys(self) -> list[str]:
        return self.list_keys_with_prefix("")

    def list_keys_with_prefix(self, prefix: str) -> list[str]:
        start = _prefix(prefix).encode()
        return sorted((key for key in self.values if key.encode().startswith(start)), key=str.encode)

    def list_keys_page(self, prefix: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        keys = self.list_keys_with_prefix(prefix)
        after = b"" if cursor is None else _key(cursor).encode()
        keys = [key for key in keys if key.encode() > after]
        if limit < 1:
            raise Refused("unknown")
        if limit > 1_024:
            raise Refused("too-large")
        return keys[:limit], keys[limit - 1] if len(keys) > limit else None

    def clear_namespace(self) -> int:
        return self.clear_prefix("")

    def clear_prefix(self, prefix: str) -> int:
        return len([self.values.pop(key) for key in self.list_keys_with_prefix(prefix)])

    def set_quota(self, bytes_max: int) -> None:
        self.quota = bytes_max

    def bytes_used(self) -> int:
        """Usage: a recount."""
        return sum(len(key.encode()) + len(value) for key, value in self.values.items())

    def _put(self, key: str, value: bytes) -> None:
        before = self.bytes_used()
        after = {**self.values, key: value}
        size = CapsuleModel(after).bytes_used()
        if size > before and size > self.quota:
            raise Refused("quota")
        self.values = after


def run_on(store: PagedKvStore, namespace: str, operation: Operation) -> Any:
    """Does an operation on a store; a page as keys and cursor."""
    result = getattr(store, operation.name)(namespace, **operation.arguments)
    return (list(result.keys), result.next_cursor) if operation.name == "list_keys_page" else result


def operations() -> st.SearchStrategy[Operation]:
    """Operations of all kinds; one in ten has something wrong with it, sometimes two things."""
    key = st.sampled_from(KEYS[:13]) | st.sampled_from(KEYS[:6]) | st.sampled_from(KEYS)
    value = st.sampled_from(_VALUES) | st.sampled_from([*_VALUES, bytes(_MIB + 1)])
    calls: list[tuple[str, dict[str, st.SearchStrategy[Any]]]] = [
        ("set", {"key": key, "value": value}),
        ("set", {"key": key, "value": value}),
        ("compare_and_swap", {"key": key, "expected": st.none() | st.sampled_from(_VALUES), "new": value}),
        ("get", {"key": key}),
        ("exists", {"key": key}),
        ("delete", {"key": key}),
        ("list_keys", {}),
        ("list_keys_with_prefix", {"prefix": key}),
        (
            "list_keys_page",
            {"prefix": key, "cursor": st.none() | key, "limit": st.sampled_from((1, 2, 1_024, 0, 1_025))},
        ),
        ("clear_prefix", {"prefix": key}),
        ("clear_namespace", {}),
        ("set_quota", {"bytes_max": st.sampled_from((0, 10, 40, 64 * _MIB))}),
    ]
    return st.one_of(*(_calls(name, arguments) for name, arguments in calls))


def _calls(name: str, arguments: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Operation]:
    return st.fixed_dictionaries(arguments).map(lambda given: Operation(name, given))


def _key(key: str) -> str:
    if not key:
        raise Refused("invalid-key")
    _prefix(key)
    if unicodedata.normalize("NFC", key) != key:
        raise Refused("invalid-key")
    return key


def _prefix(prefix: str) -> str:
    try:
        size = len(prefix.encode())
    except UnicodeEncodeError:
        raise Refused("invalid-key") from None
    if size > 256 or any(unicodedata.category(character) == "Cc" for character in prefix):
        raise Refused("invalid-key")
    return prefix


def _value(value: bytes) -> bytes:
    if len(value) > _MIB:
        raise Refused("too-large")
    return value
