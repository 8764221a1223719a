"""The store that a runtime's environment chooses, its routing, and its secrets."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from kvfold.producers.deployment import (
    ConflictError,
    DeploymentValue,
    EntriesStore,
    HttpStore,
    RuntimeStore,
    SecretStore,
    StandaloneStorage,
    open_object_store,
)
from kvfold.producers.deployment import runtime as runtime_module
from kvfold.producers.deployment.runtime import services_module, storage_dir
from kvfold.producers.deployment.secret_store import secret_namespace
from kvfold.schemas.errors import ConfigurationError, InvalidError

__all__: list[str] = []

pytestmark = pytest.mark.row("D7")

_URL = {"ORCHESTRATOR_URL": "http://127.0.0.1:1"}
_K8S = {**_URL, "OCTO_DEPLOYMENT_ID": "dep"}


@pytest.mark.parametrize(
    ("environment", "module"),
    [
        ({}, "standalone"),
        ({"RUNTIME_SERVICES_MODULE": ""}, "standalone"),
        ({"ORCHESTRATOR_URL": ""}, "standalone"),
        ({"OCTO_DEPLOYMENT_ID": "dep", "REDIS_URL": "redis://h"}, "standalone"),
        (_URL, "k8s"),
        ({"RUNTIME_SERVICES_MODULE": "k8s"}, "k8s"),
        ({"RUNTIME_SERVICES_MODULE": "standalone", **_K8S}, "standalone"),
    ],
)
def test_the_environment_chooses(environment: Mapping[str, str], module: str) -> None:
    assert services_module(environment) == module


@pytest.mark.parametrize("name", ["K8S", "kubernetes", " k8s", "none"])
def test_another_module_is_refused_by_name(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"RUNTIME_SERVICES_MODULE is .* accepted is k8s, standalone"
    ):
        open_object_store({"RUNTIME_SERVICES_MODULE": name})


@pytest.mark.parametrize("missing", ["ORCHESTRATOR_URL", "OCTO_DEPLOYMENT_ID"])
def test_what_is_missing_is_named(missing: str) -> None:
    environment = {"RUNTIME_SERVICES_MODULE": "k8s", **_K8S, missing: ""}
    with pytest.raises(ConfigurationError, match=f"{missing} is not set"):
        open_object_store(environment)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"ORCHESTRATOR_URL": "http://u:hush@h"}, "ORCHESTRATOR_URL"),
        ({"ORCHESTRATOR_TOKEN": "hush hush"}, "ORCHESTRATOR_TOKEN"),
        ({"REDIS_URL": "hush"}, "REDIS_URL"),
    ],
)
def test_what_is_wrong_is_named_and_not_shown(wrong: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        open_object_store({**_K8S, **wrong})
    assert "hush" not in str(caught.value)


@pytest.mark.row("D9")
def test_a_runtime_dials_redis_itself_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_object_store({**_K8S, "REDIS_URL": "redis://127.0.0.1:1"}) as store:
        assert isinstance(store._of("user"), HttpStore)
        assert isinstance(store._of("user_secrets"), HttpStore), "secrets never go to Redis"
        assert isinstance(store._of("user_volatile"), EntriesStore)
    with open_object_store(_K8S) as store:
        assert isinstance(store._of("user_volatile"), HttpStore)
    monkeypatch.setattr(runtime_module, "_redis_tier", None)
    open_object_store({**_K8S, "REDIS_URL": ""}).close()


def test_where_a_standalone_store_is() -> None:
    assert storage_dir(None) == Path("octo-store")
    assert storage_dir("elsewhere") == Path("elsewhere")
    assert storage_dir("") is None


@pytest.fixture
def sigterm() -> object:
    """What SIGTERM does is left as it was."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
@pytest.mark.row("D15")
def test_a_standalone_store_is_kept_where_the_environment_says(tmp_path: Path) -> None:
    environment = {"OCTO_STORAGE_DIR": str(tmp_path / "store")}
    with open_object_store(environment) as store:
        version = store.put("user", "k", b"v")
    with open_object_store({**environment, "OCTO_DEPLOYMENT_ID": "other"}) as other:
        assert other.get("user", "k") is None
    with open_object_store(environment) as store:
        assert store.get("user", "k") == DeploymentValue(b"v", version)


@pytest.mark.usefixtures("sigterm")
@pytest.mark.row("D15")
def test_an_empty_directory_is_memory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_object_store({"OCTO_STORAGE_DIR": ""}) as store:
        store.put("user", "k", b"v")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("sigterm")
def test_a_program_that_handles_sigterm_keeps_its_handler() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open_object_store({"OCTO_STORAGE_DIR": ""}).close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


@pytest.fixture
def store() -> RuntimeStore:
    entries = EntriesStore(StandaloneStorage(None).entries("dep"))
    return RuntimeStore(entries, entries, close=lambda: None)


def test_secrets_are_in_the_secret_namespace_of_their_family(store: RuntimeStore) -> None:
    assert [secret_namespace(name) for name in ("user", "system", "x")] == [
        "user_secrets",
        "system_secrets",
        "x_secrets",
    ]
    version = store.secrets.put("user", "token", b"s3cret")
    assert store.get("user_secrets", "token") == DeploymentValue(b"s3cret", version)
    assert store.secrets.get("system", "token") is None
    with pytest.raises(ConflictError):
        store.secrets.delete("user", "token", expected=version + 1)
    store.secrets.delete("user", "token", expected=version)
    assert store.secrets.get("user", "token") is None


def test_a_volatile_family_has_no_secrets(store: RuntimeStore) -> None:
    secrets = SecretStore(store)
    for call in (
        lambda: secrets.get("user_volatile", "k"),
        lambda: secrets.put("user_volatile", "k", b""),
        lambda: secrets.delete("user_volatile", "k"),
    ):
        with pytest.raises(InvalidError) as caught:
            call()
        assert caught.value.code == "secret-and-volatile"
