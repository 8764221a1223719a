"""The query API over a projection made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from kvfold.query_api.serve import query_api_app, read_context
from support.asgi_client import AsgiClient

__all__ = ["query_api"]


@contextmanager
def query_api(
    dsn: str,
    *,
    floor: Callable[[int], int | None] = lambda _: None,
    ready_from: Callable[[], Mapping[int, int]] | None = None,
    gives_ciphertext: bool = False,
) -> Iterator[AsgiClient]:
    """A running query API of the database."""
    context = replace(
        read_context(dsn, pool_size=4), floor=floor, ready_from=ready_from, gives_ciphertext=gives_ciphertext
    )
    with AsgiClient(query_api_app(context)) as client:
        yield client
