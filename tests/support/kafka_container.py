"""A real Kafka broker in a Docker container, through testcontainers."""

from __future__ import annotations

import functools
import os
import socket
from typing import Any, Final, Self

import docker
import docker.errors
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from support.broker import BrokerError, free_port, wait_until_ready
from support.docker_image import ImageMissingError, kafka_image
from support.kafka_broker import server_properties

__all__ = ["KafkaContainer", "docker_image_or_reason"]

_PORT: Final = 9092
_START_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 30
_ATTEMPTS: Final = 3
_DAEMON_TIMEOUT_S: Final = 5


@functools.cache
def docker_image_or_reason() -> tuple[str | None, str]:
    """Return the image of the broker, made on first use; or None and the reason why there is none.

    Asked once in a session: a registry that does not answer takes its time to say so.
    """
    try:
        _reach_daemon()
        return kafka_image(), ""
    except (OSError, docker.errors.DockerException) as error:
        return None, f"no daemon answers ({error})"
    except ImageMissingError as error:
        return None, str(error)


def _reach_daemon() -> None:
    """Ask the daemon for a sign of life; raises what the socket or the client raises where it gives none."""
    address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if address.startswith("unix://"):
        # The client leaks its socket where nobody listens: find out with one of ours.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_DAEMON_TIMEOUT_S)
            probe.connect(address.removeprefix("unix://"))
    client = docker.from_env(timeout=_DAEMON_TIMEOUT_S)
    try:
        client.ping()
    finally:
        client.close()


class KafkaContainer:
    """One broker in a container. Its port on the host is chosen at the first start and stays."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._port: int | None = None
        self._container: DockerContainer | None = None
        self._host = "127.0.0.1"

    @property
    def bootstrap(self) -> str:
        assert self._port is not None, "start comes first"
        return f"{self._host}:{self._port}"

    def start(self) -> None:
        """Start it and wait until it answers; raises `BrokerError`, with the end of its log, where it does not."""
        if self._container is None:
            self._create()
        else:
            self._wrapped().start()
        if not wait_until_ready(self.bootstrap, timeout_s=_START_TIMEOUT_S, is_running=self._is_running):
            log = self._wrapped().logs(tail=60).decode(errors="replace")
            raise BrokerError(f"the Kafka container did not start; its log ends with:\n{log[-4000:]}")

    def stop(self) -> None:
        self.resume()
        self._wrapped().stop(timeout=_STOP_TIMEOUT_S)

    def kill(self) -> None:
        if self._is_running():
            self._wrapped().kill()
            self._wrapped().wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        self._wrapped().pause()

    def resume(self) -> None:
        self._wrapped().reload()
        if self._wrapped().status == "paused":
            self._wrapped().unpause()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _create(self) -> None:
        """Make and start the container with a port that the broker's clients and the host agree on."""
        _disable_reaper_without_image()
        host = DockerClient().host()
        # A name that may lead to ::1, where Docker need not listen.
        self._host = "127.0.0.1" if host == "localhost" else host
        for attempt in range(1, _ATTEMPTS + 1):
            self._port = free_port()
            properties = server_properties(
                listener=f"0.0.0.0:{_PORT}",
                advertised=self.bootstrap,
                controller=f"127.0.0.1:{_PORT + 1}",
                data="/opt/kafka/data",
            )
            container = DockerContainer(self._image).with_bind_ports(_PORT, self._port)
            self._container = container.with_env("SERVER_PROPERTIES", properties)
            try:
                self._container.start()
                return
            except docker.errors.APIError as error:
                self._remove()
                # Between the choice of a port and its use another program may have taken it.
                if attempt == _ATTEMPTS or "port is already allocated" not in str(error):
                    raise BrokerError(f"Docker did not start the Kafka container: {error}") from error

    def _wrapped(self) -> Any:
        assert self._container is not None, "start comes first"
        return self._container.get_wrapped_container()

    def _is_running(self) -> bool:
        self._wrapped().reload()
        return bool(self._wrapped().status == "running")

    def _remove(self) -> None:
        if self._container is not None:
            self._container.stop(force=True, delete_volume=True)
            self._container = None


def _disable_reaper_without_image() -> None:
    """Do without testcontainers' reaper where its image cannot be had: the container is then removed by us alone."""
    client = docker.from_env()
    try:
        client.images.get(testcontainers_config.ryuk_image)
    except docker.errors.ImageNotFound:
        try:
            client.images.pull(testcontainers_config.ryuk_image)
        except docker.errors.DockerException:
            testcontainers_config.ryuk_disabled = True
    finally:
        client.close()
