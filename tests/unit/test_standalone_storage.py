"""The standalone store's directory: what is on disk when, what a restart and a damage leave, and whose it is."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kvfold.producers.deployment import ConflictError, DeploymentValue, EntriesStore, StandaloneStorage
from kvfold.producers.deployment.standalone import StorageInUseError, storage
from kvfold.producers.deployment.standalone.namespace_file import (
    CorruptFileError,
    Entry,
    NamespaceContent,
    path_of,
    read_file,
    replace_file,
)
from kvfold.schemas.errors import ConfigurationError, InvalidError, RejectedError, StoreUnavailableError
from support.kvfold_process import wait_until

__all__: list[str] = []

pytestmark = pytest.mark.row("D15")

_SECRET = b"planted-7f3a"


@contextmanager
def _opened(directory: Path | None, deployment_id: str = "dep") -> Iterator[EntriesStore]:
    with closing(StandaloneStorage(directory)) as opened:
        yield EntriesStore(opened.entries(deployment_id))


def _everything(directory: Path) -> bytes:
    return b"\n".join(
        path.read_bytes() + path.name.encode() for path in sorted(directory.rglob("*")) if path.is_file()
    )


def _crashed(directory: Path) -> StandaloneStorage:
    """A storage whose process will have been killed: it has the directory's files as they are, and is never closed."""
    crashed = StandaloneStorage(directory)
    crashed.flush()
    return crashed


def test_a_close_writes_everything_and_a_start_finds_it(tmp_path: Path) -> None:
    names = ("user", "system", "User", "a/b", "..", ".", "ü" * 60, "CON", "x" * 128)
    with _opened(tmp_path) as store:
        written = {name: store.put(name, "k/é", name.encode()) for name in names}
    with _opened(tmp_path) as store:
        for name, version in written.items():
            assert store.get(name, "k/é") == DeploymentValue(name.encode(), version)
            assert store.put(name, "k/é", b"", expected=version) == version + 1
    # One file a namespace, below the directory, and its owner's only.
    files = list(tmp_path.glob("dep/*.kv"))
    assert len(files) == len(names)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "dep").stat().st_mode) == 0o700


def test_a_write_reaches_the_disk_by_itself(tmp_path: Path) -> None:
    with _opened(tmp_path) as store:
        for number in range(20):
            store.put("user", f"k{number:02}", b"v")
        path = path_of(tmp_path, "dep", "user")
        wait_until(
            lambda: path.exists() and len(read_file(path).entries) == 20, what=lambda: "20 entries on disk"
        )
        store.delete("user", "k00")
        wait_until(lambda: len(read_file(path).entries) == 19, what=lambda: "the delete on disk")


def test_writes_of_a_burst_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[str]()

    def counting(path: Path, content: NamespaceContent) -> None:
        written.append(path.name)
        replace_file(path, content)

    monkeypatch.setattr(storage, "replace_file", counting)
    monkeypatch.setattr(storage, "FLUSH_DELAY_S", 3_600.0)
    with _opened(tmp_path) as store:
        for number in range(500):
            store.put("user", f"k{number}", b"v")
        assert written == []
    assert written == ["user.kv"]


def test_secret_and_volatile_namespaces_never_reach_the_disk(tmp_path: Path) -> None:
    with _opened(tmp_path) as store:
        for namespace in ("user_secrets", "x_secrets_secrets", "user_volatile"):
            store.put(namespace, f"key-{_SECRET.decode()}", _SECRET)
        store.put("user", "k", b"plain")
    on_disk = _everything(tmp_path)
    assert b"cGxhaW4=" in on_disk
    for trace in (_SECRET, b"secrets", b"volatile"):
        assert trace not in on_disk
    with _opened(tmp_path) as store:
        assert store.get("user_secrets", f"key-{_SECRET.decode()}") is None


def test_without_a_directory_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with _opened(None) as store:
        store.put("user", "k", b"v")
    assert list(tmp_path.iterdir()) == []


# --- versions ---


def test_versions_begin_with_one_and_go_on_over_delete_restart_and_create(tmp_path: Path) -> None:
    with _opened(tmp_path) as store:
        assert store.put("user", "k", b"one") == 1
        assert store.put("user", "k", b"two", expected=1) == 2
        store.delete("user", "k", expected=2)
    with _opened(tmp_path) as store:
        assert store.put("user", "k", b"again") == 3
        with pytest.raises(ConflictError):
            store.put("user", "k", b"stale", expected=1)


def test_an_undeployed_deployment_is_empty_and_its_versions_do_not_come_back(tmp_path: Path) -> None:
    with closing(StandaloneStorage(tmp_path)) as opened:
        store, other = EntriesStore(opened.entries("dep")), EntriesStore(opened.entries("dep2"))
        other.put("user", "k", b"kept")
        for namespace in ("user", "user_secrets", "user_volatile"):
            store.put(namespace, "k", b"gone")
        version = store.put("user", "k", b"gone", expected=1)
        opened.flush()
        assert opened.undeploy("dep") == 3
        assert opened.undeploy("dep") == 0
        assert not (tmp_path / "dep").exists()
        assert all(store.get(name, "k") is None for name in ("user", "user_secrets", "user_volatile"))
    with _opened(tmp_path) as store:
        assert store.put("user", "k", b"new") > version
    with _opened(tmp_path, "dep2") as other:
        assert other.get("user", "k") == DeploymentValue(b"kept", 1)


def test_versions_that_a_killed_process_gave_and_lost_do_not_come_back(tmp_path: Path) -> None:
    """Whatever was not flushed is gone, and with it the versions; new ones are above them."""
    crashed = _crashed(tmp_path)
    store = EntriesStore(crashed.entries("dep"))
    store.put("user", "kept", b"one")
    store.put("system", "kept", b"one")
    crashed.flush()
    lost = store.put("user", "kept", b"lost", expected=1)
    store.put("user", "new", b"lost")
    # What SIGKILL leaves: the files as they were, the mark of an open store, no lock.
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    mark = json.loads((tmp_path / ".kvfold-standalone").read_bytes())
    assert mark["open"] is True
    crashed.close()
    for path, content in before.items():
        path.write_bytes(content)
    with _opened(tmp_path) as store:
        found = store.get("user", "kept")
        assert found is not None
        for stale in (1, lost, lost + 1):
            if stale != found.version:
                with pytest.raises(ConflictError):
                    store.put("user", "kept", b"stale", expected=stale)
        assert store.put("user", "kept", b"next", expected=found.version) > lost
        assert store.put("user", "new", b"next") > lost
        assert store.put("elsewhere", "k", b"next") > lost


# --- damage ---


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:100],
        lambda content: content.replace(b"theme", b"thema"),
        lambda content: b"kvfold-namespace 2 " + content[19:],
        lambda content: b"\x00" * len(content),
    ],
)
def test_a_damaged_file_is_set_aside_and_costs_only_its_namespace(tmp_path: Path, damage: object) -> None:
    with _opened(tmp_path) as store:
        store.put("user", "theme", b"blue")
        store.put("system", "k", b"kept")
    path = path_of(tmp_path, "dep", "user")
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    damaged = path.read_bytes()
    with capture_logs() as logs, _opened(tmp_path) as store:
        assert store.get("user", "theme") is None
        assert store.get("system", "k") == DeploymentValue(b"kept", 1)
        assert store.put("user", "theme", b"red") > 1, "no version that was given before"
        with pytest.raises(ConflictError):
            store.put("user", "theme", b"stale", expected=1)
    [event] = [event for event in logs if event["event"] == "storage file set aside"]
    aside = Path(event["kept_as"])
    assert event["file"] == str(path) and aside.read_bytes() == damaged
    assert "blue" not in str(event)
    with capture_logs() as logs, _opened(tmp_path) as store:
        assert store.get("user", "theme") is not None
    assert logs == []


def test_a_second_damage_is_set_aside_beside_the_first(tmp_path: Path) -> None:
    path = path_of(tmp_path, "dep", "user")
    for number in (1, 2):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"%d" % number)
        with _opened(tmp_path):
            pass
    assert {found.name: found.read_bytes() for found in path.parent.iterdir()} == {
        "user.kv.corrupt-1": b"1",
        "user.kv.corrupt-2": b"2",
    }


def test_a_file_under_another_name_or_of_another_tier_is_not_believed(tmp_path: Path) -> None:
    content = NamespaceContent("dep", "user", 0, {"k": Entry(b"v", 1, 1)})
    path = path_of(tmp_path, "dep", "system")
    replace_file(path, content)
    with pytest.raises(CorruptFileError, match="another name"):
        read_file(path)
    path = path_of(tmp_path, "dep", "user_secrets")
    replace_file(path, NamespaceContent("dep", "user_secrets", 0, {"k": Entry(b"v", 1, 1)}))
    with pytest.raises(CorruptFileError):
        read_file(path)


def test_a_replacement_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(tmp_path, "dep", "user")
    replace_file(path, NamespaceContent("dep", "user", 0, {"k": Entry(b"old", 1, 1)}))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, NamespaceContent("dep", "user", 0, {"k": Entry(b"new", 2, 2)}))
    assert read_file(path).entries["k"].value == b"old"


def test_what_could_not_be_written_is_said_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(28, "No space left on device")]

    def failing_once(path: Path, content: NamespaceContent) -> None:
        if failures:
            raise failures.pop()
        replace_file(path, content)

    monkeypatch.setattr(storage, "replace_file", failing_once)
    monkeypatch.setattr(storage, "_RETRY_S", 0.01)
    with capture_logs() as logs, _opened(tmp_path) as store:
        store.put("user", "k", b"v")
        path = path_of(tmp_path, "dep", "user")
        wait_until(path.exists, what=lambda: "the file")
    assert [event["event"] for event in logs] == ["storage not written"]


# --- whose it is ---


def test_two_stores_on_one_directory_are_refused(tmp_path: Path) -> None:
    with _opened(tmp_path) as store:
        store.put("user", "k", b"v")
        with pytest.raises(StorageInUseError, match=f"{tmp_path} is used by another process") as caught:
            StandaloneStorage(tmp_path)
        assert caught.value.code == "storage-in-use"
        assert store.get("user", "k") is not None
    with _opened(tmp_path) as store:
        assert store.get("user", "k") is not None


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        StandaloneStorage(file)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        StandaloneStorage(file / "below")


def test_a_closed_store_takes_no_writes(tmp_path: Path) -> None:
    opened = StandaloneStorage(tmp_path)
    opened.close()
    opened.close()
    for call in (
        lambda: EntriesStore(opened.entries("dep")).put("user", "k", b"v"),
        lambda: EntriesStore(opened.entries("dep")).delete("user", "k"),
    ):
        with pytest.raises(StoreUnavailableError, match="closed"):
            call()


def test_a_full_store_refuses_and_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "STORAGE_BYTES_MAX", 2_000)
    with _opened(None) as store:
        version = store.put("user", "k", b"x" * 1_000)
        with pytest.raises(RejectedError, match="full") as caught:
            store.put("user", "l", b"x" * 1_000)
        assert caught.value.code == "limit"
        version = store.put("user", "k", b"x" * 900, expected=version)
        store.delete("user", "k", expected=version)
        store.put("user", "l", b"x" * 1_000)


def test_a_bad_deployment_id_is_refused() -> None:
    with closing(StandaloneStorage(None)) as opened:
        for name in ("", "a\x00", "x" * 129):
            with pytest.raises(InvalidError) as caught:
                opened.entries(name)
            assert caught.value.code == "malformed-name"
            with pytest.raises(InvalidError):
                opened.undeploy(name)


def test_a_deployment_id_with_a_colon_has_no_volatile_namespaces() -> None:
    with closing(StandaloneStorage(None)) as opened:
        store = EntriesStore(opened.entries("a:b"))
        store.put("user", "k", b"v")
        with pytest.raises(InvalidError, match="holds ':'"):
            store.put("user_volatile", "k", b"v")
        assert opened.entries("a:b").namespaces() == ("user",)
        assert opened.undeploy("a:b") == 1
