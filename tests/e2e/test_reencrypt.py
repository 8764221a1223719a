"""Rotating the key of secret namespaces, as an operator does it: `kvfold dev` with the old key, with both, with the new."""

from __future__ import annotations

import base64
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from e2e.stack import DevProcess
from support.kvfold_process import clean_environment

__all__: list[str] = []

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def _get(url: str, key: str) -> tuple[int, bytes, str | None]:
    try:
        with urllib.request.urlopen(f"{url}/deployments/dep/kv/user_secrets/{key}", timeout=30) as answer:
            return answer.status, answer.read(), answer.headers["X-Object-Version"]
    except urllib.error.HTTPError as error:
        return error.code, error.read(), None


def _reencrypt(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvfold.deploy.cli", "reencrypt", "d:dep"],
        env=clean_environment({"KVFOLD_URL": url}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.row("D10")
def test_a_key_is_rotated(tmp_path: Path) -> None:
    with DevProcess(tmp_path, environment={"KV_ENCRYPTION_KEY": OLD}) as dev:
        url = dev.wait_until_serving()
        for number in range(3):
            put = urllib.request.Request(
                f"{url}/deployments/dep/kv/user_secrets/k{number}", data=b"planted", method="PUT"
            )
            with urllib.request.urlopen(put, timeout=30) as answer:
                assert answer.status == 201
        dev.terminate()
    both = {"KV_ENCRYPTION_KEY": NEW, "KV_ENCRYPTION_KEYS_OLD": OLD}
    with DevProcess(tmp_path, environment=both) as dev:
        url = dev.wait_until_serving()
        assert _get(url, "k0") == (200, b"planted", "1")
        done = _reencrypt(url)
        assert (done.returncode, done.stdout.strip()) == (0, "3 checked, 3 reencrypted, 0 changed"), done
        again = _reencrypt(url)
        assert (again.returncode, again.stdout.strip()) == (0, "3 checked, 0 reencrypted, 0 changed"), again
        dev.terminate()
    with DevProcess(tmp_path, environment={"KV_ENCRYPTION_KEY": NEW}) as dev:
        url = dev.wait_until_serving()
        assert _get(url, "k0") == (200, b"planted", "2"), "every re-encrypted secret has its next version"
        dev.terminate()
    with DevProcess(tmp_path, environment={}) as dev:
        status, body, _ = _get(dev.wait_until_serving(), "k0")
        assert status == 503 and b"encryption-key-missing" in body and b"planted" not in body
        assert _reencrypt(dev.url).returncode == 3
    assert b"planted" not in (tmp_path / "dev.log").read_bytes()
