"""An httpx transport onto an app in this process: a client of ours talks to it as to a server."""

from __future__ import annotations

import httpx

from support.asgi_client import AsgiClient

__all__ = ["AsgiTransport"]


class AsgiTransport(httpx.BaseTransport):
    """Requests go to the app with the raw target that httpx would put on the wire."""

    def __init__(self, app: AsgiClient) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        headers = list(request.headers.items())
        answered = self._app.request(request.method, request.url.raw_path, headers, [request.read()])
        return httpx.Response(
            answered.status, headers=answered.headers, content=answered.body, request=request
        )
