"""Orchestration instances over HTTP the whole way: started, told, waited for, pruned and deleted."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvfold.schemas.names import check_orchestration_key, check_orchestration_name
from support.asgi import AsgiAnswer
from support.whole_way import Client, Headers, whole_way

__all__: list[str] = []

pytestmark = pytest.mark.postgres

BASE = "/v1/instances"
PRUNE = "/v1/executions/prune"


async def post(client: Client, target: str, body: Any = None, *, headers: Headers = ()) -> AsgiAnswer:
    return await client("POST", target, b"" if body is None else json.dumps(body).encode(), headers=headers)


def problem(answer: AsgiAnswer) -> tuple[int, str]:
    assert answer.header("content-type") == "application/problem+json", answer
    return answer.status, answer.json()["code"]


async def external(client: Client, instance_id: str, *executions: list[dict[str, Any]]) -> None:
    """An external instance with these events in its executions; each but the last ends with continue-as-new."""
    assert (
        await post(client, BASE, {"instance_id": instance_id, "name": "n", "mode": "external"})
    ).status == 201
    for number, events in enumerate(executions, start=1):
        if number < len(executions):
            events = [*events, {"kind": "OrchestrationContinuedAsNew", "input": number}]
        await told(client, instance_id, number, events)


async def told(client: Client, instance_id: str, execution: int, events: list[dict[str, Any]]) -> None:
    """What an external instance did."""
    await emit(client, "events", instance_id, {"execution_id": execution, "events": events})


async def end(client: Client, instance_id: str) -> None:
    """The turn of a worker that ends a runtime instance."""
    view = (await client("GET", f"{BASE}/{instance_id}")).json()
    turn = {
        "incarnation": view["incarnation"],
        "execution_id": 1,
        "history_length": 0,
        "worker": "w",
        "seen": view["incarnation"],
        "consumed": [],
        "events": [{"kind": "OrchestrationCompleted", "output": 1}],
    }
    await emit(client, "turn", instance_id, turn)


async def emit(client: Client, verb: str, instance_id: str, data: dict[str, Any]) -> None:
    """A CloudEvent that is applied."""
    event = {
        "specversion": "1.0",
        "type": f"kvfold.orchestration.{verb}.v1",
        "id": str(uuid.uuid4()),
        "source": "/tests",
        "partitionkey": f"o:{instance_id}",
        "data": data,
    }
    headers = [("content-type", "application/cloudevents+json")]
    answer = await post(client, "/v1/mutations?wait=8", event, headers=headers)
    assert (answer.status, answer.json()["status"]) == (200, "applied"), answer


def key_set(key: str, value: str) -> dict[str, Any]:
    return {"kind": "KeyValueSet", "key": key, "value": value}


@pytest.mark.row("O27")
@pytest.mark.row("O16")
def test_an_instance_from_its_start_to_its_deletion(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        body = {"instance_id": "order/1 ä", "name": "order", "input": {"sku": [1, None]}}
        path = f"{BASE}/order%2F1%20%C3%A4"
        started = await post(client, BASE, body)
        assert started.status == 201
        assert started.header("location") == path
        position = started.header("x-kvfold-position")
        assert position is not None
        incarnation = int(position.partition(":")[2])
        assert started.json() == {"instance_id": "order/1 ä", "incarnation": incarnation}
        view = (await client("GET", path)).json()
        assert (view["mode"], view["input"], view["status"]) == ("runtime", {"sku": [1, None]}, "Running")
        assert problem(await post(client, BASE, body)) == (409, "already-exists")

        raised = await post(client, f"{path}/events", {"name": "approved", "data": {"by": "ada"}})
        assert (raised.status, raised.json()["status"]) == (200, "applied")
        assert (await post(client, f"{path}/events", {"name": "approved"})).status == 200
        assert (await post(client, f"{path}/cancel", {"reason": "sold out"})).status == 200
        assert (await post(client, f"{path}/cancel")).status == 200

        wrong = await client("DELETE", f"{path}?incarnation={incarnation + 1}")
        assert problem(wrong) == (409, "wrong-incarnation")
        gone = await client("DELETE", f"{path}?incarnation={incarnation}")
        assert (gone.status, gone.body) == (204, b"")
        assert (await client("GET", path)).status == 404
        for verb in ("events", "cancel", "prune"):
            told_to = {"name": "x"} if verb == "events" else {"before": 1} if verb == "prune" else None
            answer = await post(client, f"{path}/{verb}", told_to)
            code = "unknown-type" if verb == "prune" else "unknown-instance"
            assert problem(answer)[1] == code, "before is of format level 2"
        assert problem(await client("DELETE", path)) == (404, "unknown-instance")

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("O27")
def test_repeats_have_the_first_outcome_and_what_has_ended_is_finished(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        body = {"instance_id": "i", "name": "n", "mode": "external"}
        headers = [("Idempotency-Key", "once")]
        first = await post(client, BASE, body, headers=headers)
        again = await post(client, BASE, body, headers=headers)
        assert (again.status, again.json()) == (201, first.json())
        other = await post(client, BASE, body | {"name": "other"}, headers=headers)
        assert problem(other) == (422, "id-reused")
        assert problem(await post(client, f"{BASE}/i/events", {"name": "x"})) == (409, "wrong-mode")
        assert (await post(client, BASE, {"instance_id": "r", "name": "n"})).status == 201
        await end(client, "r")
        for verb, told_to in (("cancel", {}), ("events", {"name": "x"})):
            assert problem(await post(client, f"{BASE}/r/{verb}", told_to)) == (409, "finished")

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("O14")
@pytest.mark.row("O15")
def test_prunes_of_one_and_of_many(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        for name in ("a1", "a2", "b"):
            await external(client, name, [key_set("old", "1")], [key_set("kept", "2")], [key_set("new", "3")])
        answer = await post(client, f"{BASE}/b/prune", {"execution_ids": [1]})
        assert (answer.status, answer.json()) == (200, {"removed": 1})
        assert set((await client("GET", f"{BASE}/b/kv")).json()["kv"]) == {"kept", "new"}
        current = await post(client, f"{BASE}/b/prune", {"execution_ids": [3]})
        assert problem(current) == (409, "current-execution")

        page = await post(client, PRUNE, {"prefix": "a", "limit": 1})
        assert page.json() == {"instances": 1, "executions": 2, "next_start": "a2"}
        rest = await post(client, PRUNE, {"prefix": "a", "start": "a2", "keep_values": True})
        assert rest.json() == {"instances": 1, "executions": 2, "next_start": None}
        assert set((await client("GET", f"{BASE}/a1/kv")).json()["kv"]) == {"new"}
        assert set((await client("GET", f"{BASE}/a2/kv")).json()["kv"]) == {"old", "kept", "new"}
        nothing = await post(client, PRUNE, {"older_than": "2000-01-01T00:00:00Z"})
        assert nothing.json() == {"instances": 0, "executions": 0, "next_start": None}
        assert (await client("GET", f"{BASE}/b/history?execution_id=2")).status == 200

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("O12")
def test_the_history_of_each_execution_by_pages(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        events = [key_set("k", str(number)) for number in range(5)]
        await external(client, "i", events, [key_set("last", "")])
        first = (await client("GET", f"{BASE}/i/history?execution_id=1&limit=4")).json()
        assert first["execution_id"] == 1 and first["next_cursor"] == "4"
        assert [item["event_id"] for item in first["events"]] == [1, 2, 3, 4]
        assert first["events"][3]["event"] == {"kind": "KeyValueSet", "key": "k", "value": "3"}
        rest = (await client("GET", f"{BASE}/i/history?execution_id=1&limit=4&cursor=4")).json()
        kinds = [item["event"]["kind"] for item in rest["events"]]
        assert (kinds, rest["next_cursor"]) == (["KeyValueSet", "OrchestrationContinuedAsNew"], None)
        current = (await client("GET", f"{BASE}/i/history")).json()
        assert (current["execution_id"], len(current["events"])) == (2, 1)
        position = current["events"][0]["position"]
        assert (await client("GET", f"{BASE}/i?as_of={position}")).json()["execution_id"] == 2
        for target in ("none/history", "i/history?execution_id=3"):
            assert problem(await client("GET", f"{BASE}/{target}")) == (404, "not-found")
        await post(client, f"{BASE}/i/prune", {"execution_ids": [1]})
        assert problem(await client("GET", f"{BASE}/i/history?execution_id=1")) == (404, "not-found")

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("O12")
def test_a_page_of_large_events_ends_early(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        await external(client, "i")
        statuses = [{"kind": "CustomStatusUpdated", "status": "ä" * 120_000} for _ in range(4)]
        for part in range(5):
            await told(client, "i", 1, [*statuses, key_set("part", str(part))])
        seen: list[int] = []
        sizes: list[int] = []
        target = f"{BASE}/i/history?limit=1000"
        while target:
            answer = await client("GET", target)
            sizes.append(len(answer.body))
            seen += [item["event_id"] for item in answer.json()["events"]]
            cursor = answer.json()["next_cursor"]
            target = f"{BASE}/i/history?limit=1000&cursor={cursor}" if cursor else ""
        assert seen == list(range(1, 26))
        assert len(sizes) == 2 and max(sizes) < 4 * 1024 * 1024 + 300_000

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("O8")
def test_waits_end_at_once_where_nothing_will_come(postgres_dsn: str) -> None:
    """Each wait here is for longer than a test may take: only an answer that comes at once lets it end."""

    async def scenario(client: Client) -> None:
        await external(client, "ended", [key_set("k", "v"), {"kind": "OrchestrationFailed", "error": "no"}])
        await external(client, "running", [key_set("k", "")])
        for target in ("ended?wait=60", "ended/kv/k?wait=60", "running/kv/k?wait=60"):
            assert (await asyncio.wait_for(client("GET", f"{BASE}/{target}"), 30)).status == 200
        for target in ("none?wait=60", "none/kv/k?wait=60", "ended/kv/other?wait=60"):
            assert (await asyncio.wait_for(client("GET", f"{BASE}/{target}"), 30)).status == 404
        assert (await client("GET", f"{BASE}/running/kv/other?wait=0.05")).status == 404
        for target in ("running/kv/k?wait=61", "running?wait=x"):
            assert problem(await client("GET", f"{BASE}/{target}")) == (400, "malformed-wait")

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("O8")
def test_waits_are_answered_when_it_happens(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        await external(client, "i")
        value = asyncio.create_task(client("GET", f"{BASE}/i/kv/k?wait=60"))
        gone = asyncio.create_task(client("GET", f"{BASE}/i/kv/never?wait=60"))
        end = asyncio.create_task(client("GET", f"{BASE}/i?wait=60"))
        await told(client, "i", 1, [key_set("k", "v")])
        assert (await asyncio.wait_for(value, 30)).json()["value"] == "v"
        assert not end.done() and not gone.done()
        await told(client, "i", 1, [{"kind": "OrchestrationCompleted", "output": "done"}])
        assert (await asyncio.wait_for(end, 30)).json()["output"] == "done"
        assert (await asyncio.wait_for(gone, 30)).status == 404

    whole_way(postgres_dsn, scenario)


BODIES: tuple[tuple[str, Any, str], ...] = (
    ("", {"name": "n"}, "malformed-body"),
    ("", {"instance_id": "i"}, "malformed-body"),
    ("", {"instance_id": "", "name": "n"}, "malformed-name"),
    ("", {"instance_id": "i", "name": "n", "mode": "other"}, "malformed-body"),
    ("", {"instance_id": "i", "name": "n", "parent": {}}, "malformed-body"),
    ("", [], "malformed-body"),
    ("", {"instance_id": "i\u0000", "name": "n"}, "malformed"),
    ("/i/events", {}, "malformed-body"),
    ("/i/events", {"name": 1}, "malformed-body"),
    ("/i/cancel", {"why": ""}, "malformed-body"),
    ("/i/prune", {}, "malformed-body"),
    ("/i/prune", {"execution_ids": [1], "before": 2}, "malformed-body"),
    ("/i/prune", {"execution_ids": []}, "malformed"),
    ("/i/prune", {"execution_ids": [0]}, "malformed"),
    ("/i/prune", {"before": 0}, "malformed-body"),
    (PRUNE, {"keep_last": 0}, "malformed-body"),
    (PRUNE, {"limit": 1_001}, "malformed-body"),
    (PRUNE, {"older_than": "2026-12-01T00:00:00"}, "malformed-body"),
    (PRUNE, {"older_than": 5}, "malformed-body"),
    (PRUNE, {"prefix": "\u0001"}, "malformed-prefix"),
)


@pytest.mark.row("O27")
def test_wrong_bodies_say_what_is_accepted_and_change_nothing(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        for path, body, code in BODIES:
            answer = await post(client, path if path == PRUNE else BASE + path, body)
            assert problem(answer) == (400, code), (path, body, answer.json())
            assert len(answer.json()["detail"]) > 20
        for raw in (b"", b"{", b"\xff", b'{"instance_id": "i", "name": "n", "name": "m"}', b"NaN"):
            assert problem(await client("POST", BASE, raw)) == (400, "malformed")
        refused = await post(client, f"{BASE}/i/cancel", headers=[("If-Match", "*")])
        assert problem(refused) == (400, "malformed-precondition")
        assert problem(await client("DELETE", f"{BASE}/i?incarnation=-1")) == (400, "malformed-incarnation")
        nameless = {"instance_id": "i", "name": ""}
        assert problem(await post(client, BASE, nameless)) == (422, "limit")
        large = {"instance_id": "i", "name": "n", "input": "x" * 300_000}
        assert problem(await post(client, BASE, large)) == (422, "limit")
        assert (await client("GET", BASE)).json()["instances"] == []

    whole_way(postgres_dsn, scenario)


NAMES = st.text(min_size=1, max_size=40).filter(lambda text: check_orchestration_name("", text) is None)
KEYS = st.text(max_size=40).filter(lambda text: check_orchestration_key(text) is None)


@pytest.mark.row("O27")
def test_any_name_and_key_comes_through(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        done: set[str] = set()

        @settings(max_examples=25)
        @given(name=NAMES, key=KEYS)
        def draw(name: str, key: str) -> None:
            drawn.append((name, key))

        drawn: list[tuple[str, str]] = [("..", ".."), ("history", "history"), ("a/b", "a/b"), ("%2F", "%2F")]
        draw()
        for name, key in drawn:
            if name in done:
                continue
            done.add(name)
            await external(client, name, [key_set(key, name)])
            path = f"{BASE}/{quote(name, safe='')}"
            found = await client("GET", f"{path}/kv/{quote(key, safe='')}")
            assert found.status == 200 and found.json()["value"] == name, (name, key, found)
            events = (await client("GET", f"{path}/history")).json()["events"]
            assert events[0]["event"] == key_set(key, name)
            assert (await client("DELETE", path)).status == 204

    whole_way(postgres_dsn, scenario)
