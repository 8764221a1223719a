"""Fixtures of the end-to-end tests: `kvfold dev` as a user starts it, with data of its own on a free port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.stack import DevProcess

__all__: list[str] = []


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    """A running `kvfold dev` for the tests of a module; nobody stops it."""
    with DevProcess(tmp_path_factory.mktemp("dev")) as process:
        process.wait_until_serving()
        yield process


@pytest.fixture
def own_dev(tmp_path: Path) -> Iterator[DevProcess]:
    """A `kvfold dev` for one test, which starts it, and may kill it and start it again on the same data."""
    process = DevProcess(tmp_path)
    try:
        yield process
    finally:
        process.end()
