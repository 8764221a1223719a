"""Every route of gateway and query API, fuzzed against its own OpenAPI document: no 500, no status that it does not name."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvfold.deploy.serving import serving_app
from kvfold.producers.deployment.memory_volatile import MemoryVolatileTier
from kvfold.producers.gateway.keyring import Keyring
from support.asgi_client import AsgiClient
from support.projectors import postgres_log, running_projector

__all__: list[str] = []

EXAMPLES_AN_OPERATION = 12
# Streams that do not end by themselves; they have tests of their own.
ENDLESS = {"/v1/watch"}


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.row("D6")
def test_no_route_answers_what_it_does_not_document(postgres_dsn: str) -> None:
    tier = MemoryVolatileTier()
    with (
        postgres_log(postgres_dsn) as log,
        running_projector(log, postgres_dsn),
        AsgiClient(serving_app(postgres_dsn, log, volatile=tier, secrets=Keyring(b"k" * 32))) as client,
    ):
        schema: Any = schemathesis.openapi.from_dict(client.get("/openapi.json").json)
        asked: dict[str, set[int]] = {}
        for result in schema.get_all_operations():
            operation = result.ok()
            if operation.path not in ENDLESS:
                asked[operation.label] = _fuzz(client, operation)
    assert len(asked) >= 30
    seen = set().union(*asked.values())
    assert {200, 201, 204, 400, 404} <= seen, "the requests went deep enough"


def _fuzz(client: AsgiClient, operation: Any) -> set[int]:
    documented = {int(status) for status in operation.definition.raw["responses"]}
    seen = set[int]()

    @settings(
        max_examples=EXAMPLES_AN_OPERATION,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), waits=st.just(0))
    def ask(case: Any, waits: int) -> None:
        query = {name: str(value) for name, value in (case.query or {}).items()}
        if "wait" in query:
            query["wait"] = str(waits)
        target = case.formatted_path + (f"?{urlencode(query)}" if query else "")
        headers = [(name, str(value)) for name, value in (case.headers or {}).items() if str(value).isascii()]
        if case.media_type:
            headers.append(("Content-Type", case.media_type))
        answer = client.request(case.method, target, headers, [_bytes(case)])
        seen.add(answer.status)
        assert answer.status != 500, (case.method, target, answer.body)
        assert answer.status in documented, (case.method, target, answer.status, answer.body)

    ask()
    return seen


def _bytes(case: Any) -> bytes:
    body = case.body
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if type(body).__name__ in ("NotSet", "Binary"):
        return bytes(getattr(body, "data", b""))
    return json.dumps(body).encode()
