"""Making kafka-python's clients: bounded, without leaks when no broker answers, errors translated."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kafka.errors import BrokerResponseError, KafkaConfigurationError, KafkaError
from kafka.net.compat import KafkaNetClient

from kvfold.log.kafka_settings import KafkaSettings
from kvfold.schemas.errors import KvfoldError, LogMisconfiguredError, LogUnavailableError

__all__ = ["BOOTSTRAP_TIMEOUT_MS", "make_client", "translated"]

BOOTSTRAP_TIMEOUT_MS: Final = 3_000


def make_client(make: Callable[..., Any], settings: KafkaSettings, **options: Any) -> Any:
    """A `KafkaProducer`, `KafkaConsumer` or `KafkaAdminClient`, connected within `BOOTSTRAP_TIMEOUT_MS`.

    Raises:
        LogUnavailableError: no broker answers.
        LogMisconfiguredError: the settings are refused, by the client or by the broker.
    """
    _check_certificates(settings)
    networks: list[Any] = []

    def network(**configuration: Any) -> Any:
        networks.append(KafkaNetClient(**configuration))
        return networks[-1]

    try:
        return make(
            **settings.client_options(),
            **options,
            bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
            kafka_client=network,
        )
    except Exception as error:
        # A client that fails while it is made leaves a thread and sockets behind: one for each try of an outage.
        for made in networks:
            with suppress(KafkaError, OSError):
                made.close()
        if isinstance(error, KafkaError):
            raise translated(error) from error
        raise LogMisconfiguredError(f"the Kafka settings are refused: {error}") from error


def _check_certificates(settings: KafkaSettings) -> None:
    """Loads the certificate files once: kafka-python takes a missing one for a broker that does not answer."""
    if "SSL" not in settings.security_protocol:
        return
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        if settings.ssl_certfile is not None:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_password)
        if settings.ssl_crlfile is not None:
            context.load_verify_locations(settings.ssl_crlfile)
    except (OSError, ValueError) as error:  # a wrong password or format is an OSError, too
        files = (settings.ssl_cafile, settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_crlfile)
        raise LogMisconfiguredError(
            f"the Kafka settings are refused: certificate files {[name for name in files if name]}: {error}"
        ) from error


def translated(error: KafkaError) -> KvfoldError:
    """What kvfold calls an error of kafka-python; the caller raises it from that."""
    if isinstance(error, BrokerResponseError | KafkaConfigurationError) and not error.retriable:
        return LogMisconfiguredError(f"Kafka refuses: {error}")
    return LogUnavailableError(f"Kafka does not answer: {error}")
