"""Secret values: sealed before they are appended, opened where they are read (003, "Secret namespaces"; row D10).

A value is sealed with AES-GCM for one place: deployment, namespace and key are its associated data, so an envelope that
is moved anywhere else does not open. The envelope names the key that it was sealed with, so that older keys still open
what they sealed while a new one is brought in. Its form stands in `kvfold.schemas.secret_envelope`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kvfold.producers.doors import KEY_VARIABLE
from kvfold.schemas.errors import ConfigurationError, KvfoldError, UnavailableError
from kvfold.schemas.secret_envelope import MAGIC, NONCE_BYTES, key_id_of, plaintext_size

__all__ = ["OLD_KEYS_VARIABLE", "Keyring", "SecretUnreadableError"]

OLD_KEYS_VARIABLE: Final = "KV_ENCRYPTION_KEYS_OLD"

_KEY_BYTES: Final = (16, 24, 32)
_KEY_ID_BYTES: Final = 8
_KEY_ID_DOMAIN: Final = b"kvfold key id\x00"


class SecretUnreadableError(KvfoldError):
    """A secret's envelope does not open at its place: it was moved there from another one, or damaged."""

    def __init__(self) -> None:
        super().__init__(
            "the value does not decrypt: it was not sealed for this deployment, namespace and key",
            code="secret-unreadable",
        )


class Keyring:
    """The key that seals, and older ones that still open. Its text never shows a key. Safe for several threads."""

    def __init__(
        self, key: bytes, older: Iterable[bytes] = (), *, new_nonce: Callable[[int], bytes] = os.urandom
    ) -> None:
        """Keys of 16, 24 or 32 bytes. A nonce is new each time: one key should seal at most 2**32 values."""
        self._sealing_id = _key_id(key)
        self._ciphers = {_key_id(each): AESGCM(each) for each in (key, *older)}
        self._new_nonce = new_nonce

    @classmethod
    def from_texts(cls, key: str | None, older: str | None = None) -> Self | None:
        """The keyring of the two variables' texts, None without a key. `older` is a comma-separated list.

        Raises:
            ConfigurationError: names the variable and what is accepted, never the text.
        """
        rest = [text for text in (older or "").split(",") if text.strip()]
        if key is None:
            if rest:
                raise ConfigurationError(
                    f"{OLD_KEYS_VARIABLE} is set and {KEY_VARIABLE} is not: there is no key to write with"
                )
            return None
        return cls(_decoded(key, KEY_VARIABLE), [_decoded(text, OLD_KEYS_VARIABLE) for text in rest])

    def __repr__(self) -> str:
        return f"Keyring({self._sealing_id.hex()}, {len(self._ciphers) - 1} older)"

    def seal(self, scope: str, namespace: str, key: str, value: bytes) -> bytes:
        """The envelope of a value for its place, another one each time."""
        nonce = self._new_nonce(NONCE_BYTES)
        assert len(nonce) == NONCE_BYTES
        sealed = self._ciphers[self._sealing_id].encrypt(nonce, value, _place(scope, namespace, key))
        envelope = MAGIC + bytes([_KEY_ID_BYTES]) + self._sealing_id + nonce + sealed
        assert plaintext_size(envelope) == len(value), "the fold reads the same form"
        return envelope

    def open(self, scope: str, namespace: str, key: str, envelope: bytes) -> bytes:
        """The value in an envelope that was sealed for this place.

        Raises:
            UnavailableError: `encryption-key-missing`: it was sealed with a key that is not configured here.
            SecretUnreadableError: it was not sealed for this place, or is damaged.
        """
        key_id = key_id_of(envelope)
        if key_id is None:
            raise SecretUnreadableError
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise UnavailableError(
                f"the value was encrypted with a key that is not configured (key id {key_id.hex()[:64]}): "
                f"name it in {OLD_KEYS_VARIABLE}",
                code="encryption-key-missing",
            )
        start = len(MAGIC) + 1 + len(key_id)
        nonce, sealed = envelope[start : start + NONCE_BYTES], envelope[start + NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, sealed, _place(scope, namespace, key))
        except InvalidTag as error:
            raise SecretUnreadableError from error

    def is_current(self, envelope_head: bytes) -> bool:
        """Whether an envelope, of which the beginning is enough, was sealed with the key that seals now."""
        key_id = envelope_head[len(MAGIC) + 1 : len(MAGIC) + 1 + _KEY_ID_BYTES]
        return (
            envelope_head[: len(MAGIC) + 1] == MAGIC + bytes([_KEY_ID_BYTES]) and key_id == self._sealing_id
        )


def _place(scope: str, namespace: str, key: str) -> bytes:
    """Deployment id, namespace and key, each with its length in front (contract, "Secret envelope")."""
    # What has no UTF-8 form is refused by the door, which comes after.
    parts = (part.encode("utf-8", "surrogatepass") for part in (scope.removeprefix("d:"), namespace, key))
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _key_id(key: bytes) -> bytes:
    """Derived from the key, so that nothing more has to be configured; it tells nothing of it."""
    return sha256(_KEY_ID_DOMAIN + key).digest()[:_KEY_ID_BYTES]


def _decoded(text: str, variable: str) -> bytes:
    try:
        key = base64.b64decode(text.strip().encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ConfigurationError(
            f"{variable} is a value that is not shown, and not base64: "
            "accepted is base64 of 16, 24 or 32 random bytes, such as `openssl rand -base64 32` prints"
        ) from None
    if len(key) not in _KEY_BYTES:
        raise ConfigurationError(
            f"{variable} is a value that is not shown, and decodes to {len(key)} bytes: 16, 24 or 32 are accepted"
        )
    return key
