"""`POST /v1/mutations`: CloudEvents one by one and in batches (contract, "Writes"; row X14)."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from cloudevents.core.bindings import http as cloudevents_http
from cloudevents.core.v1.event import CloudEvent

from kvfold.http.app import App
from kvfold.log.memory import AppendFault, MemoryLog
from kvfold.log.port import LogDescription
from kvfold.producers.gateway.context import GatewayContext, build_gateway_context
from kvfold.producers.gateway.routes import write_routes
from kvfold.reads.decisions import DecisionView
from kvfold.schemas.errors import LogUnavailableError, NotUpToPositionError, PartitionPausedError
from kvfold.schemas.limits import CAPSULE_VALUE_BYTES_MAX, CLOUDEVENTS_BATCH_EVENTS_MAX
from kvfold.schemas.position import Position
from support.asgi import AsgiAnswer, request
from support.folding import FoldingWaiter

__all__: list[str] = []

JSON_EVENT = ("Content-Type", "application/cloudevents+json")
JSON_BATCH = ("Content-Type", "application/cloudevents-batch+json; charset=utf-8")
SCOPE = "d:dep"
Event = dict[str, Any]


class NeverDecided:
    """A waiter whose projection is not there; `error` is what it says."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def decision(self, position: Position, timeout_s: float) -> Future[DecisionView]:
        future: Future[DecisionView] = Future()
        future.set_exception(self._error)
        return future

    def position_reached(self, positions: Mapping[int, int], timeout_s: float) -> Future[None]:
        raise NotImplementedError


class AwayLog(MemoryLog):
    def describe(self) -> LogDescription:
        raise LogUnavailableError("secret-host:9092 does not answer")


def put(key: str = "k", value: str = "v", **attributes: str) -> Event:
    return {
        "specversion": "1.0",
        "type": "kvfold.deployment.put.v1",
        "id": str(uuid.uuid4()),
        "source": "/tests",
        "partitionkey": SCOPE,
        "subject": key,
        "kvnamespace": "user",
        "datacontenttype": "text/plain",
        "data": value,
    } | attributes


def post(context: GatewayContext, event: object, *, query: str = "", batch: bool = False) -> AsgiAnswer:
    app = App(write_routes(context))
    headers = [JSON_BATCH if batch else JSON_EVENT]
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return asyncio.run(request(app, "POST", f"/v1/mutations{query}", headers=headers, body=body))


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partition_count=3)


@pytest.fixture
def context(log: MemoryLog) -> GatewayContext:
    return build_gateway_context(log, FoldingWaiter(log))


@pytest.fixture
def undecided(log: MemoryLog) -> GatewayContext:
    return build_gateway_context(log, NeverDecided(NotUpToPositionError("late")))


def appended(log: MemoryLog) -> int:
    return sum(bounds.end for bounds in log.bounds(range(3)).values())


def test_without_wait_an_event_is_accepted_with_its_position(context: GatewayContext) -> None:
    event = put()
    answer = post(context, event)
    assert answer.status == 202
    position = answer.header("x-kvfold-position")
    assert answer.json() == {
        "id": event["id"],
        "scope": SCOPE,
        "position": position,
        "status": "pending",
        "code": None,
        "version": None,
        "detail": None,
        "removed": None,
    }
    assert answer.header("location") == f"/v1/mutations/{event['id']}?scope=d%3Adep"


def test_with_wait_it_has_the_status_of_its_own_route(context: GatewayContext) -> None:
    def statuses(*events: Event) -> list[int]:
        return [post(context, event, query="?wait=8").status for event in events]

    event = put(kvexpected="absent")
    first = post(context, event, query="?wait=1.5")
    assert (first.status, first.header("x-object-version"), first.json()["status"]) == (201, "1", "applied")
    deleted = put(type="kvfold.deployment.deleted.v1")
    del deleted["data"], deleted["datacontenttype"]
    undeployed = {k: v for k, v in deleted.items() if k not in ("subject", "kvnamespace")}
    undeployed |= {"type": "kvfold.deployment.undeployed.v1", "id": str(uuid.uuid4())}
    assert statuses(put(kvexpected="version:1"), put(kvexpected="absent"), deleted, undeployed) == [
        200,
        409,
        204,
        200,
    ]
    repeat = post(context, event, query="?wait=0")
    assert (repeat.status, repeat.json()) == (201, first.json())
    assert statuses(event | {"data": "other"}) == [422]
    capsule = put(type="kvfold.capsule.set.v1", partitionkey="c:a:capsule:b", kvexpected="present")
    del capsule["kvnamespace"]
    assert statuses(capsule) == [412]
    started = {**undeployed, "type": "kvfold.orchestration.started.v1", "partitionkey": "o:1"}
    started |= {"id": str(uuid.uuid4()), "data": {"name": "order", "mode": "external"}}
    assert statuses(started, started | {"id": str(uuid.uuid4())}) == [201, 409]
    pruned = started | {
        "type": "kvfold.orchestration.executions-pruned.v1",
        "partitionkey": "o:2",
        "data": {"execution_ids": [1]},
    }
    assert statuses(pruned) == [404]


@pytest.mark.parametrize("wait", ["", "-1", "+1", "1,5", "x", "1e3", "61", "01", "nan", "%201"])
def test_a_malformed_wait_is_refused(context: GatewayContext, log: MemoryLog, wait: str) -> None:
    answer = post(context, put(), query=f"?wait={wait}")
    assert (answer.status, answer.json()["code"]) == (400, "malformed-wait")
    assert appended(log) == 0


@pytest.mark.row("X14")
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_official_sdk_writes(context: GatewayContext, mode: str) -> None:
    attributes = {k: v for k, v in put().items() if k != "data"}
    event = CloudEvent(attributes | {"subject": "naïve key"}, "v")
    message = getattr(cloudevents_http, f"to_{mode}_event")(event)
    answer = asyncio.run(
        request(
            App(write_routes(context)),
            "POST",
            "/v1/mutations?wait=8",
            headers=list(message.headers.items()),
            body=message.body,
        )
    )
    assert (answer.status, answer.json()["id"]) == (201, attributes["id"])


@pytest.mark.parametrize(
    ("event", "status", "code"),
    [
        (put(specversion="0.3"), 400, "malformed-event"),
        (put(kvexpectd="absent"), 400, "malformed-event"),
        (put(id="x"), 400, "malformed-event"),
        (put(kvexpected="0"), 400, "malformed-precondition"),
        (put(kvexpected="sha256:" + "0" * 64), 400, "malformed"),
        (put(type="kvfold.deployment.put.v2"), 400, "unknown-type"),
        (put(type="kvfold.system.format-raised.v1", partitionkey="s:0"), 400, "system-refused"),
        (put(partitionkey="x:1"), 400, "malformed"),
        (put(key="k\n"), 400, "invalid-key"),
        (put(kvnamespace="user_secrets"), 503, "encryption-key-missing"),
        (put(kvnamespace="user_volatile"), 503, "volatile-unavailable"),
        (put(kvnamespace="user_volatile_secrets"), 400, "secret-and-volatile"),
        (put(value="x" * (CAPSULE_VALUE_BYTES_MAX + 1)), 413, "too-large"),
        (b"[]", 400, "malformed-event"),
        (b"", 400, "malformed"),
    ],
)
def test_an_event_that_is_refused(
    context: GatewayContext, log: MemoryLog, event: object, status: int, code: str
) -> None:
    answer = post(context, event, query="?wait=8")
    assert (answer.status, answer.json()["code"]) == (status, code), answer
    assert appended(log) == 0
    if isinstance(event, dict):
        (decision,) = post(context, [event], batch=True).json()
        assert (decision["status"], decision["code"], decision["position"]) == ("rejected", code, None)
        assert appended(log) == 0


def test_conditions_in_headers_are_refused(context: GatewayContext) -> None:
    app = App(write_routes(context))
    for name in ("If-Match", "If-None-Match", "X-Object-Version"):
        headers = [JSON_EVENT, (name, "*")]
        body = json.dumps(put()).encode()
        answer = asyncio.run(request(app, "POST", "/v1/mutations", headers=headers, body=body))
        assert (answer.status, answer.json()["code"]) == (400, "malformed-precondition")


def test_a_format_that_is_not_read_is_refused(context: GatewayContext) -> None:
    headers = [("Content-Type", "application/cloudevents+avro")]
    answer = asyncio.run(request(App(write_routes(context)), "POST", "/v1/mutations", headers=headers))
    assert (answer.status, answer.json()["code"]) == (400, "malformed-event")


# --- batches ---


def decisions(answer: AsgiAnswer) -> Sequence[tuple[str, str | None, int | None]]:
    assert answer.status == 200
    return [(one["status"], one["code"], one["version"]) for one in answer.json()]


def test_a_batch_has_a_decision_for_each_event_in_order(context: GatewayContext) -> None:
    events: list[object] = [
        put(value="1", kvexpected="absent"),
        put(value="2", kvexpected="absent"),
        {"id": "x"},
        7,
        put(value="3", kvexpected="version:1"),
        put(kvnamespace="user_secrets"),
        put(key="other"),
    ]
    answer = post(context, events, query="?wait=8", batch=True)
    assert decisions(answer) == [
        ("applied", None, 1),
        ("conflict", "version-conflict", 1),
        ("rejected", "malformed-event", None),
        ("rejected", "malformed-event", None),
        ("applied", None, 2),
        ("rejected", "encryption-key-missing", None),
        ("applied", None, 1),
    ]
    repeated = decisions(post(context, events, query="?wait=8", batch=True))
    assert repeated == decisions(answer)


def test_a_batch_without_wait_is_pending_at_its_positions(context: GatewayContext, log: MemoryLog) -> None:
    answer = post(context, [put(f"k{n}") for n in range(5)], batch=True)
    assert decisions(answer) == [("pending", None, None)] * 5
    offsets = [Position.parse(one["position"]).offset for one in answer.json()]
    assert offsets == [0, 1, 2, 3, 4]
    assert post(context, [], batch=True).json() == []


def test_a_batch_has_a_limit(context: GatewayContext, log: MemoryLog) -> None:
    whole = post(context, [put() for _ in range(CLOUDEVENTS_BATCH_EVENTS_MAX)], query="?wait=8", batch=True)
    assert len(whole.json()) == CLOUDEVENTS_BATCH_EVENTS_MAX
    more = post(context, [7] * (CLOUDEVENTS_BATCH_EVENTS_MAX + 1), batch=True)
    assert (more.status, more.json()["code"]) == (413, "too-large")
    assert post(context, {}, batch=True).status == 400
    assert appended(log) == CLOUDEVENTS_BATCH_EVENTS_MAX


# --- what is not decided ---


def test_what_is_not_decided_in_time_is_503_with_everything_for_a_repeat(undecided: GatewayContext) -> None:
    event = put()
    answer = post(undecided, event, query="?wait=0.01")
    problem = answer.json()
    assert (answer.status, problem["code"]) == (503, "outcome-unknown")
    assert problem["mutation_id"] == event["id"]
    assert problem["position"] == answer.header("x-kvfold-position") is not None
    assert answer.header("retry-after") == "1"
    batch = post(undecided, [event], query="?wait=0.01", batch=True)
    assert decisions(batch) == [("pending", "outcome-unknown", None)]
    assert batch.json()[0]["position"] is not None


def test_a_paused_partition_is_said_so(log: MemoryLog) -> None:
    context = build_gateway_context(log, NeverDecided(PartitionPausedError("partition 0 is paused: why")))
    answer = post(context, put(), query="?wait=1")
    assert (answer.status, answer.json()["code"]) == (503, "partition-paused")
    assert answer.header("x-kvfold-position") is not None
    assert answer.header("retry-after") is None


@pytest.mark.parametrize(
    "away", [AwayLog(), MemoryLog(fault=lambda _partition, _record: AppendFault.NOT_APPENDED)]
)
def test_a_log_that_is_away_is_503_for_one_and_pending_in_a_batch(away: MemoryLog) -> None:
    context = build_gateway_context(away, NeverDecided(NotUpToPositionError("late")))
    event = put()
    for query in ("", "?wait=1"):
        answer = post(context, event, query=query)
        assert (answer.status, answer.json()["code"]) == (503, "log-unavailable")
        assert answer.json()["mutation_id"] == event["id"]
        assert b"secret-host" not in answer.body
        batch = post(context, [event, {}], query=query, batch=True)
        assert decisions(batch) == [
            ("pending", "log-unavailable", None),
            ("rejected", "malformed-event", None),
        ]
