"""What the packaging tests look at: the files that git tracks, and the product's modules among them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

__all__: list[str] = []

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def project() -> Path:
    """The repository's folder."""
    return _ROOT


@pytest.fixture(scope="session")
def tracked(project: Path) -> tuple[Path, ...]:
    """Every tracked file that is there, relative to the repository's folder."""
    # The folder may belong to another account than the tests', as in a container: git would refuse it.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=60).stdout
    names = (Path(name) for name in listed.decode().split("\0") if name)
    return tuple(name for name in names if (project / name).is_file())


@pytest.fixture(scope="session")
def modules(tracked: tuple[Path, ...]) -> tuple[Path, ...]:
    """The product's Python modules: those below a root's `kvfold` folder."""
    return tuple(name for name in tracked if name.suffix == ".py" and name.parts[1] == "kvfold")
