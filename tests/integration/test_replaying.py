"""A generation beside the serving one: folded up to given offsets, and dropped (row X6)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack
from itertools import count
from threading import Thread
from typing import Any

import psycopg
import pytest

from kvfold.log.port import Log
from kvfold.projector.dropping import DropDelayedError, drop_generation
from kvfold.projector.generations import (
    GenerationStateError,
    create_generation,
    find_generation,
    list_generations,
)
from kvfold.projector.loops import CommitCheckError
from kvfold.projector.pace import Pace
from kvfold.projector.replaying import ReplayPausedError, next_offsets, replay
from kvfold.projector.run import ProjectorSettings
from kvfold.projector.views import shown_generation
from support.projection import (
    append_all,
    content,
    differences,
    eventually,
    fold_in_memory,
    read_log,
    store_for,
    wait_until_folded,
)
from support.projectors import kafka_log, postgres_log, running_projector, some_records

pytestmark = pytest.mark.postgres
PARTITIONS = 3
_owners = count(1)


@pytest.fixture(params=["postgres", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    with ExitStack() as stack:
        if request.param == "kafka":
            opened: Log = stack.enter_context(kafka_log(request.getfixturevalue("kafka_bootstrap")))
        else:
            opened = stack.enter_context(postgres_log(request.getfixturevalue("postgres_dsn")))
        yield opened


def settings() -> ProjectorSettings:
    return ProjectorSettings(owner=f"replay-{next(_owners)}", claim_ms=5_000, turn_ms=100)


def test_it_stands_exactly_at_the_offsets_asked_for(
    log: Log, postgres_dsn: str, connection: psycopg.Connection[Any]
) -> None:
    append_all(log, some_records(1, 300))
    generation = create_generation(connection, "scratch")
    records, ends = read_log(log)
    for share in (0, 2, 1):  # nothing at all, half of it, all of it
        until = {p: end // share if share else 0 for p, end in ends.items()}
        replay(log, postgres_dsn, generation=generation, until=until, settings=settings())
        assert next_offsets(connection, generation) == until
        before = {p: [r for r in kept if r.offset < until[p]] for p, kept in records.items()}
        store = store_for(postgres_dsn, generation=generation)
        expected = content(fold_in_memory(before, until), range(PARTITIONS))
        assert differences(expected, content(store, range(PARTITIONS))) == {}
        store.close()
    # The serving generation is as empty as before.
    assert set(next_offsets(connection, 1).values()) == {0}


def test_projectors_leave_a_scratch_generation_alone(
    log: Log, postgres_dsn: str, connection: psycopg.Connection[Any]
) -> None:
    generation = create_generation(connection, "scratch")
    append_all(log, some_records(2, 60))
    with running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
        assert set(next_offsets(connection, generation).values()) == {0}
        connection.execute("UPDATE kvfold.generation SET state = 'verified' WHERE id = %s", (generation,))
        wait_until_folded(postgres_dsn, log, generation=generation)


def test_a_failing_check_stops_it_by_name(
    log: Log, postgres_dsn: str, connection: psycopg.Connection[Any]
) -> None:
    class Check:
        def committed(self, partition: int, offset_next: int) -> None:
            raise CommitCheckError(f"no good up to {offset_next}", code="no-good")

        def close(self) -> None:
            pass

    append_all(log, some_records(3, 60))
    generation = create_generation(connection, "scratch")
    _, ends = read_log(log)
    with pytest.raises(ReplayPausedError, match="no good up to") as stopped:
        replay(log, postgres_dsn, generation=generation, until=ends, settings=settings(), new_check=Check)
    assert stopped.value.code == "no-good"


def test_it_can_be_stopped_and_goes_on(
    log: Log, postgres_dsn: str, connection: psycopg.Connection[Any]
) -> None:
    append_all(log, some_records(4, 200))
    generation = create_generation(connection, "scratch")
    _, ends = read_log(log)
    folded: dict[int, int] = {}
    with pytest.raises(CancelledError):
        replay(
            log,
            postgres_dsn,
            generation=generation,
            until=ends,
            settings=settings(),
            pace=Pace(40.0),
            told=folded.update,
            should_stop=lambda: any(folded.values()),
        )
    assert next_offsets(connection, generation) != ends
    replay(log, postgres_dsn, generation=generation, until=ends, settings=settings())
    assert next_offsets(connection, generation) == ends


class TestDrop:
    def test_the_serving_one_is_refused(self, connection: psycopg.Connection[Any]) -> None:
        with pytest.raises(GenerationStateError, match="generation 1 serves"):
            drop_generation(connection, 1)
        assert find_generation(connection, 1).state == "serving"

    def test_an_unknown_one_is_refused(self, connection: psycopg.Connection[Any]) -> None:
        with pytest.raises(GenerationStateError, match=r"no generation 7: there are 1 \(serving\)"):
            drop_generation(connection, 7)

    def test_projectors_let_go_of_it_and_go_on_with_the_rest(
        self, log: Log, postgres_dsn: str, connection: psycopg.Connection[Any]
    ) -> None:
        generation = create_generation(connection, "scratch")
        connection.execute("UPDATE kvfold.generation SET state = 'retired' WHERE id = %s", (generation,))
        append_all(log, some_records(5, 60))
        with running_projector(log, postgres_dsn) as projector:
            wait_until_folded(postgres_dsn, log, generation=generation)
            drop_generation(connection, generation)
            append_all(log, some_records(6, 60))
            wait_until_folded(postgres_dsn, log)
            assert projector.telemetry._faults == {}
        assert [found.id for found in list_generations(connection)] == [1]
        assert connection.execute("SELECT to_regnamespace('kvfold_g2')").fetchone() == (None,)

    def test_a_long_query_delays_it_and_is_named(
        self, postgres_dsn: str, connection: psycopg.Connection[Any]
    ) -> None:
        generation = create_generation(connection, "scratch")
        with psycopg.connect(postgres_dsn, application_name="a long report") as long:
            long.execute(f"SELECT count(*) FROM kvfold_g{generation}.decision")
            with pytest.raises(DropDelayedError, match="a long report"):
                drop_generation(connection, generation, wait_s=0.0)
            assert find_generation(connection, generation).state == "dropping"
            drop = Thread(target=drop_generation, args=(connection, generation))
            drop.start()
            long.rollback()
            drop.join()
        assert [found.id for found in list_generations(connection)] == [1]

    def test_a_number_never_comes_back(self, connection: psycopg.Connection[Any]) -> None:
        first = create_generation(connection, "scratch")
        drop_generation(connection, first)
        assert create_generation(connection, "scratch") > first


def test_the_views_show_the_serving_generation(
    log: Log, postgres_dsn: str, connection: psycopg.Connection[Any]
) -> None:
    assert shown_generation(connection) == 1
    append_all(log, some_records(7, 30))
    with running_projector(log, postgres_dsn):
        wait_until_folded(postgres_dsn, log)
    row = connection.execute("SELECT count(*) FROM kvfold.decision").fetchone()
    eventually(lambda: row is not None and row[0] == 30, "a decision each")
