"""Keyrings: the envelope, the place that a value is bound to, older keys, and keys that are none."""

from __future__ import annotations

import base64
from collections import Counter

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from kvfold.producers.gateway.keyring import Keyring, SecretUnreadableError
from kvfold.schemas.errors import ConfigurationError, UnavailableError
from kvfold.schemas.secret_envelope import key_id_of, plaintext_size

__all__: list[str] = []

KEY, OTHER = b"k" * 32, b"o" * 16
PLACE = ("d:dep", "user_secrets", "token")
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)


@pytest.mark.row("D10")
def test_the_envelope_is_the_contracts() -> None:
    keyring = Keyring(KEY, new_nonce=lambda size: b"n" * size)
    envelope = keyring.seal(*PLACE, b"value")
    assert envelope[:5] == b"KVS1\x08"
    key_id, nonce, sealed = envelope[5:13], envelope[13:25], envelope[25:]
    assert (key_id_of(envelope), nonce, len(sealed)) == (key_id, b"n" * 12, len(b"value") + 16)
    # Written down by hand: each part of the place with its length in front, four bytes, big-endian.
    place = b"\x00\x00\x00\x03dep\x00\x00\x00\x0cuser_secrets\x00\x00\x00\x05token"
    assert AESGCM(KEY).decrypt(nonce, sealed, place) == b"value"
    assert plaintext_size(envelope) == 5


@pytest.mark.row("D10")
@given(value=st.binary(max_size=64), size=st.sampled_from([16, 24, 32]), place=st.tuples(names, names, names))
def test_what_was_sealed_opens_at_its_place(value: bytes, size: int, place: tuple[str, str, str]) -> None:
    keyring = Keyring(b"k" * size)
    scope, namespace, key = f"d:{place[0]}", place[1], place[2]
    assert keyring.open(scope, namespace, key, keyring.seal(scope, namespace, key, value)) == value


@pytest.mark.row("D10")
@pytest.mark.parametrize(
    "place",
    [
        ("d:dep2", "user_secrets", "token"),
        ("d:dep", "system_secrets", "token"),
        ("d:dep", "user_secrets", "token2"),
        ("d:depuser_secrets", "", "token"),
        ("d:dep", "user_secretst", "oken"),
    ],
)
def test_what_is_moved_does_not_open(place: tuple[str, str, str]) -> None:
    keyring = Keyring(KEY)
    with pytest.raises(SecretUnreadableError):
        keyring.open(*place, keyring.seal(*PLACE, b"value"))


@pytest.mark.row("D10")
@given(at=st.integers(0, 45), flip=st.integers(1, 255))
def test_what_is_damaged_does_not_open(at: int, flip: int) -> None:
    keyring = Keyring(KEY)
    envelope = bytearray(keyring.seal(*PLACE, b"value"))
    assert len(envelope) == 46
    envelope[at] ^= flip
    with pytest.raises((SecretUnreadableError, UnavailableError)):
        keyring.open(*PLACE, bytes(envelope))


@pytest.mark.row("D10")
def test_every_sealing_has_a_nonce_of_its_own() -> None:
    keyring = Keyring(KEY)
    nonces = Counter(keyring.seal(*PLACE, b"value")[13:25] for _ in range(1_000))
    assert max(nonces.values()) == 1


@pytest.mark.row("D10")
def test_older_keys_open_and_the_new_one_seals() -> None:
    sealed_before = Keyring(OTHER).seal(*PLACE, b"value")
    rotated = Keyring(KEY, [OTHER])
    assert rotated.open(*PLACE, sealed_before) == b"value"
    assert not rotated.is_current(sealed_before[:32])
    assert rotated.is_current(rotated.seal(*PLACE, b"value")[:32])
    with pytest.raises(UnavailableError, match="KV_ENCRYPTION_KEYS_OLD") as caught:
        Keyring(KEY).open(*PLACE, sealed_before)
    assert caught.value.code == "encryption-key-missing"


@pytest.mark.row("D10")
def test_keys_come_as_base64() -> None:
    text = base64.b64encode(KEY).decode()
    older = ", ".join(base64.b64encode(key).decode() for key in (OTHER, b"e" * 24))
    keyring = Keyring.from_texts(f"{text}\n", older)
    assert keyring is not None
    for key in (KEY, OTHER, b"e" * 24):
        assert keyring.open(*PLACE, Keyring(key).seal(*PLACE, b"value")) == b"value"
    assert Keyring.from_texts(None) is None
    assert Keyring.from_texts(None, " ") is None


@pytest.mark.row("D10")
@pytest.mark.parametrize(
    ("key", "older", "variable"),
    [
        ("not-base64-cafe!", None, "KV_ENCRYPTION_KEY is"),
        ("schlüssel", None, "KV_ENCRYPTION_KEY is"),
        (base64.b64encode(b"k" * 31).decode(), None, "KV_ENCRYPTION_KEY is"),
        (base64.b64encode(b"k" * 33).decode(), None, "KV_ENCRYPTION_KEY is"),
        (base64.b64encode(KEY).decode().rstrip("="), None, "KV_ENCRYPTION_KEY is"),
        (base64.b64encode(KEY).decode(), "AAAA", "KV_ENCRYPTION_KEYS_OLD is"),
        (
            base64.b64encode(KEY).decode(),
            f"{base64.b64encode(OTHER).decode()},?",
            "KV_ENCRYPTION_KEYS_OLD is",
        ),
        (None, base64.b64encode(OTHER).decode(), "KV_ENCRYPTION_KEYS_OLD is"),
    ],
)
def test_what_is_no_key_is_named_and_not_shown(key: str | None, older: str | None, variable: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Keyring.from_texts(key, older)
    text = str(caught.value)
    assert text.startswith(variable)
    for secret in (key, *(older or "").split(",")):
        assert not secret or len(secret) < 4 or secret not in text
    # Neither does the chain of errors, which a crash would print.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_a_keyring_shows_no_key() -> None:
    key_id = key_id_of(Keyring(KEY).seal(*PLACE, b""))
    assert key_id is not None
    assert repr(Keyring(KEY, [OTHER])) == f"Keyring({key_id.hex()}, 1 older)"
