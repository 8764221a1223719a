"""The tables of the contract: types, limits, decisions, records and envelopes."""

from __future__ import annotations

import pytest

from kvfold.projector.tables import TABLES
from kvfold.schemas import limits, outcome
from kvfold.schemas.position import Position
from kvfold.schemas.record import NewRecord, Record
from kvfold.schemas.secret_envelope import plaintext_size
from kvfold.schemas.types import FORMAT_LEVEL, MUTATION_TYPES, BodyKind, Family, SubjectRule
from support.mutations import envelope

__all__: list[str] = []


def test_the_type_table_is_the_contracts() -> None:
    verbs = {
        "capsule": "set deleted prefix-cleared namespace-cleared batch quota-set restored",
        "deployment": "put deleted undeployed restored",
        "orchestration": "started turn events activity-completed activity-failed timer-fired event-raised "
        "cancel-requested child-completed child-failed delivered executions-pruned instance-deleted",
        "system": "format-raised",
    }
    names = {f"kvfold.{family}.{verb}.v1" for family, many in verbs.items() for verb in many.split()}
    assert {name for name, row in MUTATION_TYPES.items() if row.level == 1} == names
    added = {name: row.level for name, row in MUTATION_TYPES.items() if name not in names}
    assert added == {"kvfold.orchestration.executions-pruned.v2": 2}
    assert max(added.values()) == FORMAT_LEVEL


def test_rows_are_consistent() -> None:
    for name, row in MUTATION_TYPES.items():
        assert name == row.name and name.split(".")[1] == row.family
        assert row.has_namespace == (row.family is Family.DEPLOYMENT and row.subject is SubjectRule.KEY)
        if row.family in (Family.ORCHESTRATION, Family.SYSTEM):
            assert row.body is BodyKind.JSON and row.subject is SubjectRule.NONE


def test_the_limits_are_the_contracts() -> None:
    assert limits.ORCHESTRATION_KV_KEYS_MAX == 10
    assert limits.ORCHESTRATION_KV_VALUE_BYTES_MAX == 16_384
    assert (limits.CAPSULE_KEY_BYTES_MAX, limits.CAPSULE_VALUE_BYTES_MAX) == (256, 1_048_576)
    assert limits.CAPSULE_QUOTA_BYTES_DEFAULT == 64 * 1024 * 1024
    assert (limits.DEPLOYMENT_NAME_BYTES_MAX, limits.DEPLOYMENT_KEY_BYTES_MAX) == (128, 1_024)
    assert (limits.NAME_PART_BYTES_MAX, limits.RECORD_KEY_BYTES_MAX) == (128, 512)
    assert (limits.JSON_BODY_BYTES_MAX, limits.JSON_DEPTH_MAX) == (1_048_576, 64)
    assert limits.DEDUPE_WINDOW_MS == 604_800_000


def test_codes_are_conflicts_or_rejections() -> None:
    assert not outcome.CONFLICT_CODES & outcome.REJECTION_CODES


def test_a_records_size_and_position() -> None:
    record = Record(3, 1042, 0, b"key", (("a", b"12"), ("é", b"")), None)
    assert record.size() == NewRecord(record.key, record.headers, None).size() == 7
    assert record.position == Position(3, 1042)
    assert NewRecord(None, (), None).size() == 0


@pytest.mark.row("D10")
def test_the_form_of_a_secret_envelope() -> None:
    assert plaintext_size(envelope(0)) == 0
    assert plaintext_size(envelope(9, key_id=b"k" * 255)) == 9
    for cut in range(len(envelope(0))):
        assert plaintext_size(envelope(0)[:cut]) is None
    assert plaintext_size(envelope(5, key_id=b"")) is None
    assert plaintext_size(b"kvs1" + envelope(5)[4:]) is None
    assert plaintext_size(b"KVS2" + envelope(5)[4:]) is None


def test_table_specifications() -> None:
    for name, spec in TABLES.items():
        assert name == spec.name and len(spec.types) == len(spec.columns) > spec.key_size > 0
        assert spec.columns[0] in ("scope", "partition"), "every key begins with partition or scope"
        if spec.has_history:
            assert spec.valid_from in spec.columns
