"""A real Kafka broker, one process from Kafka's own jars (KRaft: broker and controller in one)."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Final, Self

from support.broker import BrokerError, free_port, wait_until_ready
from support.kafka_jars import java, kafka_jars
from support.orphans import Leash

__all__ = ["KafkaBroker", "server_properties"]

_START_TIMEOUT_S: Final = 90.0
_STOP_TIMEOUT_S: Final = 30.0
_ATTEMPTS: Final = 3
# Any fixed id will do: a cluster here has one member.
_CLUSTER_ID: Final = "a3Zmb2xkLXRlc3RzLTAwMA"
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")


class KafkaBroker:
    """One broker on 127.0.0.1. Its port is chosen at the first start and stays.

    Everything it writes is in `directory`. It ends with the tests, also when these are killed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None

    @property
    def bootstrap(self) -> str:
        assert self._port is not None, "start comes first"
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "start comes first"
        return self._process.pid

    @property
    def log_file(self) -> Path:
        return self._directory / "broker.log"

    def start(self) -> None:
        """Start it and wait until it answers; raises `BrokerError`, with the end of its log, where it does not."""
        assert not self._is_running(), "it runs already"
        for attempt in range(1, _ATTEMPTS + 1):
            first_start = self._port is None
            if first_start:
                self._format(port=free_port(), controller_port=free_port())
            self._spawn()
            if wait_until_ready(self.bootstrap, timeout_s=_START_TIMEOUT_S, is_running=self._is_running):
                return
            self.kill()
            # Between the choice of a port and its use another program may have taken it.
            if not (first_start and "BindException" in self._log_end() and attempt < _ATTEMPTS):
                raise BrokerError(
                    f"the Kafka broker did not start; {self.log_file} ends with:\n{self._log_end()}"
                )
            self._port = None

    def stop(self) -> None:
        self.resume()
        if self._process is not None and self._is_running():
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._let_go()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._let_go()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None and self._is_running():
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _format(self, *, port: int, controller_port: int) -> None:
        """Write the configuration and make an empty data directory."""
        data = self._directory / f"data-{port}"
        data.mkdir(parents=True)
        self._config.write_text(
            server_properties(
                listener=f"127.0.0.1:{port}",
                advertised=f"127.0.0.1:{port}",
                controller=f"127.0.0.1:{controller_port}",
                data=str(data),
            )
        )
        command = self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._config))
        answer = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if answer.returncode != 0:
            raise BrokerError(f"Kafka's data directory could not be formatted:\n{answer.stdout[-4000:]}")
        self._port = port

    def _spawn(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._config)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._leash = Leash(self._process.pid)

    def _java(self, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={_LOG4J}"
        options = ["-Xmx512m", "-XX:+UseSerialGC", logging, f"-Dkafka.logs.dir={self._directory}"]
        return [java(), *options, "-cp", f"{kafka_jars()}/*", *arguments]

    @property
    def _config(self) -> Path:
        return self._directory / "server.properties"

    def _log_end(self) -> str:
        return self.log_file.read_text(errors="replace")[-4000:] if self.log_file.exists() else ""

    def _let_go(self) -> None:
        if self._leash is not None:
            self._leash.release()
            self._leash = None


def server_properties(*, listener: str, advertised: str, controller: str, data: str) -> str:
    """Return the configuration of a cluster of one: `listener` and `controller` are `host:port` to listen on."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{listener},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{advertised}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        # A topic that a test forgot to make shall be an error.
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # After a SIGKILL the broker may come back only when its last session is over; the default is nine seconds.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
