"""The object store over HTTP under the contract: at a gateway, for every tier, and at `kvfold standalone`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from conformance.object_store_contract import ObjectStoreContract, fresh_namespace
from kvfold.producers.deployment import HttpStore, ObjectStore, RuntimeStore, open_object_store
from support.object_stores import running_gateway, running_standalone

if TYPE_CHECKING:
    from support.redis_server import RedisServer

__all__: list[str] = []


class _HttpContract(ObjectStoreContract):
    # A thread and a connection each; the gateway of the suite shares two cores with its projector and its servers.
    WRITERS = 20

    @pytest.fixture
    def store(self, url: str) -> Iterator[ObjectStore]:
        with closing(HttpStore(url, f"dep {uuid4().hex}/x")) as store:
            yield store

    @pytest.fixture
    def other_store(self, url: str) -> Iterator[ObjectStore]:
        with closing(HttpStore(url, f"dep-{uuid4().hex}")) as store:
            yield store

    @pytest.fixture(params=["", "_secrets", "_volatile"])
    def namespace(self, request: pytest.FixtureRequest) -> str:
        return fresh_namespace(request.param)

    @pytest.fixture(params=["", "_volatile"])
    def listed(self, request: pytest.FixtureRequest) -> str:
        return fresh_namespace(request.param)


@pytest.fixture(scope="module")
def gateway_url(
    postgres_admin_dsn: str, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running_gateway(postgres_admin_dsn, redis_server.url, tmp_path_factory.mktemp("gateway")) as url:
        yield url


@pytest.fixture(scope="module")
def standalone_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_standalone(tmp_path_factory.mktemp("standalone")) as url:
        yield url


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.row("D6", "D7", "D10")
class TestGateway(_HttpContract):
    @pytest.fixture
    def url(self, gateway_url: str) -> str:
        return gateway_url


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.row("D7", "D9")
class TestRuntimeInACluster(_HttpContract):
    """As a runtime opens it by its environment: the orchestrator's routes, and Redis dialled directly."""

    @pytest.fixture
    def store(self, gateway_url: str, redis_server: RedisServer) -> Iterator[RuntimeStore]:
        yield from _runtime(gateway_url, redis_server.url)

    @pytest.fixture
    def other_store(self, gateway_url: str, redis_server: RedisServer) -> Iterator[RuntimeStore]:
        yield from _runtime(gateway_url, redis_server.url)

    @pytest.fixture(params=["_secrets", "_volatile"])
    def namespace(self, request: pytest.FixtureRequest) -> str:
        return fresh_namespace(request.param)

    @pytest.mark.row("D9")
    def test_a_gateway_and_a_runtime_share_the_entries_of_one_redis(
        self, gateway_url: str, redis_server: RedisServer
    ) -> None:
        deployment_id = uuid4().hex
        environment = {
            "ORCHESTRATOR_URL": gateway_url,
            "OCTO_DEPLOYMENT_ID": deployment_id,
            "REDIS_URL": redis_server.url,
        }
        with (
            open_object_store(environment) as direct,
            closing(HttpStore(gateway_url, deployment_id)) as by_http,
        ):
            version = direct.put("user_volatile", "a:b/c", b"one")
            found = by_http.get("user_volatile", "a:b/c")
            assert found is not None and (found.value, found.version) == (b"one", version)
            assert by_http.put("user_volatile", "a:b/c", b"two", expected=version) == version + 1
            assert [item.key for item in direct.list("user_volatile").objects] == ["a:b/c"]
            direct.secrets.put("user", "token", b"s3cret")
            with redis_server.client() as client:
                assert list(client.scan_iter(match=f"octo:kv:{deployment_id}:*")) == [
                    f"octo:kv:{deployment_id}:user_volatile:a:b/c".encode()
                ]


def _runtime(url: str, redis_url: str) -> Iterator[RuntimeStore]:
    environment = {"ORCHESTRATOR_URL": url, "OCTO_DEPLOYMENT_ID": uuid4().hex, "REDIS_URL": redis_url}
    with open_object_store(environment) as store:
        yield store


@pytest.mark.row("D7", "D15")
class TestStandalone(_HttpContract):
    @pytest.fixture
    def url(self, standalone_url: str) -> str:
        return standalone_url
