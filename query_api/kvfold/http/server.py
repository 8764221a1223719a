"""How kvfold runs uvicorn, wherever it serves HTTP."""

from __future__ import annotations

from typing import Any, Final

import uvicorn

__all__ = ["server_config"]

_STOP_TIMEOUT_S: Final = 10
"""How long requests under way may take at a stop; longer than a write waits for its outcome."""


def server_config(app: Any) -> uvicorn.Config:
    """httptools, no access log, and nothing believed that a client says of other hosts or schemes.

    The caller brings the socket.
    """
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
    )
