"""Imports go one way: import-linter's contracts hold, and no package of the namespace is left out of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path


def test_imports_go_one_way(project: Path) -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    ended = subprocess.run(
        [lint, "--no-cache", "--config", "pyproject.toml"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_package_has_a_layer(project: Path, modules: tuple[Path, ...]) -> None:
    settings = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    packages = {f"kvfold.{name.parts[2]}" for name in modules}
    assert set(settings["root_packages"]) == packages
    layers = next(contract for contract in settings["contracts"] if contract["type"] == "layers")["layers"]
    assert {name.strip() for layer in layers for name in layer.split("|")} == packages
