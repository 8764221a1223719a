"""Fuzz: every record has a decision, and how records are cut into batches changes nothing."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvfold.projector.batch import prepare, project
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.needs import needs
from kvfold.projector.tables import DecisionRow
from kvfold.schemas.form import Formed
from kvfold.schemas.outcome import CONFLICT_CODES, REJECTION_CODES
from kvfold.schemas.record import NewRecord, Record
from kvfold.schemas.types import MUTATION_TYPES
from support.given import check_usage, fold_all, snapshot
from support.mutations import CAPSULE, DEPLOYMENT, INSTANCE, mutation_id
from support.workload import Workload

__all__: list[str] = []

_names = st.sampled_from(
    [
        "ce_specversion",
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_subject",
        "ce_kvnamespace",
        "ce_kvexpected",
        "content-type",
    ]
) | st.text(max_size=6)
_bytes = st.binary(max_size=12) | st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass"))
_keys = (
    st.none()
    | _bytes
    | st.sampled_from([CAPSULE.encode(), DEPLOYMENT.encode(), INSTANCE.encode(), b"s:0", b"k" * 513])
)
_bodies = st.sampled_from(
    [b'{"level":9}', b'{"name":"n","mode":"external"}', b'{"bytes_max":1}', b'{"execution_ids":[2]}']
)


@st.composite
def _records(draw: st.DrawFn) -> NewRecord:
    """Anything at all, or something near to a mutation."""
    near = [
        ("ce_specversion", b"1.0"),
        ("ce_id", mutation_id(draw(st.integers(1, 3))).encode()),
        ("ce_source", b"/s"),
        ("ce_type", draw(st.sampled_from(sorted(MUTATION_TYPES))).encode()),
        ("ce_subject", draw(st.sampled_from([b"k", b"a\x00", b"", b"\x1f"]))),
        ("ce_kvnamespace", draw(st.sampled_from([b"user", b"x_secrets", b"v_volatile"]))),
        ("ce_kvexpected", draw(st.sampled_from([b"any", b"absent", b"version:1", b"x"]))),
    ]
    kept = [header for header in near if draw(st.integers(0, 7))]
    headers = kept + draw(st.lists(st.tuples(_names, _bytes), max_size=2))
    return NewRecord(draw(_keys), tuple(headers), draw(st.none() | _bytes | _bodies))


def _placed(drawn: list[NewRecord], times: list[int]) -> list[Record]:
    pairs = zip(count(), drawn, strict=False)
    return [Record(0, n, times[n % len(times)], new.key, new.headers, new.value) for n, new in pairs]


def _check_decisions(store: MemoryStore, records: list[Record]) -> None:
    rows = [DecisionRow(*row) for row in store.rows("decision")]  # type: ignore[arg-type]
    assert [row.record_offset for row in rows] == [record.offset for record in records]
    for row in rows:
        codes = {"applied": {None}, "conflict": CONFLICT_CODES, "rejected": REJECTION_CODES}[row.status]
        assert row.code in codes
        assert not any("\x00" in text for text in row if isinstance(text, str))
    times = [row.time_ms for row in rows]
    assert times == sorted(times)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_records(), max_size=12), st.lists(st.integers(-5, 10**13), min_size=1, max_size=5))
def test_every_record_has_a_decision_whatever_it_holds(drawn: list[NewRecord], times: list[int]) -> None:
    records = _placed(drawn, times)
    store = MemoryStore()
    fold_all(store, prepare(records, 1), 0)
    _check_decisions(store, records)
    check_usage(store)


@pytest.mark.row("X2")
@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 10**9), min_size=1, max_size=7))
def test_batches_of_one_seven_and_a_thousand_give_the_same(chance: Random, times: list[int]) -> None:
    workload = Workload(chance)
    records = _placed([workload.draw()[1] for _ in range(120)], times)
    stores = []
    for size in (1, 7, 1_000):
        store = MemoryStore()
        for begin in range(0, len(records), size):
            fold_all(store, prepare(records[begin : begin + size], 1), 0)
        stores.append(store)
    _check_decisions(stores[0], records)
    check_usage(stores[0])
    assert snapshot(stores[1]) == snapshot(stores[0])
    assert snapshot(stores[2]) == snapshot(stores[0])
    assert {store.state(0) for store in stores} == {stores[0].state(0)}


@pytest.mark.row("C10")
@pytest.mark.parametrize("seed", range(20))
def test_usage_equals_a_recount_after_every_record(seed: int) -> None:
    """Row C10: after any mix of overwrite, delete, clear, quota and refused writes."""
    workload = Workload(Random(seed))
    store = MemoryStore()
    for offset in range(200):
        new = workload.draw()[1]
        fold_all(store, prepare([Record(0, offset, offset, new.key, new.headers, new.value)], 1), 0)
        check_usage(store)


@pytest.mark.row("D2")
@pytest.mark.parametrize("seed", range(20))
def test_deployment_versions_grow_and_never_come_back(seed: int) -> None:
    workload = Workload(Random(seed))
    store = MemoryStore()
    drawn = [workload.draw()[1] for _ in range(400)]
    fold_all(store, prepare(_placed(drawn, [1]), 1), 0)
    seen: dict[tuple[object, ...], int] = {}
    for row in map(DecisionRow._make, store.rows("decision")):
        if row.status != "applied" or row.type != "kvfold.deployment.put.v1" or row.repeat_of is not None:
            continue
        key = (row.scope, row.namespace, row.subject)
        assert row.version is not None and row.version > seen.get(key, 0)
        seen[key] = row.version
    assert seen


def test_the_order_of_what_a_batch_changes_is_the_logs() -> None:
    """Puts, additions and removals come out in one order on every run: Postgres is fed in that order."""
    workload = Workload(Random(5))
    steps = prepare(_placed([workload.draw()[1] for _ in range(60)], [1]), 1)
    chunk = [step for step in steps if not (isinstance(step[1], Formed) and step[1].type.is_range)]
    orders = []
    for _ in range(2):
        store = MemoryStore()
        batch = project(chunk, store.load(0, needs(chunk)), partition=0, offset_next=chunk[-1][0].offset + 1)
        orders.append([(table, list(rows)) for table, rows in batch.puts.items()])
    assert orders[0] == orders[1]
