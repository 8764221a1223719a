"""Idempotency keys: how a caller's own text becomes a mutation id (contract, "HTTP")."""

from __future__ import annotations

import re
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

from kvfold.schemas.codec import is_mutation_id
from kvfold.schemas.errors import InvalidError

__all__ = ["IDEMPOTENCY_KEY_CHARS_MAX", "mutation_id_of"]

IDEMPOTENCY_KEY_CHARS_MAX: Final = 255
_NAMESPACE: Final[UUID] = uuid5(NAMESPACE_URL, "urn:kvfold:idempotency-key")
_TEXT: Final = re.compile(rf"[\x20-\x7e]{{1,{IDEMPOTENCY_KEY_CHARS_MAX}}}", re.ASCII)


def mutation_id_of(key: str, scope: str) -> str:
    """The mutation id of an idempotency key: a UUID is the id itself, any other text gives a UUIDv5 within the scope.

    Two scopes never share an id by their callers' texts. A pair of double quotes around the key is no part of it (the
    header is a structured string in the IETF's draft, and plain text with most clients).

    Raises:
        InvalidError: `malformed-idempotency-key`: blank, longer than 255 characters, or not printable ASCII.
    """
    text = key[1:-1] if len(key) >= 2 and key[0] == key[-1] == '"' else key
    if not text.strip() or _TEXT.fullmatch(text) is None:
        raise InvalidError(
            f"malformed idempotency key: 1 to {IDEMPOTENCY_KEY_CHARS_MAX} characters of printable ASCII are accepted",
            code="malformed-idempotency-key",
        )
    if is_mutation_id(text):
        return text.lower()
    # No scope holds a line feed, so scope and text cannot run into each other.
    return str(uuid5(_NAMESPACE, f"{scope}\n{text}"))
