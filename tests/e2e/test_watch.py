"""Watching as users do: the command, and what the document shows."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from e2e.snippets import run_snippet
from e2e.stack import DevProcess
from support.kvfold_process import clean_environment

__all__: list[str] = []

pytestmark = [pytest.mark.slow, pytest.mark.row("X10")]
_DOCUMENT = Path(__file__).parents[2] / "docs" / "replay.md"


def put(dev: DevProcess, deployment: str, key: str, value: str) -> None:
    """Writes an entry that is not there."""
    url = f"{dev.url}/deployments/{deployment}/kv/user/{key}"
    assert httpx.put(url, content=value.encode(), trust_env=False, timeout=30).status_code == 201


@contextmanager
def watching(dev: DevProcess, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`kvfold watch`, until the body is over."""
    with subprocess.Popen(
        [str(Path(sys.executable).parent / "kvfold"), "watch", *arguments],
        env=clean_environment({"KVFOLD_URL": dev.url, "PYTHONUNBUFFERED": "1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def shown(dev: DevProcess, line: str) -> Iterator[subprocess.Popen[str]]:
    """A command of the document, which does not end by itself."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", "exec " + line.replace("http://127.0.0.1:8080", dev.url)],
        env=clean_environment({"KVFOLD_URL": dev.url, "PATH": path, "PYTHONUNBUFFERED": "1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_prints_changes_until_ctrl_c(dev: DevProcess) -> None:
    put(dev, "watched", "held", "1")
    with watching(dev, "d:watched", "--snapshot") as process:
        assert process.stdout is not None and process.stderr is not None
        held, end = process.stdout.readline(), process.stdout.readline()
        put(dev, "watched", "new", "22")
        new = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(60) == 0
    assert held.rstrip("\n").split("\t")[1:] == ["put", "d:watched user", "held", "1 bytes, version 1"]
    assert end.split("\t")[1] == "snapshot-end\n"
    assert new.rstrip("\n").split("\t")[1:] == ["put", "d:watched user", "new", "2 bytes, version 1"]
    # What was printed last is where the next one goes on.
    position = new.split("\t")[0]
    assert said == f"kvfold: watched up to {position}\n"
    put(dev, "watched", "later", "3")
    with watching(dev, "d:watched", "--after", position, "--json") as process:
        assert process.stdout is not None
        later = json.loads(process.stdout.readline())
    assert (later["event"], later["key"], later["value_base64"]) == ("put", "later", "Mw==")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["x:1"], 1), (["d:x", "--after", "no"], 1), (["--family", "x"], 2), (["--snapshot"], 1)],
    ids=str,
)
def test_what_is_refused_says_why(dev: DevProcess, arguments: list[str], code: int) -> None:
    with watching(dev, *arguments) as process:
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert said


def test_what_the_document_shows(dev: DevProcess, tmp_path: Path) -> None:
    put(dev, "shop", "theme", "blue")
    section = _DOCUMENT.read_text("utf-8").split("\n## Watch\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```(sh|python)\n(.*?)```", section, re.DOTALL)
    assert [language for language, _ in blocks] == ["sh", "python"]
    (_, commands), (language, text) = blocks
    assert run_snippet(dev, language, text, tmp_path).startswith("theme b'blue'\nresume with after = ")
    for line in commands.splitlines():
        with shown(dev, line) as process:
            assert process.stdout is not None
            if "capsule" in line:
                # It begins from now on, so it is written until it is seen.
                while not select.select([process.stdout], [], [], 0.2)[0]:
                    url = f"{dev.url}/v1/capsules/alice/notes/kv?key=todo/1"
                    assert httpx.put(url, content=b"milk", trust_env=False, timeout=30).is_success
                assert json.loads(process.stdout.readline())["key"] == "todo/1"
            else:
                assert any("theme" in output for output in process.stdout), line
