"""The author's guide against `kvfold dev`: what is for hosts and operators works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.snippets import run_snippet
from e2e.stack import DevProcess

__all__: list[str] = []

pytestmark = pytest.mark.slow
_GUIDE = Path(__file__).parents[2] / "docs" / "capsules.md"
_BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


@pytest.mark.row("C2")
@pytest.mark.row("C22")
def test_hosts_and_operators(dev: DevProcess, tmp_path: Path) -> None:
    author, host = _GUIDE.read_text("utf-8").split("\n## For the host\n")
    ((language, code),) = _BLOCK.findall(host)
    run_snippet(dev, language, code, tmp_path)
    (commands,) = [text for kind, text in _BLOCK.findall(author) if kind == "sh"]
    said = run_snippet(dev, "sh", commands, tmp_path)
    assert "c:alice:capsule:notes" in said and "c:default:capsule:notes" in said
    assert said.endswith('{"removed":1}')
