"""The query API behind its real server: what goes over the wire is what the router sees."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from urllib.parse import quote

import httpx
import pytest

from kvfold.http.server import Server
from kvfold.query_api.serve import query_api_app, read_context
from support.projection_rows import ProjectionRows

pytestmark = pytest.mark.postgres


@pytest.fixture
def port(postgres_dsn: str, rows: ProjectionRows) -> Iterator[int]:
    app = query_api_app(read_context(postgres_dsn, pool_size=4))
    server = Server(app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


class Wire:
    """A kept connection that sends request lines as they stand."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))

    def ask(
        self, target: bytes, method: bytes = b"GET", headers: bytes = b"", body: bytes = b""
    ) -> HTTPResponse:
        self.socket.sendall(method + b" " + target + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n" + body)
        response = HTTPResponse(self.socket, method=method.decode())
        response.begin()
        return response


@pytest.mark.row("D5")
def test_keys_over_the_wire(port: int, rows: ProjectionRows) -> None:
    wire = Wire(port)
    for key in ("..", ".", "//", "/", "a/../b", "+", "%", "%2F", "🦊", " ", "?", "#", "a/", "/a", "a;b"):
        rows.deployment("dep", "user", key, key.encode())
        for safe in ("", "/."):
            with wire.ask(b"/deployments/dep/kv/user/" + quote(key, safe=safe).encode()) as response:
                assert (response.status, response.read()) == (200, key.encode())
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            answered = client.get("/deployments/dep/kv/user", params={"key": key})
            assert (answered.status_code, answered.content) == (200, key.encode())
    wire.socket.close()


def test_one_connection_serves_every_kind_of_answer(port: int, rows: ProjectionRows) -> None:
    rows.deployment("dep", "user", "k", b"value")
    wire = Wire(port)
    target = b"/deployments/dep/kv/user/k"
    with wire.ask(target, b"HEAD") as response:
        assert (response.status, response.headers["content-length"], response.read()) == (200, "5", b"")
    with wire.ask(target, headers=b'If-None-Match: "1"\r\n') as response:
        assert (response.status, response.read()) == (304, b"")
    with wire.ask(target, b"PUT", b"Content-Length: 3\r\n", b"abc") as response:
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")
        response.read()
    with wire.ask(b"/deployments/dep/kv/user/%zz") as response:
        assert response.status == 400
        response.read()
    with wire.ask(b"http://elsewhere/deployments/dep/kv/user/k") as response:
        assert (response.status, response.read()) == (200, b"value")
    wire.socket.close()


def test_odd_request_lines_are_no_500(port: int) -> None:
    odd = (
        b"*",
        b"/\xc3\xa9",
        b"//",
        b"/deployments/dep/kv/user/\xff",
        b"/?%",
        b"/" + b"a/" * 2_000,
        b"http://x",
    )
    for target in odd:
        wire = Wire(port)
        with wire.ask(target) as response:
            assert response.status in (400, 404)
        wire.socket.close()
