"""How to reach the topic: `KafkaSettings`, and what kafka-python is told because of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["CLIENT_SETTINGS", "DELIVERY_TIMEOUT_MS", "TOPIC", "KafkaSettings", "keep_values_out_of_logs"]

TOPIC: Final = "kvfold.mutations"
DELIVERY_TIMEOUT_MS: Final = 5_000
_RECONNECT_BACKOFF_MAX_MS: Final = 1_000  # kafka-python's default of 30 s outlives most broker restarts

CLIENT_SETTINGS: Final = (
    "security_protocol",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_crlfile",
    "ssl_check_hostname",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
)


@dataclass(frozen=True, kw_only=True)
class KafkaSettings:
    """The topic and its brokers. Fields in `CLIENT_SETTINGS` mean what they mean in kafka-python.

    `bootstrap_servers` is a list `host:port,host:port`. An append fails after `delivery_timeout_ms` at the latest; the
    other requests are given up after the same time. Passwords are not part of the repr.
    """

    bootstrap_servers: str
    topic: str = TOPIC
    partition_count: int = 12
    replication_factor: int = 1
    min_insync_replicas: int = 1
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    security_protocol: str = "PLAINTEXT"
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_crlfile: str | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)

    def client_options(self) -> dict[str, Any]:
        """What producer, consumer and admin client are given alike."""
        options = {name: getattr(self, name) for name in CLIENT_SETTINGS}
        servers = [server.strip() for server in self.bootstrap_servers.split(",") if server.strip()]
        return options | {
            "bootstrap_servers": servers,
            "client_id": "kvfold",
            "reconnect_backoff_max_ms": _RECONNECT_BACKOFF_MAX_MS,
        }


def keep_values_out_of_logs() -> None:
    """Keeps kafka-python from logging below WARNING, unless the application has set its own level of INFO or above.

    At DEBUG it writes keys and values of records, and passwords, into the log.
    """
    logger = logging.getLogger("kafka")
    if logger.level < logging.INFO:  # NOTSET, too: the root logger's level may be set to DEBUG later
        logger.setLevel(logging.WARNING)
