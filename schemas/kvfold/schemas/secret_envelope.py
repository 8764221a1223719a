"""The form of an encrypted secret value, envelope version 1 (contract, "Secret envelope").

```
"KVS1" | key id length (1 byte) | key id | nonce (12 bytes) | AES-GCM ciphertext with its 16-byte tag
```

Here only the form is checked, by the fold and at the door: without it a secret namespace's body is refused, so that
neither the log nor Postgres ever holds plaintext.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAGIC", "NONCE_BYTES", "TAG_BYTES", "key_id_of", "plaintext_size"]

MAGIC: Final = b"KVS1"
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16


def plaintext_size(body: bytes) -> int | None:
    """Bytes of plaintext inside an envelope; None if the body does not have the envelope's form."""
    if len(body) < len(MAGIC) + 1 or not body.startswith(MAGIC):
        return None
    key_id_bytes = body[len(MAGIC)]
    size = len(body) - len(MAGIC) - 1 - key_id_bytes - NONCE_BYTES - TAG_BYTES
    return size if key_id_bytes > 0 and size >= 0 else None


def key_id_of(body: bytes) -> bytes | None:
    """The id of the key that an envelope was sealed with; None if the body does not have the envelope's form."""
    if plaintext_size(body) is None:
        return None
    start = len(MAGIC) + 1
    return body[start : start + body[len(MAGIC)]]
