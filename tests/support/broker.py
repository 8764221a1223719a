"""What a test may do with a Kafka broker, wherever it runs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient

__all__ = ["Broker", "BrokerError", "free_port", "wait_until_ready"]

_POLL_S: Final = 0.05
_ANSWER_TIMEOUT_MS: Final = 5_000


class BrokerError(Exception):
    """A broker did not start, or cannot do what was asked of it."""


class Broker(Protocol):
    """A broker with a fixed address and data that outlive its process.

    Every call returns when its effect can be seen by a client. A broker that was killed or stopped is started again by
    `restart`.
    """

    @property
    def bootstrap(self) -> str:
        """Its address, `host:port`; the same over restarts."""

    def stop(self) -> None:
        """Stop it in good order; does nothing to one that is not running."""

    def kill(self) -> None:
        """End it by SIGKILL."""

    def restart(self) -> None:
        """Stop it in good order where it runs, and start it on the same address and data."""

    def pause(self) -> None:
        """Freeze it by SIGSTOP, connections open."""

    def resume(self) -> None:
        """Let a frozen one go on."""


def free_port() -> int:
    """Return a port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(bootstrap: str, *, timeout_s: float, is_running: Callable[[], bool]) -> bool:
    """Wait until the broker lists itself in its own metadata; False when it ended or the time is over.

    A broker takes connections before it is a member of its cluster, so a connection alone says nothing.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and is_running():
        # kafka-python waits longer between attempts than a broker takes to start: look at the port first.
        if _takes_connections(bootstrap) and _lists_brokers(bootstrap):
            return True
        time.sleep(_POLL_S)
    return False


def _takes_connections(bootstrap: str) -> bool:
    host, _, port = bootstrap.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True


def _lists_brokers(bootstrap: str) -> bool:
    clients: list[KafkaNetClient] = []

    def remembered(**configuration: Any) -> KafkaNetClient:
        clients.append(KafkaNetClient(**configuration))
        return clients[-1]

    try:
        admin = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            bootstrap_timeout_ms=_ANSWER_TIMEOUT_MS,
            request_timeout_ms=_ANSWER_TIMEOUT_MS,
            kafka_client=remembered,
        )
    except KafkaError:
        # The constructor started a thread and opened sockets, and forgets them when it fails.
        for client in clients:
            client.close()
            client._net.stop()
        return False
    try:
        return bool(admin.describe_cluster()["brokers"])
    except KafkaError:
        return False
    finally:
        admin.close()
