"""Runs what documents show, against a running `kvfold dev`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from e2e.stack import DevProcess
from support.kvfold_process import clean_environment

__all__ = ["run_snippet"]


def run_snippet(dev: DevProcess, language: str, text: str, folder: Path) -> str:
    """Runs a block of a document, with the addresses that it names pointing to `dev`; gives what it prints."""
    text = text.replace("http://127.0.0.1:8080", dev.url).replace("kvfold-data", str(dev.data))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {"PATH": path, "KVFOLD_URL": dev.url, "KVFOLD_POSTGRES": (dev.data / "dsn").read_text("utf-8")}
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    done = subprocess.run(
        command,
        env=clean_environment(settings),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout
