"""A gateway over a real log, Postgres and Redis: secrets, the browser over both tiers, storage health, undeploy."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from kvfold.deploy.embedded_postgres import EmbeddedPostgres
from kvfold.deploy.serving import serving_app
from kvfold.log.port import Log
from kvfold.producers import mutations
from kvfold.producers.deployment.redis_volatile import RedisVolatileTier
from kvfold.producers.gateway.keyring import Keyring
from kvfold.query_api.serve import query_api_app, read_context
from kvfold.schemas.codec import encode
from kvfold.schemas.partitioning import partition_of
from support.asgi_client import Answered, AsgiClient
from support.kvfold_process import wait_until
from support.projectors import kafka_log, postgres_log, running_projector
from support.redis_server import RedisServer

__all__: list[str] = []

pytestmark = pytest.mark.postgres

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = b"planted-secret-4711-do-not-tell"
KEY = "/deployments/dep/kv/user_secrets/token"


@contextmanager
def gateway(
    log: Log, dsn: str, *, keyring: Keyring | None = None, redis_url: str | None = None
) -> Iterator[AsgiClient]:
    """Reads and writes as `kvfold gateway` serves them."""
    tier = None if redis_url is None else RedisVolatileTier(redis_url)
    try:
        with AsgiClient(serving_app(dsn, log, volatile=tier, secrets=keyring or Keyring(NEW))) as client:
            yield client
    finally:
        if tier is not None:
            tier.close()


@contextmanager
def whole(dsn: str, *, keyring: Keyring | None = None, redis_url: str | None = None) -> Iterator[AsgiClient]:
    """The same with an embedded log and a projector."""
    with (
        postgres_log(dsn) as log,
        running_projector(log, dsn),
        gateway(log, dsn, keyring=keyring, redis_url=redis_url) as client,
    ):
        yield client


def put(client: AsgiClient, target: str, value: bytes, *headers: tuple[str, str]) -> Answered:
    return client.request("PUT", target, headers, [value])


# --- secrets ---


@pytest.mark.row("D10")
@pytest.mark.row("D11")
def test_secrets_are_opened_at_the_gateway_alone(postgres_dsn: str) -> None:
    with whole(postgres_dsn) as client:
        for value in (SECRET, b"", bytes(range(256))):
            version = client.request("HEAD", KEY).headers.get("x-object-version", "0")
            assert put(client, KEY, value, ("X-Object-Version", version)).status in (200, 201)
            read = client.get(KEY)
            assert (read.status, read.body) == (200, value)
            assert client.request("HEAD", KEY).body == b""
            assert client.get(KEY, ("If-None-Match", read.headers["etag"])).status == 304
        assert client.get(f"{KEY}2").status == 404
        with AsgiClient(query_api_app(read_context(postgres_dsn, pool_size=2))) as reads:
            for target in (KEY, f"{KEY}2", "/deployments/dep/kv/user_secrets?key=token"):
                refused = reads.get(target)
                assert (refused.status, refused.code) == (503, "encryption-key-missing")
            assert reads.get("/deployments/dep/kv/user/k").status == 404  # plain ones keep working


@pytest.mark.row("D10")
def test_ciphertext_that_is_moved_does_not_decrypt(postgres_dsn: str) -> None:
    keyring = Keyring(NEW)
    envelope = keyring.seal("d:dep", "user_secrets", "token", SECRET)
    places = [
        ("d:dep", "user_secrets", "other"),
        ("d:dep", "x_secrets", "token"),
        ("d:2", "user_secrets", "token"),
    ]
    with postgres_log(postgres_dsn) as log, running_projector(log, postgres_dsn):
        count = log.describe().partition_count
        with gateway(log, postgres_dsn, keyring=keyring) as client:
            # What somebody with access to the topic could do: the fold sees the form alone, and accepts it.
            for number, (scope, namespace, key) in enumerate([*places, ("d:dep", "user_secrets", "token")]):
                mutation = mutations.deployment_put(
                    scope,
                    namespace,
                    key,
                    envelope,
                    mutation_id=f"0190a0b0-0000-7000-8000-00000000000{number}",
                )
                partition = partition_of(scope.encode(), count)
                log.append(partition, encode(mutation)).result(10)
                assert client.get(f"/v1/mutations/{mutation.id}?wait=10").json["status"] == "applied"
            for scope, namespace, key in places:
                moved = client.get(f"/deployments/{scope[2:]}/kv/{namespace}/{key}")
                assert (moved.status, moved.code) == (500, "secret-unreadable")
                assert SECRET not in moved.body and b"KVS1" not in moved.body
            assert client.get(KEY).body == SECRET


def _everything_in(dsn: str) -> bytes:
    """Every row of every table of the database, as text; bytes are hexadecimal there."""
    found = io.BytesIO()
    with psycopg.connect(dsn, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT schemaname, relname FROM pg_stat_user_tables ORDER BY 1, 2"
        ).fetchall()
        assert any(name == "deployment_entry" for _, name in tables)
        for schema, name in tables:
            for (row,) in connection.execute(f'SELECT t::text FROM "{schema}"."{name}" t'):
                found.write(row.encode() + b"\n")
    return found.getvalue()


def _records_of(log: Log) -> list[bytes]:
    reader = log.reader()
    bounds = log.bounds(range(log.describe().partition_count))
    reader.assign({partition: bound.start for partition, bound in bounds.items()})
    ends = {partition: bound.stable_end for partition, bound in bounds.items() if bound.stable_end}
    found: list[bytes] = []

    def read_on() -> bool:
        for batch in reader.poll(timeout_ms=100, records_max=1_000, bytes_max=1 << 24):
            for record in batch.records:
                headers = b"".join(name.encode() + value for name, value in record.headers)
                found.append(b"".join((record.key or b"", headers, record.value or b"")))
            if batch.offset_next >= ends.get(batch.partition, 0):
                ends.pop(batch.partition, None)
        return not ends

    wait_until(read_on, what=lambda: f"partitions left to read: {ends}")
    reader.close()
    return found


@pytest.mark.kafka
@pytest.mark.row("D10")
def test_a_planted_secret_is_found_nowhere(
    kafka_bootstrap: str,
    own_postgres_server: EmbeddedPostgres,
    redis_server: RedisServer,
    redis_url: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    dsn = own_postgres_server.dsn
    answers: list[Answered] = []
    with capture_logs() as logs, kafka_log(kafka_bootstrap) as log, running_projector(log, dsn):
        with gateway(log, dsn, keyring=Keyring(OLD), redis_url=redis_url) as client:
            answers.append(put(client, KEY, SECRET))
            answers.append(put(client, KEY, SECRET, ("X-Object-Version", "7")))  # a conflict
            answers.append(put(client, KEY, SECRET, ("X-Object-Version", "x")))
            answers.append(put(client, "/deployments/dep/kv/user_secrets/a%00b", SECRET))
            answers.append(put(client, "/deployments/dep/kv/user_secrets_volatile/k", SECRET))
            answers.append(put(client, "/deployments/dep/kv/a%0Ab_secrets/k", SECRET))
            target = "/deployments/dep/objects/k?namespace=user_secrets"
            answers.append(put(client, target, b'{"value":"%s","encoding":"utf8"}' % SECRET))
            answers.append(_post_event(client, "user_secrets", SECRET, structured=True))
            answers.append(_post_event(client, "user_secrets", SECRET, structured=False))
            answers.append(_post_event(client, "user_secrets_volatile", SECRET, structured=True))
            assert [answer.status for answer in answers[-3:]] == [201, 201, 400]
        with gateway(log, dsn, keyring=Keyring(NEW, [OLD]), redis_url=redis_url) as client:
            done = client.request("POST", "/deployments/dep/reencrypt")
            assert (done.status, done.json["reencrypted"]) == (200, 3)
            assert client.get(KEY).body == SECRET
            answers += [done, client.get("/metrics"), client.get("/deployments/dep/namespaces")]
            answers += [
                client.get("/deployments/dep/storage-health"),
                client.get("/v1/history/deployment/d:dep"),
            ]
            answers += [client.get("/openapi.json"), client.request("DELETE", KEY)]
        with gateway(log, dsn, keyring=Keyring(NEW)) as client:
            answers.append(client.get(KEY))
        records = _records_of(log)
    assert len(records) >= 6 and any(b"KVS1" in record for record in records)
    with redis_server.client() as client_:
        redis_names = b"".join(client_.scan_iter("*"))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    tables = _everything_in(dsn)
    assert b"user_secrets" in tables
    written = capfd.readouterr()
    heaps = {
        "the topic": b"\n".join(records),
        "the tables": tables,
        "the answers": b"\n".join(answer.body + repr(answer.headers).encode() for answer in answers),
        "Redis": redis_names,
        "the logs": repr(logs).encode() + written.out.encode() + written.err.encode(),
        **_files_below(own_postgres_server.log_file.parent),
    }
    shapes = (
        SECRET,
        SECRET.hex().encode(),
        base64.b64encode(SECRET)[:-4],
        OLD,
        NEW,
        base64.b64encode(OLD)[:40],
    )
    found = [(where, shape) for where, heap in heaps.items() for shape in shapes if shape in heap]
    assert found == []


def _files_below(folder: Path) -> dict[str, bytes]:
    """Every file of Postgres's: tables, write-ahead log, server log."""
    found = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert any("pg_wal" in name for name in found)
    return found


def _post_event(client: AsgiClient, namespace: str, value: bytes, *, structured: bool) -> Answered:
    attributes = {
        "specversion": "1.0",
        "id": f"0190a0b0-0000-7000-9000-00000000000{int(structured)}",
        "type": "kvfold.deployment.put.v1",
        "source": "/tests",
        "partitionkey": "d:dep",
        "subject": f"event-{structured}",
        "kvnamespace": namespace,
    }
    if structured:
        members = ",".join(f'"{name}":"{text}"' for name, text in attributes.items())
        body = f'{{{members},"data_base64":"{base64.b64encode(value).decode()}"}}'.encode()
        headers = [("Content-Type", "application/cloudevents+json")]
    else:
        body = value
        headers = [
            ("Content-Type", "text/plain"),
            *((f"ce-{name}", text) for name, text in attributes.items()),
        ]
    return client.request("POST", "/v1/mutations?wait=10", headers, [body])


@pytest.mark.row("D10")
def test_a_new_key_and_reencryption(postgres_dsn: str) -> None:
    secrets = {f"/deployments/dep/kv/{name}_secrets/k{n}": b"%d" % n for name in ("a", "b") for n in range(3)}
    reencrypt = "/deployments/dep/reencrypt"
    with whole(postgres_dsn, keyring=Keyring(OLD)) as client:
        for target, value in secrets.items():
            assert put(client, target, value).status == 201
        assert put(client, "/deployments/other/kv/a_secrets/k0", SECRET).status == 201
        assert put(client, "/deployments/dep/kv/user/plain", b"v").status == 201
    with whole(postgres_dsn, keyring=Keyring(NEW)) as client:
        refused = client.get(next(iter(secrets)))
        assert (refused.status, refused.code) == (503, "encryption-key-missing")
        done = client.request("POST", reencrypt).json
        assert (done["checked"], done["reencrypted"], len(done["unopened"])) == (6, 0, 6)
        assert done["unopened"][0] == {
            "namespace": "a_secrets",
            "key": "k0",
            "code": "encryption-key-missing",
        }
    with whole(postgres_dsn, keyring=Keyring(NEW, [OLD])) as client:
        first = next(iter(secrets))
        assert put(client, first, b"new", ("X-Object-Version", "1")).status == 200  # sealed with the new key
        done = client.request("POST", reencrypt).json
        assert done == {"checked": 6, "reencrypted": 5, "changed": 0, "unopened": [], "next_cursor": None}
        again = client.request("POST", reencrypt).json
        assert (again["checked"], again["reencrypted"]) == (6, 0)
        bad = client.request("POST", f"{reencrypt}?cursor=e30%3D")
        assert (bad.status, bad.code) == (400, "malformed-cursor")
    with whole(postgres_dsn, keyring=Keyring(NEW)) as client:
        for target, value in secrets.items():
            read = client.get(target)
            assert (read.body, read.headers["x-object-version"]) == (
                b"new" if target == first else value,
                "2",
            )
        assert (
            client.get("/deployments/other/kv/a_secrets/k0").status == 503
        )  # another deployment's are its own
        assert client.get("/deployments/dep/kv/user/plain").headers["x-object-version"] == "1"


@pytest.mark.row("D10")
def test_reencryption_goes_by_pages(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvfold.producers.gateway.reencrypting.SECRETS_A_PAGE_MAX", 2)
    targets = [f"/deployments/dep/kv/{name}/k{n}" for name in ("a_secrets", "b_secrets") for n in range(3)]
    with whole(postgres_dsn, keyring=Keyring(OLD)) as client:
        for target in targets:
            assert put(client, target, SECRET).status == 201
    with whole(postgres_dsn, keyring=Keyring(NEW, [OLD])) as client:
        pages: list[dict[str, Any]] = []
        cursor = ""
        while not pages or pages[-1]["next_cursor"] is not None:
            pages.append(client.request("POST", f"/deployments/dep/reencrypt{cursor}").json)
            cursor = f"?cursor={str(pages[-1]['next_cursor']).replace('=', '%3D')}"
        assert [page["reencrypted"] for page in pages] == [2, 2, 2]
        assert all(client.get(target).body == SECRET for target in targets)


# --- both tiers ---


@pytest.mark.row("D8")
@pytest.mark.row("D13")
def test_the_browser_shows_both_tiers(postgres_dsn: str, redis_url: str) -> None:
    base = "/deployments/dep"
    with whole(postgres_dsn, redis_url=redis_url) as client:
        assert client.get(f"{base}/namespaces").json == {"namespaces": ["user", "user_volatile"]}
        for namespace in ("user", "user_volatile", "user_secrets", "system", "system_volatile"):
            for key in ("a/1", "a/2", "a/3", "b_%", "ü"):
                assert (
                    put(client, f"{base}/kv/{namespace}?key={key.replace('%', '%25')}", b"\xff").status == 201
                )
        assert client.get(f"{base}/namespaces").json == {"namespaces": ["user", "user_volatile"]}
        for namespace in ("user", "user_volatile"):
            objects = f"{base}/objects?namespace={namespace}"
            keys = [item["key"] for item in client.get(objects).json["objects"]]
            assert keys == ["a/1", "a/2", "a/3", "b_%", "ü"]
            page = client.get(f"{objects}&prefix=a/&limit=2").json
            assert ([item["key"] for item in page["objects"]], page["next_cursor"]) == (["a/1", "a/2"], "a/2")
            page = client.get(f"{objects}&prefix=a/&limit=2&cursor=a/2").json
            assert ([item["key"] for item in page["objects"]], page["next_cursor"]) == (["a/3"], None)
            one = client.get(f"{base}/objects/a/1?namespace={namespace}")
            assert (one.json["value"], one.json["encoding"]) == ("/w==", "base64")
            assert str(one.json["version"]) == one.headers["x-object-version"]
            read = client.get(f"{base}/kv/{namespace}/a/1")
            assert (read.body, read.headers["x-object-version"]) == (b"\xff", one.headers["x-object-version"])
            assert client.get(f"{base}/kv/{namespace}/none").status == 404
        for target in ("objects?", "objects/a/1?"):
            refused = client.get(f"{base}/{target}namespace=user_secrets")
            assert (refused.status, refused.code) == (400, "invalid-namespace")
        for namespace in ("user_secrets_volatile", "user_volatile_secrets"):
            for target in (
                f"kv/{namespace}/k",
                f"objects?namespace={namespace}",
                f"objects/k?namespace={namespace}",
            ):
                assert client.get(f"{base}/{target}").code == "secret-and-volatile"


@pytest.mark.row("D16")
@pytest.mark.row("D14")
def test_redis_away_and_back(postgres_dsn: str, own_redis_server: RedisServer) -> None:
    base = "/deployments/dep"
    with whole(postgres_dsn, redis_url=own_redis_server.url) as client:
        for namespace in ("user", "user_secrets", "user_volatile"):
            assert put(client, f"{base}/kv/{namespace}/k", b"v").status == 201
        own_redis_server.kill()
        away = (503, "volatile-unavailable")
        for answer in (
            client.get(f"{base}/kv/user_volatile/k"),
            put(client, f"{base}/kv/user_volatile/k2", b"v"),
            client.request("DELETE", f"{base}/kv/user_volatile/k"),
            client.get(f"{base}/objects?namespace=user_volatile"),
        ):
            assert (answer.status, answer.code) == away
        assert client.get(f"{base}/kv/user/k").body == b"v"
        assert client.get(f"{base}/kv/user_secrets/k").body == b"v"
        assert client.get(f"{base}/namespaces").json == {"namespaces": ["user", "user_volatile"]}
        health = client.get(f"{base}/storage-health").json
        assert (health["volatile"]["status"], health["volatile"]["code"]) == ("unavailable", away[1])
        assert (health["persistent"]["status"], health["persistent"]["projector"]["lag_records"]) == ("ok", 0)
        swept = client.request("DELETE", base)
        assert (swept.status, swept.json["complete"]) == (200, False)
        assert (swept.json["persistent"]["removed"], swept.json["volatile"]["status"]) == (2, "failed")
        own_redis_server.restart()
        assert put(client, f"{base}/kv/user_volatile/k", b"v").status == 201
        swept = client.request("DELETE", base)
        assert (swept.json["complete"], swept.json["removed"]) == (True, 1)
        for namespace in ("user", "user_secrets", "user_volatile"):
            assert client.get(f"{base}/kv/{namespace}/k").status == 404


@pytest.mark.row("D14")
def test_storage_health(postgres_dsn: str, redis_url: str) -> None:
    target = "/deployments/dep/storage-health"
    with whole(postgres_dsn, redis_url=redis_url) as client:
        for namespace in ("user", "user_volatile"):
            assert put(client, f"/deployments/dep/kv/{namespace}/k", b"v").status == 201
            assert client.get(f"/deployments/dep/kv/{namespace}/k").status == 200
        health = client.get(target).json
        persistent, volatile = health["persistent"], health["volatile"]
        assert persistent["pool"]["size"] >= 1 and persistent["pool"]["waiting"] == 0
        assert persistent["store"]["bytes"] > 0 and persistent["store"]["rows"] >= 0
        assert persistent["projector"] == {"lag_records": 0, "paused_partitions": []}
        assert (volatile["status"], volatile["keys"]) == ("ok", 1)
        assert volatile["memory_used_bytes"] > 0 and 0 < volatile["hit_rate"] <= 1
    with AsgiClient(query_api_app(read_context(postgres_dsn, pool_size=2))) as reads:
        health = reads.get(target).json
        assert health["volatile"]["status"] == "none"
        assert health["persistent"]["projector"]["lag_records"] is None


@pytest.mark.row("D14")
def test_storage_health_without_postgres(own_postgres_server: EmbeddedPostgres, redis_url: str) -> None:
    with whole(own_postgres_server.dsn, redis_url=redis_url) as client:
        assert put(client, "/deployments/dep/kv/user/k", b"v").status == 201
    tier = RedisVolatileTier(redis_url)
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    with (
        postgres_log(own_postgres_server.dsn) as log,
        AsgiClient(serving_app(nowhere, log, volatile=tier)) as client,
    ):
        health = client.get("/deployments/dep/storage-health")
    tier.close()
    assert health.status == 200
    assert health.json["persistent"]["status"] == "unavailable"
    assert health.json["persistent"]["code"] == "store-unavailable"
    assert health.json["volatile"]["status"] == "ok"


@pytest.mark.row("D18")
@pytest.mark.parametrize("namespace", ["user", "user_secrets", "user_volatile"])
def test_a_hundred_writers_of_one_version(postgres_dsn: str, redis_url: str, namespace: str) -> None:
    target = f"/deployments/dep/kv/{namespace}/k"
    with (
        postgres_log(postgres_dsn) as log,
        running_projector(log, postgres_dsn),
        gateway(log, postgres_dsn, redis_url=redis_url) as client,
        gateway(log, postgres_dsn, redis_url=redis_url) as other,
        ThreadPoolExecutor(100) as writers,
    ):
        replicas = (client, other)
        version = "0"
        for _ in range(3):
            answers = list(
                writers.map(
                    lambda n, expected=version: put(
                        client, target, b"%d" % n, ("X-Object-Version", expected)
                    ),
                    range(100),
                )
            )
            won = [(n, answer) for n, answer in enumerate(answers) if answer.status in (200, 201)]
            assert [answer.status for answer in answers if answer.status >= 300] == [409] * 99
            ((winner, answer),) = won
            read = replicas[winner % 2].get(target)
            assert (read.body, read.headers["x-object-version"]) == (
                b"%d" % winner,
                answer.headers["x-object-version"],
            )
            assert int(answer.headers["x-object-version"]) > int(version)
            version = answer.headers["x-object-version"]
