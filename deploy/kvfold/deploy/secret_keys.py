"""The keys of a process: the ones that KV_ENCRYPTION_KEY and KV_ENCRYPTION_KEYS_OLD name."""

from __future__ import annotations

from pydantic import SecretStr

from kvfold.log.settings import Settings
from kvfold.producers.gateway.keyring import Keyring

__all__ = ["keyring"]


def keyring(settings: Settings) -> Keyring | None:
    """The keys of secret namespaces, None where there is no key.

    Raises:
        ConfigurationError: a variable is no list of keys; names it and never shows it.
    """
    return Keyring.from_texts(_text(settings.encryption_key), _text(settings.encryption_keys_old))


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
