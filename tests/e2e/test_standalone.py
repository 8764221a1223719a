"""`kvfold standalone`, as a user runs it: what a stop keeps, what a kill may lose, and what is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import httpx
import pytest

from kvfold.producers.deployment import ConflictError, DeploymentValue, HttpStore
from support.kvfold_process import KvfoldProcess, clean_environment, wait_until

__all__: list[str] = []

pytestmark = pytest.mark.row("D15")


class Standalone(KvfoldProcess):
    """The command on a directory of the test, at any free port."""

    def __init__(self, folder: Path, storage_dir: str) -> None:
        super().__init__(
            "standalone",
            "--storage-dir",
            storage_dir,
            environment={"KVFOLD_PORT": "0"},
            output=folder / "standalone.log",
        )

    @contextmanager
    def store(self) -> Iterator[HttpStore]:
        """A client of what runs now."""
        with closing(HttpStore(self.wait_until_serving(), "dep", timeout_s=0.0)) as store:
            yield store


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_graceful_stop_keeps_what_was_written_in_its_last_moment(
    tmp_path: Path, number: signal.Signals
) -> None:
    with Standalone(tmp_path, str(tmp_path / "store")) as standalone:
        with standalone.store() as store:
            for count in range(50):
                store.put("user", f"k{count}", b"v")
            version = store.put("user", "k0", b"last", expected=1)
        standalone.signal(number)
        assert standalone.wait() == 0
        standalone.start()
        with standalone.store() as store:
            assert store.get("user", "k0") == DeploymentValue(b"last", version)
            assert len(store.list("user").objects) == 50


def test_writes_that_were_flushed_survive_a_kill_and_no_version_comes_back(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with Standalone(tmp_path, str(directory)) as standalone:
        with standalone.store() as store:
            kept = store.put("user", "kept", b"v")
            wait_until(lambda: list(directory.glob("dep/user.kv")), what=lambda: "the file")
            first = store.put("user", "k", b"v")
            lost = store.put("user", "k", b"perhaps lost", expected=first)
        standalone.kill()
        standalone.start()
        with standalone.store() as store:
            assert store.get("user", "kept") == DeploymentValue(b"v", kept)
            found = store.get("user", "k")
            again = store.put("user", "k", b"again", expected=0 if found is None else found.version)
            assert again > lost
            for stale in (first, lost):
                with pytest.raises(ConflictError):
                    store.put("user", "k", b"stale", expected=stale)


def test_a_kill_at_any_moment_leaves_whole_files(tmp_path: Path) -> None:
    """Killed while it writes, again and again: no file is ever damaged, and no key loses what was flushed."""
    directory = tmp_path / "store"
    with Standalone(tmp_path, str(directory)) as standalone:
        versions = dict[str, int]()
        for _ in range(3):
            with standalone.store() as store:
                found = {item.key: item.version for item in store.list("user", limit=1_000).objects}
                assert found.keys() >= versions.keys()
                assert all(found[key] >= version for key, version in versions.items())
                writer = Thread(target=_write_until_away, args=(store, dict(found)))
                path = directory / "dep" / "user.kv"
                before = path.stat().st_mtime_ns if path.exists() else 0
                writer.start()
                _wait_for_another(path, before)
                standalone.kill()
                writer.join()
            versions = found
            standalone.start()
        standalone.wait_until_serving()
        assert list(standalone.events("storage file set aside", all_starts=True)) == []


def _wait_for_another(path: Path, written_ns: int) -> None:
    """Waits for a file that was written at another time."""
    wait_until(
        lambda: path.exists() and path.stat().st_mtime_ns != written_ns, what=lambda: "the store is written"
    )


def _write_until_away(store: HttpStore, versions: dict[str, int]) -> None:
    number = 0
    try:
        while True:
            key = f"k{number % 200}"
            versions[key] = store.put("user", key, b"x" * 2_000, expected=versions.get(key, 0))
            number += 1
    except Exception:
        return


def test_an_empty_directory_leaves_nothing_behind(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with Standalone(tmp_path, "") as standalone:
        with standalone.store() as store:
            store.put("user", "k", b"v")
        assert "in memory" in standalone.text()
        assert standalone.terminate() == 0
        standalone.start()
        with standalone.store() as store:
            assert store.get("user", "k") is None


def test_a_second_process_on_the_directory_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with Standalone(tmp_path, str(directory)) as standalone:
        standalone.wait_until_serving()
        ended = subprocess.run(
            [sys.executable, "-m", "kvfold.deploy.cli", "standalone"],
            env=clean_environment({"KVFOLD_PORT": "0", "OCTO_STORAGE_DIR": str(directory)}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 1
        assert f"{directory} is used by another process" in ended.stderr
        standalone.kill()
        standalone.start()
        standalone.wait_until_serving()


_RUNTIME = """
import os, sys, time
from kvfold.producers.deployment import open_object_store
store = open_object_store(os.environ)
store.put("user", "k", b"last moment")
print("written", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_runtime_that_is_stopped_has_written_its_store(tmp_path: Path, number: signal.Signals) -> None:
    """The library without the command: nobody calls `close`."""
    environment = clean_environment({"OCTO_STORAGE_DIR": str(tmp_path / "store")})
    command = [sys.executable, "-c", _RUNTIME]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as runtime:
        assert runtime.stdout is not None and runtime.stdout.readline() == "written\n"
        runtime.send_signal(number)
        assert runtime.wait(60) != 0
    assert (tmp_path / "store" / "standalone" / "user.kv").exists()
    assert b'"open": false' in (tmp_path / "store" / ".kvfold-standalone").read_bytes()


def test_the_routes_are_the_gateways(tmp_path: Path) -> None:
    with (
        Standalone(tmp_path, "") as standalone,
        httpx.Client(base_url=standalone.wait_until_serving()) as http,
    ):
        entry = "/deployments/shop/kv/user/theme"
        created = http.put(entry, content=b"blue")
        assert (created.status_code, created.headers["x-object-version"]) == (
            201,
            str(created.json()["version"]),
        )
        version = created.headers["x-object-version"]
        assert http.put(entry, content=b"red").status_code == 409
        replaced = http.put(entry, content=b"green", headers={"X-Object-Version": version})
        assert (replaced.status_code, int(replaced.headers["x-object-version"])) == (200, int(version) + 1)
        assert http.put(entry, content=b"", headers={"If-Match": f'"{version}"'}).status_code == 412
        assert http.put(entry, content=b"x" * 1_048_577).status_code == 413
        assert http.put(entry, content=b"", headers={"X-Object-Version": "one"}).status_code == 400
        found = http.get(entry)
        assert (found.content, found.headers["etag"]) == (b"green", f'"{int(version) + 1}"')
        assert http.head(entry).headers["content-length"] == "5"
        assert http.get("/deployments/shop/kv/user?key=theme").content == b"green"
        assert (
            http.get("/deployments/shop/kv/user_secrets_volatile/k").json()["code"] == "secret-and-volatile"
        )

        assert http.get("/deployments/shop/namespaces").json() == {"namespaces": ["user", "user_volatile"]}
        put = {"value": "/wE=", "encoding": "base64"}
        assert http.put("/deployments/shop/objects/bin?namespace=user", json=put).status_code == 201
        shown = http.get("/deployments/shop/objects/bin?namespace=user").json()
        assert (shown["value"], shown["encoding"]) == ("/wE=", "base64")
        page = http.get("/deployments/shop/objects?namespace=user&limit=1").json()
        assert ([item["key"] for item in page["objects"]], page["next_cursor"]) == (["bin"], "bin")
        assert (
            http.get("/deployments/shop/objects?namespace=user_secrets").json()["code"] == "invalid-namespace"
        )
        assert http.delete("/deployments/shop/objects/bin?namespace=user").status_code == 204

        assert http.delete(entry, headers={"X-Object-Version": version}).status_code == 409
        assert http.delete(entry, headers={"X-Object-Version": "0"}).status_code == 204
        assert http.get(entry).status_code == 404
        http.put(entry, content=b"")
        assert http.delete("/deployments/shop").json() == {"removed": 1}
        assert {http.get(path).status_code for path in ("/healthz", "/readyz", "/openapi.json")} == {200}
