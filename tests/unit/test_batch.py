"""`project`: identity, effective time, needs and cuts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvfold.projector.batch import Loaded, prepare, project, record_digest
from kvfold.projector.memory_store import MemoryStore
from kvfold.projector.needs import cut, needs
from kvfold.projector.tables import PartitionState
from kvfold.schemas.limits import DEDUPE_WINDOW_MS
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.precondition import PRESENT
from kvfold.schemas.record import Record
from support.given import START_MS, Scenario, applied, conflict, given, rejected, snapshot
from support.mutations import (
    DEPLOYMENT,
    capsule_cleared,
    capsule_deleted,
    capsule_quota,
    capsule_set,
    deployment_put,
    envelope,
    instance_events,
    instance_pruned,
    instance_started,
    mutation_id,
    raw_record,
    record_of,
    scope_in,
    undeployed,
)

__all__: list[str] = []

ID = mutation_id(7)
SET = capsule_set("k", b"v", id_=ID)
_T0 = START_MS + 1


def _at(first_ms: int, *more: tuple[Mutation, int]) -> Scenario:
    """`SET` at a time, then others at theirs, each in a batch of its own."""
    scenario = given().when(SET, at_ms=first_ms)
    for mutation, at_ms in more:
        scenario.when(mutation, at_ms=at_ms)
    return scenario


@pytest.mark.row("X4")
@pytest.mark.parametrize("one_batch", [True, False])
def test_a_repeat_gets_the_first_outcome_and_changes_nothing(one_batch: bool) -> None:
    scenario = given(SET, SET) if one_batch else given(SET).when(SET)
    scenario.then(
        applied(1), applied(1), capsule_entry=[{"version": 1, "valid_from": 0}], capsule_entry_history=[]
    )
    assert [row.repeat_of for row in scenario.decisions()] == [None, 0]
    scenario.when(capsule_set("k", b"w"), SET).then(applied(2), applied(1), capsule_entry=[{"value": b"w"}])
    assert scenario.last.repeat_of == 0


@pytest.mark.row("X4")
def test_a_repeat_of_a_conflict_and_of_a_rejection_is_one_too() -> None:
    absent = capsule_set("k", expected="present", id_=ID)
    scenario = given(absent, capsule_set("k")).when(absent).then(conflict("cas-mismatch", 0))
    assert scenario.last.repeat_of == 0
    invalid = capsule_set("a\x00b", id_=mutation_id(8))
    scenario.when(invalid).when(invalid).then(rejected("invalid-key"), rejected("invalid-key"))
    assert [row.repeat_of for row in scenario.decisions()][-2:] == [None, 3]
    detail = scenario.decisions()[-2].detail
    assert detail and scenario.last.detail == detail


@pytest.mark.row("X4")
def test_a_repeat_of_a_range_counts_as_the_first_did() -> None:
    cleared = capsule_cleared("k", id_=ID)
    scenario = given(capsule_set("k1"), cleared, capsule_set("k2")).when(cleared)
    scenario.then(applied(removed=1), capsule_entry=[{"key": "k2"}])


@pytest.mark.row("X4")
def test_the_window_is_seven_days_inclusive() -> None:
    scenario = _at(_T0, (SET, _T0 + DEDUPE_WINDOW_MS)).then(applied(1), mutation_id=[{"record_offset": 0}])
    assert scenario.last.repeat_of == 0
    scenario = _at(_T0, (SET, _T0 + DEDUPE_WINDOW_MS + 1)).then(
        applied(2), mutation_id=[{"record_offset": 1}]
    )
    assert scenario.last.repeat_of is None


def test_a_repeat_does_not_lengthen_the_window() -> None:
    middle = _T0 + DEDUPE_WINDOW_MS - 1
    scenario = _at(_T0, (SET, middle), (SET, _T0 + DEDUPE_WINDOW_MS + 1)).then(applied(2))
    assert [row.repeat_of for row in scenario.decisions()] == [None, 0, None]
    scenario.when(SET, at_ms=middle).then(applied(2))
    assert scenario.last.repeat_of == 2


def test_the_window_goes_by_effective_time() -> None:
    """The clock steps back by eight days: the second repeat is still too late."""
    late = _T0 + DEDUPE_WINDOW_MS + 1
    scenario = _at(_T0, (capsule_set("other"), late), (SET, _T0 + 5)).then(applied(2))
    assert [row.time_ms for row in scenario.decisions()] == [_T0, late, late]
    assert scenario.state().time_ms == late
    assert scenario.state().last_timestamp_ms == _T0 + 5


@pytest.mark.parametrize("one_batch", [True, False])
def test_effective_time_never_steps_back(one_batch: bool) -> None:
    times = [5, 3, 9, -1, 9, 8]
    records = [record_of(capsule_set("k"), offset=n, timestamp_ms=t) for n, t in enumerate(times)]
    scenario = given()
    for part in [records] if one_batch else [[record] for record in records]:
        scenario.fold(part)
    assert [row.time_ms for row in scenario.decisions()] == [5, 5, 9, 9, 9, 9]


@pytest.mark.parametrize(
    "other",
    [
        capsule_deleted("k", id_=ID),
        capsule_set("K", id_=ID),
        capsule_set("k", b"", id_=ID),
        replace(SET, expected=PRESENT),
        capsule_quota(9, id_=ID),
    ],
    ids=["type", "subject", "body", "precondition", "all"],
)
@pytest.mark.parametrize("one_batch", [True, False])
def test_an_id_with_other_content_is_reused(other: Mutation, one_batch: bool) -> None:
    scenario = given(SET, other) if one_batch else given(SET).when(other)
    detail = "the mutation id was used for another mutation at offset 0"
    scenario.then(rejected("id-reused", detail), capsule_entry=[{"version": 1, "value": b"v"}])
    # The refusal is not remembered: the first content still is.
    scenario.when(SET).then(applied(1), mutation_id=[{"record_offset": 0}])


def test_a_namespace_is_content() -> None:
    first, other = (deployment_put("k", id_=ID, namespace=name) for name in ("user", "system"))
    given(first).when(other).then(rejected("id-reused"))


def test_after_the_window_an_id_may_be_used_for_anything() -> None:
    other = capsule_deleted("k", id_=ID)
    late = _T0 + DEDUPE_WINDOW_MS + 1
    _at(_T0, (other, late), (SET, late)).then(applied(1), rejected("id-reused"), capsule_entry=[])


@pytest.mark.parametrize("one_batch", [False, True])
def test_one_id_in_two_scopes_is_two_mutations(one_batch: bool) -> None:
    other = capsule_set("k", b"v", id_=ID, scope=scope_in(0, 1))
    scenario = given().when(SET, other) if one_batch else given(SET).when(other)
    scenario.then(applied(1), capsule_entry=[{}, {}], mutation_id=[{}, {}])


def test_a_secrets_body_is_no_content() -> None:
    """Row D10: every encryption has a fresh nonce, so a repeat has other bytes."""
    first, again = (
        deployment_put("k", envelope(3, nonce=nonce * 12), namespace="x_secrets", id_=ID)
        for nonce in (b"1", b"2")
    )
    scenario = given(first).when(again).then(applied(1), deployment_entry=[{"value": first.body}])
    assert scenario.last.repeat_of == 0
    plain, other = (
        deployment_put("k", envelope(3, nonce=nonce * 12), id_=mutation_id(8)) for nonce in (b"1", b"2")
    )
    given(plain).when(other).then(rejected("id-reused"))


@pytest.mark.parametrize(
    "bad",
    [
        raw_record(SET, drop=["ce_source"]),
        raw_record(SET, add=[("ce_kvexpected", b"nonsense")]),
        record_of(replace(SET, namespace="n")),
        record_of(replace(SET, type="kvfold.capsule.set.v9")),
        record_of(replace(SET, body=None)),
        record_of(replace(capsule_quota(1, id_=ID), body=b"{")),
    ],
    ids=["codec", "precondition", "parts", "type", "body", "json"],
)
def test_what_is_refused_for_its_form_never_enters_the_index(bad: Record) -> None:
    scenario = given(bad).then(mutation_id=[])
    assert scenario.last.status == "rejected" and scenario.last.mutation_id == ID
    scenario.when(SET).then(applied(1), mutation_id=[{"record_offset": 1}])
    scenario.when(bad)
    assert scenario.last.code in {"malformed", "unknown-type"} and scenario.last.repeat_of is None


def test_wrong_partition_never_enters_the_index() -> None:
    scope = scope_in(1, 4)
    scenario = given(partition=2, partition_count=4).when(capsule_set("k", scope=scope))
    scenario.then(rejected("wrong-partition"), mutation_id=[], capsule_entry=[], capsule_scope=[])
    assert scenario.last.scope == scope


def test_what_the_rules_reject_is_remembered() -> None:
    given(capsule_set("\x1f", id_=ID)).when(capsule_set("k", id_=ID)).then(rejected("id-reused"))


def test_the_decision_row_says_who_and_what() -> None:
    scenario = given().when(replace(deployment_put("k", id_=ID), actor="bob"))
    row = scenario.last._asdict()
    assert row == {
        "partition": 0,
        "record_offset": 0,
        "scope": DEPLOYMENT,
        "mutation_id": ID,
        "type": "kvfold.deployment.put.v1",
        "namespace": "user",
        "subject": "k",
        "actor": "bob",
        "status": "applied",
        "code": None,
        "version": 1,
        "removed": None,
        "detail": None,
        "repeat_of": None,
        "keys": None,
        "time_ms": scenario.time_ms,
    }


@pytest.mark.parametrize(
    ("record", "detail"),
    [
        (raw_record(SET, key=None, keep_key=False), "the record has no key: the key is the scope"),
        (raw_record(SET, value=None, keep_value=False), "the body is missing"),
        (raw_record(SET, drop=["ce_subject"]), "ce_subject is missing: it is the key"),
        (Record(0, 0, 0, None, (), None), "the record has no key: the key is the scope"),
        (Record(0, 0, 0, b"", (), b""), "ce_specversion is not 1.0"),
    ],
)
def test_null_key_null_value_and_nothing_at_all_have_a_decision(record: Record, detail: str) -> None:
    given().when(record).then(rejected("malformed", detail))


def test_an_empty_attribute_is_an_empty_key() -> None:
    """Our own encoding leaves an empty subject out; a foreign producer may not."""
    empty = raw_record(SET, drop=["ce_subject"], add=[("ce_subject", b"")])
    given().when(empty).then(rejected("invalid-key", "the key has 0 bytes: 1 to 256 are accepted"))
    put = raw_record(deployment_put("k"), drop=["ce_subject"], add=[("ce_subject", b"")])
    given().when(put).then(rejected("invalid-key"))
    clears = raw_record(capsule_cleared("k"), drop=["ce_subject"], add=[("ce_subject", b"")])
    given(capsule_set("k")).when(clears).then(applied(removed=1))


@pytest.mark.row("X14")
def test_a_repeat_through_another_library_has_the_same_content() -> None:
    """The official SDK writes an empty body where there is none, and an empty attribute may stand for an absent one."""
    clears = capsule_cleared(None, id_=ID)
    foreign = raw_record(clears, value=b"", keep_value=False, add=[("ce_subject", b"")])
    assert given(clears).when(foreign).last.repeat_of == 0
    deleted = capsule_deleted("k", id_=ID)
    assert given(raw_record(deleted, value=b"", keep_value=False)).when(deleted).last.repeat_of == 0


def test_nul_never_reaches_a_store() -> None:
    """Postgres text cannot hold it: one such parameter would stop the partition."""
    mutations = (
        capsule_set("a\x00"),
        capsule_deleted("\x00"),
        capsule_cleared("\x00a"),
        deployment_put("a\x00"),
    )
    for mutation in mutations:
        need = needs(prepare([record_of(mutation)], 1))
        assert "\\x00" not in repr(need)
        assert given().when(mutation).last.subject is None
    assert not any(
        "\x00" in text for row in given(*mutations).decisions() for text in row if isinstance(text, str)
    )


def test_an_over_long_key_is_kept_as_its_hash() -> None:
    scenario = given().when(raw_record(SET, key=b"k" * 513, keep_key=False))
    scope = scenario.last.scope
    assert scope is not None and scope.startswith("sha256:") and len(scope) == 71


def test_details_are_cut() -> None:
    key = "\U0010ffff" * 64
    event = {"kind": "KeyValueSet", "key": key, "value": "x" * 16_385}
    scenario = given(instance_started()).when(instance_events(event))
    assert len(scenario.last.detail or "") <= 512


def test_cut_puts_every_range_alone() -> None:
    mutations = [SET, capsule_cleared("a"), undeployed(), SET, SET, instance_pruned([1])]
    steps = prepare([record_of(m, offset=n) for n, m in enumerate(mutations)], 1)
    assert [[record.offset for record, _ in batch] for batch in cut(steps)] == [[0], [1], [2], [3, 4], [5]]
    assert list(cut([])) == []


def test_needs_of_a_batch() -> None:
    mutations = [SET, deployment_put("d", id_=mutation_id(8)), capsule_set("k2", id_=mutation_id(9))]
    need = needs(prepare([record_of(m) for m in mutations] + [Record(0, 0, 0, None, (), None)], 1))
    assert need.ids == {(SET.scope, ID), (DEPLOYMENT, mutation_id(8)), (SET.scope, mutation_id(9))}
    assert need.capsule_keys == {(SET.scope, "k"), (SET.scope, "k2")}
    assert need.deployment_keys == {(DEPLOYMENT, "user", "d")}
    assert need.range is None


def test_an_empty_batch_moves_the_offset_alone() -> None:
    state = PartitionState(4, 9, 1, 3, "d", 8)
    batch = project([], Loaded(state), partition=0, offset_next=7)
    assert batch.state == state._replace(offset_next=7)
    assert not batch.puts and not batch.additions and batch.offset_expected == 4


def test_the_offset_never_goes_back_nor_a_record_before_it() -> None:
    steps = prepare([record_of(SET, offset=5)], 1)
    for at, offset_next in ((6, 7), (7, 6), (0, 5)):
        with pytest.raises(AssertionError):
            project(
                steps,
                Loaded(PartitionState(at, 0, 1, None, None, None)),
                partition=0,
                offset_next=offset_next,
            )


def test_the_state_describes_the_last_record() -> None:
    record = record_of(SET, offset=3, timestamp_ms=11)
    batch = project(prepare([record], 1), MemoryStore().load(0, needs([])), partition=0, offset_next=9)
    assert batch.state == PartitionState(9, 11, 1, 3, record_digest(record), 11)


def test_the_digest_tells_records_apart() -> None:
    base = Record(0, 0, 0, b"k", (("a", b"b"),), b"v")
    others = [
        replace(base, key=None),
        replace(base, key=b""),
        replace(base, value=None),
        replace(base, value=b""),
        replace(base, headers=()),
        replace(base, headers=(("ab", b""),)),
        replace(base, headers=(("a", b"b"), ("", b""))),
        replace(base, headers=(("\ud800", b"b"),)),
    ]
    digests = {record_digest(record) for record in (base, *others)}
    assert len(digests) == len(others) + 1
    assert record_digest(replace(base, offset=9, timestamp_ms=9)) == record_digest(base)


def test_folding_into_two_stores_gives_the_same() -> None:
    one, two = (
        given(SET, capsule_set("k2", id_=mutation_id(8)), deployment_put("d", id_=mutation_id(9)))
        for _ in "12"
    )
    assert snapshot(one.store) == snapshot(two.store)
