"""Rebuilds as `kvfold rebuild` runs them, and the comparison of generations row by row."""

from __future__ import annotations

from collections.abc import Iterable

from kvfold.deploy.rebuilding import RebuildOptions, run_rebuild
from kvfold.deploy.stopping import StopRequest
from kvfold.log.kafka_settings import KafkaSettings
from kvfold.log.settings import Settings
from kvfold.projector.rebuilding import Rebuild
from support.projection import Content, content, differences, store_for

__all__ = ["generation_content", "rebuilt", "same_rows", "settings_of"]


def settings_of(dsn: str, kafka: KafkaSettings | None = None) -> Settings:
    """The settings of a command on this database, and on this topic where there is one."""
    environment = {"KVFOLD_POSTGRES": dsn, "KVFOLD_CLAIM_MS": "5000"}
    if kafka is not None:
        environment |= {"KVFOLD_KAFKA": str(kafka.bootstrap_servers), "KVFOLD_TOPIC": kafka.topic}
    return Settings.from_env(environment)


def rebuilt(
    settings: Settings,
    *,
    workers: int = 1,
    rate: float | None = None,
    to_position: str | None = None,
    stop: StopRequest | None = None,
) -> Rebuild:
    """Runs a rebuild to its end."""
    return run_rebuild(settings, RebuildOptions(workers, rate, to_position), stop or StopRequest())


def generation_content(dsn: str, generation: int, partitions: Iterable[int]) -> Content:
    """Every row of a generation but its claims."""
    store = store_for(dsn, generation=generation)
    try:
        return content(store, partitions)
    finally:
        store.close()


def same_rows(dsn: str, left: int, right: int, partitions: int) -> dict[str, tuple[int, int, list[str]]]:
    """The tables in which two generations differ; empty where they are the same, byte for byte."""
    return differences(
        generation_content(dsn, left, range(partitions)), generation_content(dsn, right, range(partitions))
    )
