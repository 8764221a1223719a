"""The commands that a user types, against a running `kvfold dev`."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest
from click.testing import Result

from e2e.stack import DevProcess
from support.cli import run_command
from support.kvfold_process import clean_environment

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

KEYS = [
    "plain",
    "a/b/c",
    "a%2Fb",
    "%25",
    "//",
    "/leading",
    "trailing/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "./a",
    "...",
    " spaces ",
    "plus+and&=?#",
    "🚀 🛰️",
    "שלום",
    "cafe\u0301",
    "caf\u00e9",
    "-dash",
    "a_b%c",
]
CAPSULE_KEYS = [key for key in KEYS if key != "cafe\u0301"]  # capsule keys are NFC


def kvfold(dev: DevProcess, *arguments: str, stdin: bytes | None = None) -> Result:
    return run_command(*arguments, environment={"KVFOLD_URL": dev.url}, stdin=stdin)


def shell(dev: DevProcess, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """As typed in a shell, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kvfold.deploy.cli", *arguments],
        env=clean_environment({"KVFOLD_URL": dev.url}),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


def deployment() -> str:
    """A deployment that no other test uses."""
    return f"d:{uuid4()}"


def capsule() -> str:
    return f"c:{uuid4()}:capsule:notes"


@pytest.mark.row("D5")
def test_every_key_is_read_back_and_listed_once(dev: DevProcess) -> None:
    scope = deployment()
    for key in KEYS:
        put = kvfold(dev, "put", scope, "--", key, f"value of {key}")
        assert put.exit_code == 0, put.output
        assert put.output.startswith("applied, version 1, at ")
    for key in KEYS:
        assert kvfold(dev, "get", scope, "--", key).stdout_bytes == f"value of {key}".encode()
    listed = kvfold(dev, "list", scope).stdout_bytes.decode().splitlines()
    assert listed == sorted(KEYS, key=str.encode)


@pytest.mark.row("C8")
def test_every_key_of_a_capsule_too(dev: DevProcess) -> None:
    scope = capsule()
    for key in CAPSULE_KEYS:
        assert kvfold(dev, "put", scope, "--", key, f"value of {key}").exit_code == 0
    for key in CAPSULE_KEYS:
        assert kvfold(dev, "get", scope, "--", key).stdout_bytes == f"value of {key}".encode()
    listed = kvfold(dev, "list", scope).stdout_bytes.decode().splitlines()
    assert listed == sorted(CAPSULE_KEYS, key=str.encode)


@pytest.mark.parametrize("value", [b"", bytes(range(256)), b"no line feed", b"\n\n", b"x" * 1_048_576])
def test_bytes_are_unchanged_through_pipes_and_files(dev: DevProcess, value: bytes, tmp_path: Path) -> None:
    scope = deployment()
    assert shell(dev, "put", scope, "piped", stdin=value).returncode == 0
    assert shell(dev, "get", scope, "piped").stdout == value
    file = tmp_path / "value"
    file.write_bytes(value)
    assert kvfold(dev, "put", scope, "file", "--file", str(file)).exit_code == 0
    assert kvfold(dev, "get", scope, "file").stdout_bytes == value


@pytest.mark.row("D2")
@pytest.mark.row("D3")
def test_preconditions(dev: DevProcess) -> None:
    scope = deployment()
    assert kvfold(dev, "put", scope, "k", "1", "--expect", "absent").exit_code == 0
    again = kvfold(dev, "put", scope, "k", "2", "--expect", "absent")
    assert again.exit_code == 1
    assert "conflict, version-conflict, current version 1" in again.stderr
    assert kvfold(dev, "put", scope, "k", "2", "--expect", "version:1").exit_code == 0
    assert kvfold(dev, "put", scope, "k", "3").exit_code == 0  # whatever is there
    assert kvfold(dev, "delete", scope, "k", "--expect", "version:2").exit_code == 1
    refused = kvfold(dev, "delete", scope, "k", "--expect", "version:2", "--json")
    assert json.loads(refused.stdout)["status"] == "conflict"
    assert json.loads(refused.stdout)["version"] == 3
    assert kvfold(dev, "delete", scope, "k", "--expect", "version:3").exit_code == 0
    missing = kvfold(dev, "get", scope, "k")
    assert missing.exit_code == 1
    assert "there is no 'k'" in missing.stderr
    created = kvfold(dev, "put", scope, "k", "4", "--expect", "absent", "--json")
    assert json.loads(created.stdout)["version"] > 3


@pytest.mark.row("C15")
def test_preconditions_of_a_capsule_compare_bytes(dev: DevProcess) -> None:
    scope = capsule()
    digest = hashlib.sha256(b"one").hexdigest()
    assert kvfold(dev, "put", scope, "k", "one", "--expect", "absent").exit_code == 0
    assert kvfold(dev, "put", scope, "k", "two", "--expect", f"sha256:{digest}").exit_code == 0
    lost = kvfold(dev, "put", scope, "k", "three", "--expect", f"sha256:{digest}")
    assert lost.exit_code == 1
    assert "cas-mismatch" in lost.stderr
    assert kvfold(dev, "get", scope, "k").stdout_bytes == b"two"


@pytest.mark.row("X4")
def test_a_put_repeated_with_its_id_is_applied_once(dev: DevProcess) -> None:
    scope, identity = deployment(), str(uuid4())
    first, second = (
        json.loads(kvfold(dev, "put", scope, "k", "v", "--id", identity, "--json").stdout) for _ in range(2)
    )
    assert first == second
    assert json.loads(kvfold(dev, "get", scope, "k", "--json").stdout)["version"] == 1


def test_get_as_json(dev: DevProcess) -> None:
    scope = deployment()
    kvfold(dev, "put", scope, "text", "naïve")
    kvfold(dev, "put", scope, "bytes", "--file", "-", stdin=b"\xff\x00")
    text = json.loads(kvfold(dev, "get", scope, "text", "--json").stdout)
    assert (text["value"], text["encoding"], text["version"]) == ("naïve", "utf8", 1)
    assert ":" in text["position"]
    data = json.loads(kvfold(dev, "get", scope, "bytes", "--json").stdout)
    assert (data["value"], data["encoding"]) == ("/wA=", "base64")


def test_list_pages_through_and_knows_prefixes(dev: DevProcess) -> None:
    scope = deployment()
    lines = [_event(scope, f"p_%/{number:04}", b"v") for number in range(1_100)]
    assert shell(dev, "emit", "-", stdin=b"".join(lines)).returncode == 0
    kvfold(dev, "put", scope, "p_X/other", "v")
    assert len(kvfold(dev, "list", scope).output.splitlines()) == 1_101
    assert len(kvfold(dev, "list", scope, "--prefix", "p_%").output.splitlines()) == 1_100
    limited = kvfold(dev, "list", scope, "--prefix", "p_%", "--limit", "1050", "--json").output.splitlines()
    assert [json.loads(line)["key"] for line in limited] == [f"p_%/{number:04}" for number in range(1_050)]


def test_a_key_that_cannot_be_is_refused_with_its_code(dev: DevProcess) -> None:
    refused = kvfold(dev, "put", deployment(), "line\nfeed", "v")
    assert refused.exit_code == 1
    assert "invalid-key" in refused.stderr
    too_large = kvfold(dev, "put", deployment(), "k", "--file", "-", stdin=b"x" * 1_048_577)
    assert too_large.exit_code == 1
    assert "too-large" in too_large.stderr


def test_a_tier_that_is_not_there_is_unavailable(dev: DevProcess) -> None:
    refused = kvfold(dev, "put", deployment(), "k", "v", "--namespace", "user_secrets")
    assert refused.exit_code == 3
    assert "encryption-key-missing" in refused.stderr
    assert "--id" not in refused.stderr  # nothing was appended


# --- emit ---


def _event(
    scope: str, key: str, value: bytes, *, expected: str | None = None, number: int | None = None
) -> bytes:
    event = {
        "specversion": "1.0",
        "type": "kvfold.deployment.put.v1",
        "source": "/test",
        "id": str(uuid4() if number is None else UUID(int=number)),
        "partitionkey": scope,
        "kvnamespace": "user",
        "subject": key,
        "datacontenttype": "text/plain",
        "data": value.decode(),
    }
    if expected is not None:
        event["kvexpected"] = expected
    return json.dumps(event).encode() + b"\n"


@pytest.mark.row("X14")
def test_lines_of_a_scope_keep_their_order(dev: DevProcess, tmp_path: Path) -> None:
    scopes = [deployment() for _ in range(5)]
    lines = []
    for version in range(120):
        expected = "absent" if version == 0 else f"version:{version}"
        lines += [_event(scope, "counter", str(version).encode(), expected=expected) for scope in scopes]
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"".join(lines))
    emitted = kvfold(dev, "emit", str(file), "--json")
    assert emitted.exit_code == 0, emitted.output[-2_000:]
    outcomes = [json.loads(line) for line in emitted.stdout.splitlines()]
    assert [one["line"] for one in outcomes] == list(range(1, 601))
    assert [one["version"] for one in outcomes[::5]] == list(range(1, 121))
    again = kvfold(dev, "emit", str(file))  # every outcome is the first one
    assert again.exit_code == 0
    assert again.stdout == "600 applied\n"
    for scope in scopes:
        assert json.loads(kvfold(dev, "get", scope, "counter", "--json").stdout)["version"] == 120


def test_bad_lines_are_named_and_the_others_are_applied(dev: DevProcess) -> None:
    scope = deployment()
    lines = [
        _event(scope, "good", b"1"),
        b"{not json}\n",
        b"\n",
        json.dumps({"type": "kvfold.deployment.put.v1"}).encode() + b"\n",
        _event(scope, "good", b"2", expected="absent"),
        _event(scope, "x" * 1_025, b"too long a key"),
        _event(scope, "last", b"3").rstrip(b"\n"),
    ]
    emitted = shell(dev, "emit", "-", stdin=b"".join(lines))
    assert emitted.returncode == 1
    said = emitted.stderr.decode()
    assert "line 2: invalid" in said
    assert "line 4: invalid" in said and "specversion must be 1.0" in said
    assert "line 5: conflict, version-conflict" in said
    assert "line 6: rejected, invalid-key" in said or "line 6: invalid, invalid-key" in said
    assert "2 applied" in emitted.stdout.decode()
    assert kvfold(dev, "get", scope, "last").stdout_bytes == b"3"


def test_system_events_are_operators_business(dev: DevProcess) -> None:
    event = {
        "specversion": "1.0",
        "type": "kvfold.system.format-raised.v1",
        "source": "/test",
        "id": str(uuid4()),
        "partitionkey": "s:0",
        "data": {"level": 2},
    }
    refused = shell(dev, "emit", "-", stdin=json.dumps(event).encode())
    assert refused.returncode == 1
    assert b"system-refused" in refused.stderr


# --- the examples of the README, one a family ---


def test_a_deployment_over_http(dev: DevProcess) -> None:
    with httpx.Client(base_url=dev.url, trust_env=False, timeout=30) as http:
        url = f"/deployments/{uuid4()}/kv/user/settings.json"
        created = http.put(url, content=b'{"theme": "dark"}')
        assert (created.status_code, created.headers["X-Object-Version"]) == (201, "1")
        replaced = http.put(url, content=b"{}", headers={"X-Object-Version": "1"})
        assert (replaced.status_code, replaced.headers["X-Object-Version"]) == (200, "2")
        stale = http.put(url, content=b"late", headers={"X-Object-Version": "1"})
        assert (stale.status_code, stale.headers["X-Object-Version"]) == (409, "2")
        assert http.get(url).content == b"{}"
        assert http.delete(url, headers={"X-Object-Version": "2"}).status_code == 204
        assert http.get(url).status_code == 404


def test_a_capsule_over_http(dev: DevProcess) -> None:
    with httpx.Client(base_url=dev.url, trust_env=False, timeout=30) as http:
        base = f"/v1/capsules/{uuid4()}/notes"
        assert (
            http.put(f"{base}/kv/todo", content=b"write", headers={"If-None-Match": "*"}).status_code == 201
        )
        tag = http.get(f"{base}/kv/todo").headers["ETag"]
        assert http.put(f"{base}/kv/todo", content=b"read", headers={"If-Match": tag}).status_code == 200
        assert http.put(f"{base}/kv/todo", content=b"lost", headers={"If-Match": tag}).status_code == 412
        assert http.get(f"{base}/keys").json()["keys"] == ["todo"]
        assert http.get(f"{base}/usage").json()["bytes"] == len("todo") + len("read")
        assert http.delete(f"{base}/keys", params={"prefix": "to"}).json() == {"removed": 1}


@pytest.mark.row("O8")
def test_an_external_instance_by_events(dev: DevProcess) -> None:
    instance = f"order-{uuid4()}"

    def line(kind: str, data: object) -> bytes:
        event = {
            "specversion": "1.0",
            "type": f"kvfold.orchestration.{kind}.v1",
            "source": "/shop",
            "id": str(uuid4()),
            "partitionkey": f"o:{instance}",
            "datacontenttype": "application/json",
            "data": data,
        }
        return json.dumps(event).encode() + b"\n"

    events = [{"kind": "KeyValueSet", "key": "state", "value": "packed"}]
    lines = line("started", {"name": "order", "mode": "external", "input": None}) + line(
        "events", {"execution_id": 1, "events": events}
    )
    assert shell(dev, "emit", "-", stdin=lines).stdout == b"2 applied\n"
    assert kvfold(dev, "get", f"o:{instance}", "state").stdout_bytes == b"packed"
    assert kvfold(dev, "list", f"o:{instance}").output == "state\n"


def test_an_unknown_address_is_no_kvfold(dev: DevProcess) -> None:
    result = run_command("get", "d:x", "k", environment={"KVFOLD_URL": dev.url + "/elsewhere"})
    assert result.exit_code == 1
