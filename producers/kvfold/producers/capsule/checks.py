"""What every store refuses before it does anything, in the same order and with the same errors.

The rules themselves are those of the log's door and of the fold (`kvfold.schemas.names`, `kvfold.schemas.limits`).
"""

from __future__ import annotations

from typing import Final

from kvfold.producers.capsule.errors import InvalidKey, TooLarge, Unknown
from kvfold.schemas.limits import CAPSULE_VALUE_BYTES_MAX, PAGE_LIMIT_MAX
from kvfold.schemas.names import (
    capsule_scope,
    check_capsule_key,
    check_capsule_prefix,
    check_principal_part,
)

__all__ = [
    "checked_key",
    "checked_page",
    "checked_prefix",
    "checked_value",
    "namespace_of",
    "parts_of",
]

_MIDDLE: Final = "capsule"


def namespace_of(principal: str, capsule_id: str) -> str:
    """The namespace of a principal in a capsule: `alice:capsule:notes` (row C1).

    Raises:
        InvalidKey: one of the two could forge another's namespace, or is no name at all.
    """
    _check_name("the principal", principal)
    _check_name("the capsule id", capsule_id)
    return f"{principal}:{_MIDDLE}:{capsule_id}"


def parts_of(namespace: str) -> tuple[str, str]:
    """Principal and capsule id of a namespace.

    Raises:
        InvalidKey: it is not exactly `{principal}:capsule:{capsule_id}`.
    """
    parts = namespace.split(":") if isinstance(namespace, str) else []
    if len(parts) != 3 or parts[1] != _MIDDLE:
        raise InvalidKey(f"the namespace is not of the form principal:{_MIDDLE}:capsule_id")
    _check_name("the principal", parts[0])
    _check_name("the capsule id", parts[2])
    return parts[0], parts[2]


def checked_key(key: str) -> str:
    """The key. Raises InvalidKey (row C6)."""
    _check_text("the key", key)
    _raise(check_capsule_key(key))
    return key


def checked_prefix(prefix: str) -> str:
    """The prefix, which may be empty. Raises InvalidKey."""
    _check_text("the prefix", prefix)
    _raise(check_capsule_prefix(prefix))
    return prefix


def checked_value(value: bytes) -> bytes:
    """The value as bytes of its own.

    Raises:
        TooLarge: above 1 MiB (row C7).
        TypeError: it is not bytes; text is never encoded by guess.
    """
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"the value must be bytes, not {type(value).__name__}")
    content = bytes(value)
    if len(content) > CAPSULE_VALUE_BYTES_MAX:
        raise TooLarge(f"the value has {len(content)} bytes: at most {CAPSULE_VALUE_BYTES_MAX} are accepted")
    return content


def checked_page(prefix: str, cursor: str | None, limit: int) -> None:
    """Looks at the arguments of a page, the prefix first, then cursor, then limit.

    Raises:
        InvalidKey: the prefix is none, or the cursor is none that a page gave.
        TooLarge: the limit is above 1,024 keys.
        Unknown: the limit is not a whole number above zero.
    """
    checked_prefix(prefix)
    if cursor is not None and (not isinstance(cursor, str) or check_capsule_key(cursor) is not None):
        raise InvalidKey("the cursor is none that a page gave")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise Unknown(f"the limit is not accepted: a whole number from 1 to {PAGE_LIMIT_MAX} is")
    if limit > PAGE_LIMIT_MAX:
        raise TooLarge(f"the limit is {limit}: a page has at most {PAGE_LIMIT_MAX} keys")


def _check_name(what: str, name: str) -> None:
    _check_text(what, name)
    _raise(check_principal_part(what, name))


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidKey(f"{what} must be text, not {type(text).__name__}")


def _raise(problem: str | None) -> None:
    if problem is not None:
        raise InvalidKey(problem)


assert capsule_scope("a", "b") == "c:" + namespace_of("a", "b"), (
    "a scope is the namespace of the capsule family"
)
