"""Instances, mutations, positions and operations over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from support.asgi_client import AsgiClient
from support.projection_rows import ProjectionRows
from support.query_api import query_api
from support.servers import fresh_database

pytestmark = pytest.mark.postgres

DEP = ProjectionRows.partition("d:dep")
ORDER = ProjectionRows.partition("o:order-1")
VALUE = "/deployments/dep/kv/user/k"


@pytest.fixture(scope="module")
def empty_api(postgres_admin_dsn: str) -> Iterator[AsgiClient]:
    """Over a projection of nothing, for what is refused anyway; tests share it."""
    with fresh_database(postgres_admin_dsn) as dsn:
        ProjectionRows(dsn).close()
        with query_api(dsn) as client:
            yield client


@pytest.fixture
def api(postgres_dsn: str, rows: ProjectionRows) -> Iterator[AsgiClient]:
    with query_api(postgres_dsn) as client:
        yield client


@pytest.mark.row("O12")
def test_an_instance(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.instance("order-1", worker="w-1", custom_status="half", input='{"n":[1,2.5,null]}')
    rows.kv("order-1", "b", "2", execution_id=3)
    rows.kv("order-1", "", "", execution_id=1)
    answered = api.get("/v1/instances/order-1")
    kv = {"": {"value": "", "execution_id": 1}, "b": {"value": "2", "execution_id": 3}}
    assert answered.json == {
        "instance_id": "order-1",
        "name": "order",
        "mode": "external",
        "status": "Running",
        "incarnation": 7,
        "execution_id": 1,
        "owner": "w-1",
        "history_length": 3,
        "input": {"n": [1, 2.5, None]},
        "output": None,
        "failure": None,
        "custom_status": "half",
        "created_at": "2023-11-14T22:13:20.000Z",
        "updated_at": "2023-11-14T22:13:20.500Z",
        "kv": kv,
    }
    assert answered.headers["x-kvfold-position"] == f"{ORDER}:-1"
    assert api.get("/v1/instances/order-1/kv").json == {"kv": kv}
    assert api.get("/v1/instances/order-1/kv/b").json == {"key": "b", "value": "2", "execution_id": 3}
    for target in ("/v1/instances/order-1/kv/", "/v1/instances/order-1/kv?key="):
        assert api.get(target).json == {"key": "", "value": "", "execution_id": 1}


@pytest.mark.row("O8")
def test_what_is_unknown(api: AsgiClient, rows: ProjectionRows) -> None:
    for target in ("/v1/instances/none", "/v1/instances/none/kv", "/v1/instances/none/kv/k"):
        answered = api.get(target)
        assert (answered.status, answered.code) == (404, "not-found")
        assert "x-kvfold-position" in answered.headers
    rows.instance("order-1", status="Failed", failure="it broke", output=None)
    assert api.get("/v1/instances/order-1/kv").json == {"kv": {}}
    assert api.get("/v1/instances/order-1").json["failure"] == "it broke"
    assert api.get("/v1/instances/a%0Ab").code == "malformed-name"
    assert api.get("/v1/instances/order-1/kv/%00").code == "invalid-key"


def test_an_instance_id_with_slashes(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.instance("a/b", output='"done"', status="Completed")
    assert api.get("/v1/instances/a%2Fb").json["output"] == "done"
    assert api.get("/v1/instances/a/b").code == "not-found"


def test_waiting_for_the_end_of_an_instance(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.instance("order-1")
    started = time.monotonic()
    assert api.get("/v1/instances/order-1?wait=0.2").json["status"] == "Running"
    assert time.monotonic() - started >= 0.2

    def end() -> None:
        rows.execute("UPDATE {g}.orchestration_instance SET status = 'Completed', output = '1'")
        rows.advance(ORDER, 5)
        rows.notify(ORDER, 5)

    timer = threading.Timer(0.2, end)
    timer.start()
    assert api.get("/v1/instances/order-1?wait=60").json["output"] == 1
    timer.join()
    # Of a finished or unknown one: at once (dbos-transact-py#784).
    assert api.get("/v1/instances/order-1?wait=60").status == 200
    assert api.get("/v1/instances/none?wait=60").status == 404


@pytest.mark.parametrize("wait", ["-1", "61", "1e1", "", "x", "+1", "60.5", "0x1", "01", "nan"])
def test_malformed_waits(empty_api: AsgiClient, wait: str) -> None:
    assert empty_api.get(f"/v1/instances/i?wait={wait}").code in ("malformed-wait",)
    assert empty_api.get(f"/v1/mutations/{uuid4()}?wait={wait}").code == "malformed-wait"


@pytest.mark.row("X4")
def test_a_mutation_by_id(api: AsgiClient, rows: ProjectionRows) -> None:
    mutation = uuid4()
    target = f"/v1/mutations/{mutation}"
    for query in ("", "?scope=d:dep", "?scope=d:dep&wait=0.1"):
        assert api.get(target + query).code == "not-found"
    rows.decide(DEP, 3, mutation_id=mutation, status="conflict", code="version-conflict", version=4)
    rows.decide(DEP, 5, mutation_id=mutation, repeat_of=3, version=None)
    expected: dict[str, Any] = {
        "id": str(mutation),
        "scope": "d:dep",
        "position": f"{DEP}:3",
        "status": "conflict",
        "code": "version-conflict",
        "version": 4,
        "detail": None,
        "removed": None,
    }
    assert api.get(target).json == expected
    assert api.get(f"{target}?scope=d:dep").json == expected
    assert api.get(f"{target.upper().replace('/V1/MUTATIONS', '/v1/mutations')}?scope=d:dep").json == expected
    assert api.get(f"{target}?scope=d:other").code == "not-found"
    other = ProjectionRows.partition("d:dep-2")
    rows.decide(other, 9, scope="d:dep-2", mutation_id=mutation)
    both = api.get(target).json
    assert [item["scope"] for item in both] == ["d:dep", "d:dep-2"]
    assert api.get(f"{target}?scope=d:dep").json == expected


@pytest.mark.parametrize("scope", ["", "d:dep"])
def test_waiting_for_a_mutation(api: AsgiClient, rows: ProjectionRows, scope: str) -> None:
    mutation = uuid4()

    def fold() -> None:
        rows.decide(DEP, 3, mutation_id=mutation)
        rows.advance(DEP, 3)
        rows.notify(DEP, 3)

    timer = threading.Timer(0.2, fold)
    timer.start()
    query = f"&scope={scope}" if scope else ""
    assert api.get(f"/v1/mutations/{mutation}?wait=60{query}").json["status"] == "applied"
    timer.join()


@pytest.mark.parametrize(
    "text", ["x", "", "1", "{00000000-0000-0000-0000-000000000000}", "0" * 32, "urn:uuid:0"]
)
def test_malformed_mutation_ids(empty_api: AsgiClient, text: str) -> None:
    assert empty_api.get(f"/v1/mutations/{text}").code == "malformed-mutation-id"
    assert empty_api.get(f"/v1/mutations/{uuid4()}?scope=").code == "malformed-scope"
    assert empty_api.get(f"/v1/mutations/{uuid4()}?scope={'x' * 513}").code == "malformed-scope"


@pytest.mark.row("X5")
def test_a_min_position_waits(api: AsgiClient, rows: ProjectionRows) -> None:
    def fold() -> None:
        rows.deployment("dep", "user", "k", b"v")
        rows.advance(DEP, 5)
        rows.notify(DEP, 5)

    timer = threading.Timer(0.2, fold)
    timer.start()
    answered = api.get(VALUE, ("X-Kvfold-Min-Position", f"{DEP}:5"))
    assert (answered.status, answered.headers["x-kvfold-position"]) == (200, f"{DEP}:5")
    timer.join()
    other = (DEP + 1) % 4
    rows.advance(other, 2)
    assert api.get(VALUE, ("X-Kvfold-Min-Position", f"{DEP}:5,{other}:2")).status == 200
    listed = api.get(
        "/v1/instances", ("X-Kvfold-Min-Position", f"{DEP}:5"), ("X-Kvfold-Min-Position", f"{other}:2")
    )
    assert listed.status == 200


@pytest.mark.row("X5")
def test_a_min_position_that_is_not_reached(
    api: AsgiClient, rows: ProjectionRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvfold.http.positions.OPEN_WAIT_SECONDS_MAX", 0.2)
    for target in (VALUE, "/v1/projector"):
        answered = api.get(target, ("X-Kvfold-Min-Position", f"{DEP}:5"))
        assert (answered.status, answered.code) == (503, "not-up-to-position")
        assert answered.headers["retry-after"] == "1"
    other = (DEP + 1) % 4
    assert api.get(VALUE, ("X-Kvfold-Min-Position", f"{other}:0")).code == "not-up-to-position"


@pytest.mark.row("X5")
def test_a_paused_partition_answers_at_once(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.deployment("dep", "user", "k", b"v")
    rows.advance(DEP, 5)
    rows.pause(DEP)
    assert api.get(VALUE).status == 200
    assert api.get(VALUE, ("X-Kvfold-Min-Position", f"{DEP}:5")).status == 200
    started = time.monotonic()
    assert api.get(VALUE, ("X-Kvfold-Min-Position", f"{DEP}:6")).code == "partition-paused"
    assert time.monotonic() - started < 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1",
        "1:",
        ":1",
        "1:-2",
        "01:1",
        "1:1,1:2",
        "4:0",
        "9999:1",
        "1:1;2:2",
        "1:99999999999999999999",
    ],
)
def test_malformed_min_positions(empty_api: AsgiClient, text: str) -> None:
    answered = empty_api.get(VALUE, ("X-Kvfold-Min-Position", text))
    assert (answered.status, answered.code) == (400, "malformed-position")


@pytest.mark.row("X5")
def test_a_plain_get_sees_every_acknowledged_write_of_its_process(
    postgres_dsn: str, rows: ProjectionRows
) -> None:
    floors: dict[int, int] = {}
    with query_api(postgres_dsn, floor=floors.get) as api:
        assert api.get(VALUE).status == 404
        floors[DEP] = 5

        def fold() -> None:
            rows.deployment("dep", "user", "k", b"v")
            rows.advance(DEP, 5)
            rows.notify(DEP, 5)

        timer = threading.Timer(0.2, fold)
        timer.start()
        assert api.get(VALUE).body == b"v"
        timer.join()
        assert api.get("/v1/generations").status == 200
        floors[DEP] = 6
        rows.pause(DEP)
        assert api.get(VALUE, ("X-Kvfold-Min-Position", f"{DEP}:2")).code == "partition-paused"
        assert api.get("/v1/generations").code == "partition-paused"
        assert api.get("/readyz").status == 200


def test_generations_and_partitions(api: AsgiClient, rows: ProjectionRows) -> None:
    rows.new_generation(2)
    generations = api.get("/v1/generations").json["generations"]
    assert [(item["id"], item["state"], item["serving"]) for item in generations] == [
        (1, "serving", True),
        (2, "verified", False),
    ]
    rows.advance(2, 41)
    rows.pause(1, "log-diverged", "made anew")
    rows.execute("UPDATE {g}.claim SET owner = 'p-1', epoch = 3, expires_at = now() WHERE partition = 2")
    answered = api.get("/v1/projector")
    assert answered.headers["x-kvfold-position"] == "0:-1,1:-1,2:41,3:-1"
    projector = answered.json
    assert projector["generation"] == 1
    assert projector["notification_queue_usage"] == 0.0
    claimed = projector["partitions"][2]
    assert (claimed["position"], claimed["owner"], claimed["epoch"], claimed["paused"]) == (
        "2:41",
        "p-1",
        3,
        None,
    )
    assert claimed["claim_expires_at"].endswith("Z")
    assert projector["partitions"][1]["paused"]["reason"] == "log-diverged"
    assert projector["partitions"][0]["claim_expires_at"] is None


def test_health_and_readiness(postgres_dsn: str) -> None:
    needed: dict[int, int] = {}
    with query_api(postgres_dsn, ready_from=lambda: needed) as api:
        assert api.get("/healthz").json == {"status": "ok"}
        assert api.get("/readyz").code == "store-unavailable"
        assert api.get(VALUE).code == "store-unavailable"
        rows = ProjectionRows(postgres_dsn)
        assert api.get("/readyz").json == {"status": "ready", "generation": 1}
        needed[1] = 7
        assert (api.get("/readyz").status, api.get("/readyz").code) == (503, "not-up-to-position")
        rows.advance(1, 7)
        assert api.get("/readyz").status == 200
        rows.close()


@pytest.mark.slow
def test_while_postgres_is_away(own_postgres_server: EmbeddedPostgres) -> None:
    rows = ProjectionRows(own_postgres_server.dsn)
    rows.deployment("dep", "user", "k", b"v")
    rows.close()
    with query_api(own_postgres_server.dsn) as api:
        assert api.get(VALUE).body == b"v"
        own_postgres_server.stop("immediate")
        for target in (VALUE, "/readyz", "/v1/instances"):
            answered = api.get(target)
            assert (answered.status, answered.code) == (503, "store-unavailable")
        assert api.get("/healthz").status == 200
        own_postgres_server.restart()
        assert api.get(VALUE).body == b"v"


def test_metrics(api: AsgiClient, rows: ProjectionRows) -> None:
    api.get(VALUE)
    api.get("/nowhere")
    text = api.get("/metrics").body.decode()
    route = "/deployments/{id}/kv/{namespace}/{key:rest}"
    assert f'kvfold_http_requests_total{{method="GET",route="{route}",status="404"}} 1.0' in text
    assert 'kvfold_http_requests_total{method="GET",route="none",status="404"} 1.0' in text
    assert f'kvfold_http_request_seconds_count{{route="{route}"}} 1.0' in text
    assert "kvfold_waiters 0.0" in text
    assert "kvfold_read_pool_size" in text
