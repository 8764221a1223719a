"""The socket that a server listens on."""

from __future__ import annotations

import socket

import pytest

from kvfold.deploy.environment import PortTakenError
from kvfold.deploy.http_server import bound_socket


def test_answers_are_sent_at_once() -> None:
    # asyncio sets TCP_NODELAY only where the protocol is named; without it every answer may wait 40 ms.
    with bound_socket("127.0.0.1", 0) as taken:
        assert taken.proto == socket.IPPROTO_TCP


def test_nobody_is_connected_before_the_server_starts() -> None:
    with bound_socket("127.0.0.1", 0) as taken, pytest.raises(ConnectionRefusedError):
        socket.create_connection(taken.getsockname(), timeout=5)


def test_a_taken_port_names_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"127.0.0.1:{port} .* KVFOLD_PORT"):
            bound_socket("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(PortTakenError, match=r"cannot listen on 192\.0\.2\.1"):
        bound_socket("192.0.2.1", 0)
