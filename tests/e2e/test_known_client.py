"""The client that runtimes have had for years, written again from what it is known to do: it must work unchanged.

It takes 200 and 201 alone for the success of a PUT, always sends `X-Object-Version` on a DELETE (0 = unconditional),
reads the version from the header, and gives up after 10 seconds.
"""

from __future__ import annotations

import http.client
from urllib.parse import quote, urlsplit

import pytest

from e2e.stack import DevProcess

__all__: list[str] = []


class ConflictError(Exception):
    """The current version."""


class KnownClient:
    def __init__(self, url: str, deployment_id: str) -> None:
        self._address = urlsplit(url).netloc
        self._base = f"/deployments/{quote(deployment_id, safe='')}/kv"

    def get(self, namespace: str, key: str) -> tuple[bytes, int] | None:
        status, headers, body = self._ask("GET", namespace, key)
        if status == 404:
            return None
        assert status == 200, status
        return body, int(headers["X-Object-Version"])

    def put(self, namespace: str, key: str, value: bytes, version: int | None = None) -> int:
        sent = {} if version is None else {"X-Object-Version": str(version)}
        status, headers, _ = self._ask("PUT", namespace, key, value, sent)
        if status == 409:
            raise ConflictError(int(headers["X-Object-Version"]))
        assert status in (200, 201), status
        return int(headers["X-Object-Version"])

    def delete(self, namespace: str, key: str, version: int = 0) -> None:
        status, headers, _ = self._ask("DELETE", namespace, key, None, {"X-Object-Version": str(version)})
        if status == 409:
            raise ConflictError(int(headers["X-Object-Version"]))
        assert 200 <= status < 300, status

    def _ask(
        self,
        method: str,
        namespace: str,
        key: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection(self._address, timeout=10)
        try:
            connection.request(method, f"{self._base}/{namespace}/{key}", body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()


@pytest.mark.row("D6")
@pytest.mark.parametrize("namespace", ["user", "system", "user_volatile"])
def test_the_known_client_works_unchanged(dev: DevProcess, namespace: str) -> None:
    client = KnownClient(dev.url, f"known-{namespace}")
    assert client.get(namespace, "a/b") is None
    first = client.put(namespace, "a/b", b"")
    assert first > 0 and client.get(namespace, "a/b") == (b"", first)
    with pytest.raises(ConflictError) as conflict:
        client.put(namespace, "a/b", b"again", 0)
    assert conflict.value.args == (first,)
    second = client.put(namespace, "a/b", b"two", first)
    assert second > first
    with pytest.raises(ConflictError):
        client.put(namespace, "a/b", b"stale", first)
    with pytest.raises(ConflictError):
        client.delete(namespace, "a/b", first)
    client.delete(namespace, "a/b", second)
    client.delete(namespace, "a/b", second)
    client.delete(namespace, "never", 7)
    again = client.put(namespace, "a/b", b"three")
    assert again > second, "a version does not come back"
    client.delete(namespace, "a/b")
    assert client.get(namespace, "a/b") is None
