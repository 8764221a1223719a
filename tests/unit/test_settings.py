"""Settings: variables with and without the prefix, and what a wrong one is told."""

from __future__ import annotations

import pytest

from kvfold.log.settings import Settings, variable_of
from kvfold.producers.deployment.redis_volatile import RedisVolatileTier
from kvfold.schemas.errors import ConfigurationError

__all__: list[str] = []


def test_redis_has_the_name_that_the_documents_give_it() -> None:
    settings = Settings.from_env({"REDIS_URL": "redis://:hush@127.0.0.1/0"})
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == "redis://:hush@127.0.0.1/0"
    assert "hush" not in repr(settings) + str(settings)
    assert variable_of("redis_url") == "REDIS_URL"
    assert variable_of("topic") == "KVFOLD_TOPIC"


@pytest.mark.parametrize("environment", [{}, {"REDIS_URL": ""}])
def test_an_empty_variable_of_the_documents_is_an_absent_one(environment: dict[str, str]) -> None:
    assert Settings.from_env(environment).redis_url is None


def test_the_same_with_the_prefix_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="KVFOLD_REDIS_URL is no setting of kvfold: it is REDIS_URL"):
        Settings.from_env({"KVFOLD_REDIS_URL": "redis://h"})


@pytest.mark.parametrize(
    "url", ["http://:hush@h", "hush", "redis://h:hush/0", "redis://h?socket_timeout=hush", "redis://:hush@[h"]
)
def test_a_url_that_is_none_names_the_variable_and_is_not_shown(url: str) -> None:
    with pytest.raises(
        ConfigurationError, match="REDIS_URL is a value that is not shown: accepted is"
    ) as caught:
        RedisVolatileTier(url)
    assert (
        "hush" not in str(caught.value) + repr(caught.value.__cause__) and caught.value.__suppress_context__
    )
