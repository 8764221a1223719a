"""Every command and snippet of the README works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.snippets import run_snippet
from e2e.stack import DevProcess

__all__: list[str] = []

pytestmark = pytest.mark.slow
_README = Path(__file__).parents[2] / "README.md"
_BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


def _blocks(heading: str) -> list[tuple[str, str]]:
    section = _README.read_text("utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return _BLOCK.findall(section)


@pytest.mark.row("D6")
def test_a_deployment(dev: DevProcess, tmp_path: Path) -> None:
    ((language, text),) = _blocks("A deployment")
    said = run_snippet(dev, language, text, tmp_path)
    promised = re.findall(r"# (\d{3}), X-Object-Version: (\d+)", text)
    answers = re.findall(r"HTTP/1.1 (\d{3}).*?x-object-version: (\d+)", said, re.DOTALL)
    assert promised == answers == [("201", "1"), ("200", "2"), ("409", "2")]
    assert said.endswith("green")


@pytest.mark.row("C15")
def test_a_capsule(dev: DevProcess, tmp_path: Path) -> None:
    (over_http, *python) = _blocks("A capsule")
    said = run_snippet(dev, *over_http, tmp_path)
    assert "HTTP/1.1 201" in said
    assert '{"keys":["todo"],"next_cursor":null}' in said
    assert said.endswith('{"removed":1}')
    assert [language for language, _ in python] == ["sh", "python"]
    for language, text in python:
        run_snippet(dev, language, text, tmp_path)


@pytest.mark.row("O12", "X14")
@pytest.mark.row("O27")
def test_an_orchestration(tmp_path: Path) -> None:
    application, from_outside, emitted = _blocks("An orchestration")
    assert "`./deploy/dev --app orders:registry`" in _README.read_text("utf-8")
    (tmp_path / "orders.py").write_text(application[1])
    options = ("--app", "orders:registry")
    with DevProcess(tmp_path, *options, environment={"PYTHONPATH": str(tmp_path)}) as dev:
        dev.wait_until_serving()
        said = run_snippet(dev, *from_outside, tmp_path)
        assert '"charged 5"' in said and said.endswith("approved\n")
        said = run_snippet(dev, *emitted, tmp_path)
    assert "packed" in said
    assert '"instance_id":"parcel-17"' in said
    assert '"status":"Running"' in said
