"""The commands that docs/replay.md shows about looking back are run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.stack import DevProcess
from support.kvfold_process import clean_environment

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

DOCUMENT = Path(__file__).parents[2] / "docs" / "replay.md"
SECTIONS = (
    "Looking back",
    "How long the past is kept",
    "Snapshots, and moving a scope to another installation",
)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[DevProcess]:
    with DevProcess(tmp_path) as process:
        process.wait_until_serving()
        yield process


def blocks(section: str) -> list[str]:
    text = DOCUMENT.read_text("utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def test_the_commands_shown_do_what_they_say(dev: DevProcess, tmp_path: Path) -> None:
    environment = clean_environment({"KVFOLD_URL": dev.url, "KVFOLD_DATA": str(dev.data)})
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shown = [block for section in SECTIONS for block in blocks(section)]
    assert len(shown) == len(SECTIONS)
    outputs = []
    for block in shown:
        done = subprocess.run(
            ["sh", "-euc", block],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    looked, kept, saved = outputs
    assert "applied, version 1" in looked and "applied, version 2" in looked
    assert '"code":"not-found"' in looked, "there was nothing yet at that time"
    assert "capsule        forever" in kept and "capsule        30 days" in kept
    assert "saved 1 entries as of" in saved
