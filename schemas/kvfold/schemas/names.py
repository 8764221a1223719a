"""The rules for names, keys and scopes (contract, "Names"), the same at the door and in the fold.

Each `check_…` answers None for a good value and otherwise a sentence that says what is wrong and what is accepted;
it never raises on text. Unicode normalisation uses the pinned table of the wheel `unicodedata2`, never the
interpreter's, so that every Python version gives the same answer for the same record.
"""

from __future__ import annotations

import re

import unicodedata2

from kvfold.schemas.limits import (
    CAPSULE_KEY_BYTES_MAX,
    DEPLOYMENT_KEY_BYTES_MAX,
    DEPLOYMENT_NAME_BYTES_MAX,
    NAME_PART_BYTES_MAX,
    ORCHESTRATION_KV_KEY_BYTES_MAX,
    ORCHESTRATION_NAME_BYTES_MAX,
)

__all__ = [
    "capsule_scope",
    "check_capsule_key",
    "check_capsule_prefix",
    "check_deployment_key",
    "check_deployment_name",
    "check_orchestration_key",
    "check_orchestration_name",
    "check_principal_part",
    "deployment_scope",
    "is_nfc",
    "namespace_suffixes",
    "orchestration_scope",
    "prefix_range_end",
    "utf8_length",
]

# C0, DEL and C1: the general category Cc, which no Unicode version changes.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def is_nfc(text: str) -> bool:
    """True if the text is in Unicode normalisation form C by the pinned table."""
    return text.isascii() or bool(unicodedata2.normalize("NFC", text) == text)


def utf8_length(text: str) -> int:
    """Length in UTF-8 bytes; -1 for text that has no UTF-8 form (a lone surrogate)."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        return -1


def _check_size(what: str, text: str, minimum: int, maximum: int) -> str | None:
    length = utf8_length(text)
    if length < 0:
        return f"{what} holds a lone surrogate: it must be UTF-8"
    if not minimum <= length <= maximum:
        return f"{what} has {length} bytes: {minimum} to {maximum} are accepted"
    return None


def _check_text(what: str, text: str, minimum: int, maximum: int, *, nfc: bool) -> str | None:
    # Most texts are printable ASCII, where a character is a byte; U+0020 to U+007E in every Unicode version.
    if text.isascii() and text.isprintable() and minimum <= len(text) <= maximum:
        return None
    problem = _check_size(what, text, minimum, maximum)
    if problem is not None:
        return problem
    if _CONTROL.search(text):
        return f"{what} holds a control character: none is accepted"
    if nfc and not is_nfc(text):
        return f"{what} is not in Unicode normalisation form C (NFC)"
    return None


def check_capsule_key(key: str) -> str | None:
    """UTF-8, NFC, no control characters, 1 to 256 bytes (row C6)."""
    return _check_text("the key", key, 1, CAPSULE_KEY_BYTES_MAX, nfc=True)


def check_capsule_prefix(prefix: str) -> str | None:
    """As a key, but the empty prefix (every key) is accepted, and it need not be NFC-complete.

    A prefix is a range of bytes, so a prefix that is no key itself only matches nothing.
    """
    return _check_text("the prefix", prefix, 0, CAPSULE_KEY_BYTES_MAX, nfc=False)


def check_deployment_key(key: str) -> str | None:
    """No control characters, not normalised (byte identity), 1 to 1,024 bytes (row D5)."""
    return _check_text("the key", key, 1, DEPLOYMENT_KEY_BYTES_MAX, nfc=False)


def check_deployment_name(what: str, name: str) -> str | None:
    """Deployment ids and namespaces: no control characters, 1 to 128 bytes."""
    return _check_text(what, name, 1, DEPLOYMENT_NAME_BYTES_MAX, nfc=False)


def check_principal_part(what: str, name: str) -> str | None:
    """Principals and capsule ids: NFC, no control characters, no `:`, no `/`, 1 to 128 bytes (row C1)."""
    problem = _check_text(what, name, 1, NAME_PART_BYTES_MAX, nfc=True)
    if problem is None and (":" in name or "/" in name):
        return f"{what} holds ':' or '/': neither is accepted, since it could forge a namespace"
    return problem


def check_orchestration_name(what: str, name: str) -> str | None:
    """Instance ids, orchestration, activity and event names: no control characters, 1 to 256 bytes."""
    return _check_text(what, name, 1, ORCHESTRATION_NAME_BYTES_MAX, nfc=False)


def check_orchestration_key(key: str) -> str | None:
    """Orchestration KV keys: any text without NUL, the empty one included, at most 256 bytes."""
    if "\x00" in key:
        return "the key holds NUL: it is not accepted"
    return _check_size("the key", key, 0, ORCHESTRATION_KV_KEY_BYTES_MAX)


def capsule_scope(principal: str, capsule_id: str) -> str:
    """The record key of a capsule's namespace: `c:alice:capsule:notes`."""
    return f"c:{principal}:capsule:{capsule_id}"


def deployment_scope(deployment_id: str) -> str:
    """The record key of a deployment: `d:dep-1`."""
    return f"d:{deployment_id}"


def orchestration_scope(instance_id: str) -> str:
    """The record key of an orchestration instance: `o:order-17`."""
    return f"o:{instance_id}"


def namespace_suffixes(namespace: str) -> tuple[str, frozenset[str]]:
    """Strips `_secrets` and `_volatile` suffixes, one at a time: (suffix-free name, suffixes found).

    `user_secrets_volatile` gives `("user", {"_secrets", "_volatile"})`: composing them must not hide one behind the
    other (003, "Secret namespaces").
    """
    found = set[str]()
    while True:
        for suffix in ("_secrets", "_volatile"):
            if namespace.endswith(suffix):
                namespace = namespace.removesuffix(suffix)
                found.add(suffix)
                break
        else:
            return namespace, frozenset(found)


def prefix_range_end(prefix: str) -> str | None:
    """The smallest text above every text that starts with `prefix`, in byte (code point) order; None = no bound.

    Example: `"ab"` gives `"ac"`; U+D7FF gives U+E000, as surrogates have no UTF-8 form.
    """
    points = list(prefix)
    while points:
        last = ord(points.pop())
        if last != 0x10FFFF:
            following = 0xE000 if last == 0xD7FF else last + 1
            return "".join(points) + chr(following)
    return None
