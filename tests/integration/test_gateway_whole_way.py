"""Writes and reads over HTTP the whole way: log in Postgres, real projector, real reads, one app."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections import Counter
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvfold.log.port import Log
from kvfold.schemas.names import check_capsule_key, check_deployment_key
from support.projectors import postgres_log, running_projector
from support.whole_way import Client, Headers, gateway, whole_way

__all__: list[str] = []

pytestmark = pytest.mark.postgres

DEPLOYMENT = "/deployments/dep/kv/user"
CAPSULE = "/v1/capsules/alice/notes/kv"


@pytest.mark.row("D6")
@pytest.mark.row("X5")
def test_a_plain_read_sees_every_write_of_the_same_gateway(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        for n in range(1, 30):
            written = await client(
                "PUT", f"{DEPLOYMENT}/k", b"%d" % n, headers=[("X-Object-Version", str(n - 1))]
            )
            assert (written.status, written.header("x-object-version")) == (201 if n == 1 else 200, str(n))
            read = await client("GET", f"{DEPLOYMENT}/k")
            assert (read.status, read.body) == (200, b"%d" % n)
            for name in ("x-object-version", "etag"):
                assert read.header(name) == written.header(name)
        event = {
            "specversion": "1.0",
            "type": "kvfold.deployment.deleted.v1",
            "id": str(uuid.uuid4()),
            "source": "/tests",
            "partitionkey": "d:dep",
            "subject": "k",
            "kvnamespace": "user",
        }
        headers = [("content-type", "application/cloudevents+json")]
        accepted = await client("POST", "/v1/mutations", json.dumps(event).encode(), headers=headers)
        assert accepted.status == 202
        assert (await client("GET", f"{DEPLOYMENT}/k")).status == 404
        location = accepted.header("location")
        assert location is not None
        decision = await client("GET", location)
        assert decision.json() == accepted.json() | {"status": "applied", "version": 29}
        assert (await client("PUT", f"{DEPLOYMENT}/k", b"")).header("x-object-version") == "30"
        empty = await client("GET", f"{DEPLOYMENT}/k")
        assert (empty.status, empty.body, empty.header("x-object-version")) == (200, b"", "30")

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("C15")
@pytest.mark.row("D13")
@pytest.mark.row("D16")
def test_capsules_objects_and_sweeps(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        written = await client("PUT", f"{CAPSULE}/k", b"1")
        tag = f'"{hashlib.sha256(b"1").hexdigest()}"'
        read = await client("GET", f"{CAPSULE}/k")
        assert written.header("etag") == read.header("etag") == tag
        assert (await client("GET", f"{CAPSULE}/k", headers=[("If-None-Match", tag)])).status == 304
        swapped = await client("PUT", f"{CAPSULE}/k", b"2", headers=[("If-Match", tag)])
        lost = await client("PUT", f"{CAPSULE}/k", b"3", headers=[("If-Match", tag)])
        assert (swapped.status, lost.status) == (200, 412)
        await client("PUT", f"{CAPSULE}/session.1", b"")
        cleared = await client("DELETE", "/v1/capsules/alice/notes/keys?prefix=session.")
        assert cleared.json() == {"removed": 1}
        keys = await client("GET", "/v1/capsules/alice/notes/keys")
        assert keys.json() == {"keys": ["k"], "next_cursor": None}

        target = "/deployments/dep/objects/a/b?namespace=user"
        body = json.dumps({"value": "/w==", "encoding": "base64"}).encode()
        assert (await client("PUT", target, body)).status == 201
        browsed = (await client("GET", target)).json()
        assert browsed == {"key": "a/b", "value": "/w==", "encoding": "base64", "version": 1}
        assert (await client("DELETE", "/deployments/dep")).json()["removed"] == 1
        assert (await client("GET", target)).status == 404
        assert (await client("GET", "/deployments/dep/namespaces")).json() == {
            "namespaces": ["user", "user_volatile"]
        }

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("D18")
def test_of_many_writers_with_one_expected_version_exactly_one_wins(postgres_dsn: str) -> None:
    attempts: list[tuple[str, list[Headers], int]] = [
        (f"{DEPLOYMENT}/a", [[], [("X-Object-Version", "1")], [("X-Object-Version", "2")]], 409),
        (
            f"{DEPLOYMENT}/b",
            [[("If-None-Match", "*")], [("If-Match", '"1"')], [("If-Match", '"2"')]],
            412,
        ),
        (f"{CAPSULE}/c", [[("If-None-Match", "*")]], 412),
    ]

    async def scenario(client: Client) -> None:
        for target, rounds, lost in attempts:
            for won, headers in enumerate(rounds, 1):
                answers = await asyncio.gather(
                    *(client("PUT", target, b"%d" % n, headers=headers) for n in range(24))
                )
                statuses = Counter(answer.status for answer in answers)
                assert statuses == {201 if won == 1 else 200: 1, lost: 23}
                winner = next(n for n, answer in enumerate(answers) if answer.status < 300)
                read = await client("GET", target)
                assert read.body == b"%d" % winner
                for answer in answers:
                    assert answer.header("x-object-version") == str(won)

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("X4")
def test_repeats_at_the_same_time_have_one_outcome(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        headers = [("Idempotency-Key", "one attempt")]
        answers = await asyncio.gather(
            *(client("PUT", f"{DEPLOYMENT}/k", b"v", headers=headers) for _ in range(20))
        )
        assert {(answer.status, answer.headers, answer.body) for answer in answers} == {
            (201, answers[0].headers, answers[0].body)
        }
        assert (await client("GET", f"{DEPLOYMENT}/k")).header("x-object-version") == "1"

    whole_way(postgres_dsn, scenario)


@pytest.mark.row("D5")
def test_what_was_written_is_read_back_under_the_same_url_and_listed_once(postgres_dsn: str) -> None:
    text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
    known = st.sampled_from(
        ["a/b", "//", ".", "..", "/../", "%2F", "%25", "a+b", " ", "?", "שלום", "\U0001f600"]
    )
    routes = ((DEPLOYMENT, check_deployment_key), (CAPSULE, check_capsule_key))

    async def written(client: Client, key: str, *, as_parameter: bool) -> None:
        for route, check in routes:
            spelt = quote(key, safe="" if as_parameter else "/+.:@")
            target = f"{route}?key={spelt}" if as_parameter else f"{route}/{spelt}"
            await client("DELETE", target)
            answer = await client("PUT", target, key.encode())
            if check(key) is not None:
                assert answer.status == (await client("GET", target)).status == 400
                continue
            assert answer.status in (200, 201)
            for spelling in (target, f"{route}/{quote(key, safe='')}", f"{route}?key={quote(key, safe='')}"):
                read = await client("GET", spelling)
                assert (read.status, read.body) == (200, key.encode())
            listing = await client(
                "GET",
                f"/v1/capsules/alice/notes/keys?prefix={quote(key, safe='')}"
                if route is CAPSULE
                else f"/deployments/dep/objects?namespace=user&prefix={quote(key, safe='')}",
            )
            found = listing.json()
            keys = found["keys"] if route is CAPSULE else [one["key"] for one in found["objects"]]
            assert keys.count(key) == 1
            assert (await client("DELETE", target)).status == 204
            assert (await client("GET", target)).status == 404

    async def scenario(client: Client) -> None:
        loop = asyncio.get_running_loop()

        @settings(deadline=None, max_examples=60)
        @given(key=known | text, as_parameter=st.booleans())
        def every_key(key: str, as_parameter: bool) -> None:
            coroutine = written(client, key, as_parameter=as_parameter)
            asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

        await asyncio.to_thread(every_key)

    whole_way(postgres_dsn, scenario)


def test_without_a_projector_a_write_is_503_and_its_repeat_has_the_outcome(postgres_dsn: str) -> None:
    async def undecided(log: Log) -> str:
        async with gateway(log, postgres_dsn, write_timeout_s=2.0) as client:
            answer = await client("PUT", f"{DEPLOYMENT}/k", b"v")
            assert (answer.status, answer.json()["code"]) == (503, "outcome-unknown")
            assert answer.header("retry-after") is not None
            assert answer.header("x-kvfold-position") == answer.json()["position"]
            mutation_id: str = answer.json()["mutation_id"]
            return mutation_id

    async def repeated(log: Log, mutation_id: str) -> None:
        async with gateway(log, postgres_dsn) as client:
            headers = [("Idempotency-Key", mutation_id)]
            answer = await client("PUT", f"{DEPLOYMENT}/k", b"v", headers=headers)
            assert (answer.status, answer.header("x-object-version")) == (201, "1")

    with postgres_log(postgres_dsn) as log:
        with running_projector(log, postgres_dsn):
            pass  # makes the tables
        mutation_id = asyncio.run(undecided(log))
        with running_projector(log, postgres_dsn):
            asyncio.run(repeated(log, mutation_id))


def test_reads_and_writes_share_one_document(postgres_dsn: str) -> None:
    async def scenario(client: Client) -> None:
        paths = (await client("GET", "/openapi.json")).json()["paths"]
        assert {"get", "put", "delete", "head"} <= paths["/deployments/{id}/kv/{namespace}/{key}"].keys()
        assert "post" in paths["/v1/mutations"]
        assert {"get", "delete"} <= paths["/v1/capsules/{principal}/{capsule_id}/keys"].keys()
        assert "delete" in paths["/deployments/{id}"]

    whole_way(postgres_dsn, scenario)
