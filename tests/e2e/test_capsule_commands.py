"""What an operator does with capsules: list what they keep, set how much they may; and a batch over HTTP."""

from __future__ import annotations

import base64
import json
from uuid import uuid4

import httpx
import pytest
from click.testing import Result

from e2e.stack import DevProcess
from support.cli import run_command

__all__: list[str] = []

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def kvfold(dev: DevProcess, *arguments: str) -> Result:
    return run_command(*arguments, environment={"KVFOLD_URL": dev.url})


def scope_of(principal: str, capsule_id: str = "notes") -> str:
    return f"c:{principal}:capsule:{capsule_id}"


@pytest.mark.row("C10")
def test_an_operator_reads_and_sets_a_quota(dev: DevProcess) -> None:
    scope = scope_of(str(uuid4()))
    assert kvfold(dev, "capsule", "quota", scope).output == f"0 keys, 0 of 67108864 bytes, {scope}\n"
    assert kvfold(dev, "put", scope, "todo", "milk").exit_code == 0
    lowered = kvfold(dev, "capsule", "quota", scope, "--set", "6")
    assert (lowered.exit_code, lowered.output) == (0, f"1 key, 8 of 6 bytes, {scope}\n")
    refused = kvfold(dev, "put", scope, "todo", "bread")
    assert refused.exit_code == 1 and "quota" in refused.output
    assert kvfold(dev, "put", scope, "todo", "tea").exit_code == 0  # shrinking is always allowed
    told = json.loads(kvfold(dev, "capsule", "quota", scope, "--json").output)
    assert told == {"scope": scope, "keys": 1, "bytes": 7, "bytes_max": 6}
    raised = json.loads(kvfold(dev, "capsule", "quota", scope, "--set", "9", "--json").output)
    assert raised["bytes_max"] == 9
    assert kvfold(dev, "put", scope, "todo", "bread").exit_code == 0


@pytest.mark.row("C10")
@pytest.mark.parametrize(
    "arguments", [("d:dep",), ("o:order",), ("notes",), ("c:a:capsule:n", "--set", "-1"), ()]
)
def test_what_has_no_quota_is_a_matter_of_usage(dev: DevProcess, arguments: tuple[str, ...]) -> None:
    assert kvfold(dev, "capsule", "quota", *arguments).exit_code == 2


@pytest.mark.row("C22")
def test_an_operator_lists_what_capsules_leave_behind(dev: DevProcess) -> None:
    principal = str(uuid4())
    for capsule_id in ("notes", "é", "emptied"):
        assert kvfold(dev, "put", scope_of(principal, capsule_id), "k", "12").exit_code == 0
    assert kvfold(dev, "delete", scope_of(principal, "emptied"), "k").exit_code == 0
    listed = kvfold(dev, "capsule", "list", "--prefix", f"{principal}:")
    assert listed.output.splitlines() == [
        f"0 keys, 0 of 67108864 bytes, {scope_of(principal, 'emptied')}",
        f"1 key, 3 of 67108864 bytes, {scope_of(principal, 'notes')}",
        f"1 key, 3 of 67108864 bytes, {scope_of(principal, 'é')}",
    ]
    lines = [json.loads(line) for line in kvfold(dev, "capsule", "list", "--json").output.splitlines()]
    mine = [line for line in lines if line["principal"] == principal]
    assert [line["capsule_id"] for line in mine] == ["emptied", "notes", "é"]
    assert mine[1] == {
        "scope": scope_of(principal),
        "principal": principal,
        "capsule_id": "notes",
        "keys": 1,
        "bytes": 3,
        "bytes_max": 67108864,
    }


def test_a_batch_over_http_is_all_or_nothing(dev: DevProcess) -> None:
    principal = str(uuid4())
    base = f"/v1/capsules/{principal}/notes"

    def operation(key: str, value: bytes) -> dict[str, str]:
        return {"kind": "set", "key": key, "value": base64.b64encode(value).decode()}

    def post(http: httpx.Client, body: dict[str, object]) -> httpx.Response:
        headers = {
            "ce-specversion": "1.0",
            "ce-id": str(uuid4()),
            "ce-source": "/tests",
            "ce-type": "kvfold.capsule.batch.v1",
            "ce-partitionkey": scope_of(principal),
            "content-type": "application/json",
        }
        return http.post("/v1/mutations?wait=8", headers=headers, content=json.dumps(body))

    with httpx.Client(base_url=dev.url, trust_env=False, timeout=30) as http:
        created = post(
            http,
            {
                "conditions": [{"key": "a", "expected": "absent"}, {"key": "b", "expected": "absent"}],
                "operations": [operation("a", b"1"), operation("b", b"\x00\xff")],
            },
        )
        assert (created.status_code, created.json()["status"]) == (200, "applied")
        refused = post(
            http,
            {
                "conditions": [{"key": "a", "expected": "present"}, {"key": "b", "expected": "absent"}],
                "operations": [{"kind": "delete", "key": "a"}, operation("b", b"2")],
            },
        )
        assert (refused.status_code, refused.json()["code"]) == (412, "cas-mismatch")
        assert refused.json()["detail"] == "conditions[1] does not hold" and refused.json()["version"] == 1
        assert http.get(f"{base}/kv/a").content == b"1" and http.get(f"{base}/kv/b").content == b"\x00\xff"
        misshapen: list[dict[str, object]] = [
            {"operations": []},
            {"operations": [{"kind": "set", "key": "a", "value": "?"}]},
            {"operations": [operation("a", b""), operation("a", b"")]},
        ]
        for body in misshapen:
            answered = post(http, body)
            assert (answered.status_code, answered.json()["code"]) == (400, "malformed"), answered.text
            assert "operations" in answered.json()["detail"], "it says where"
        over = post(http, {"operations": [operation(f"k{n}", b"") for n in range(1_025)]})
        assert (over.status_code, over.json()["code"]) == (413, "too-large")
        key = post(http, {"operations": [operation("a\x1f", b"")]})
        assert (key.status_code, key.json()["code"]) == (400, "invalid-key")
        assert http.get(f"{base}/keys").json()["keys"] == ["a", "b"]
