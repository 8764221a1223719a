"""The runtime's part of the guide to deployments works as it stands there, in a cluster and standalone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.kvfold_process import clean_environment
from support.object_stores import running_gateway

if TYPE_CHECKING:
    from support.redis_server import RedisServer

__all__: list[str] = []

pytestmark = pytest.mark.row("D7")

_GUIDE = Path(__file__).parents[2] / "docs" / "deployments.md"


def _run_snippet(environment: dict[str, str], folder: Path) -> None:
    section = _GUIDE.read_text("utf-8").split("\n## From Python\n", 1)[1].split("\n## ", 1)[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(environment),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_standalone(tmp_path: Path) -> None:
    _run_snippet({}, tmp_path)
    assert (tmp_path / "octo-store" / "standalone" / "user.kv").exists()


@pytest.mark.slow
@pytest.mark.postgres
def test_in_a_cluster(postgres_admin_dsn: str, redis_server: RedisServer, tmp_path: Path) -> None:
    with running_gateway(postgres_admin_dsn, redis_server.url, tmp_path) as url:
        environment = {"ORCHESTRATOR_URL": url, "OCTO_DEPLOYMENT_ID": "guide", "REDIS_URL": redis_server.url}
        _run_snippet(environment, tmp_path)
    assert not (tmp_path / "octo-store").exists()
