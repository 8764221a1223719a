"""Every limit of capsules twice: refused at the door, and rejected in the fold where a foreign producer wrote it straight
to the log, with one code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kvfold.schemas.codec import encode
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import CAPSULE_VALUE_BYTES_MAX, JSON_BODY_BYTES_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import DecisionStatus
from kvfold.schemas.record import NewRecord
from support.capsules import Capsules, capsules, foreign_decision
from support.mutations import (
    batch_delete,
    batch_set,
    capsule_batch,
    capsule_cleared,
    capsule_deleted,
    capsule_quota,
    capsule_set,
)
from support.projectors import postgres_log
from support.servers import fresh_database

__all__: list[str] = []

pytestmark = pytest.mark.postgres

BAD_KEYS = {
    "empty": "",
    "NUL": "a\x00b",
    "control": "a\x1f",
    "delete": "\x7f",
    "C1": "\x85",
    "not NFC": "e\u0301",
    "257 bytes": "k" * 257,
    "258 bytes": "é" * 129,
}
BAD_PREFIXES = {name: key for name, key in BAD_KEYS.items() if name not in ("empty", "not NFC")}
# NUL in JSON is no JSON to the strict decoder; the client refuses such a key before it becomes JSON.
BAD_KEYS_IN_JSON = {name: key for name, key in BAD_KEYS.items() if name != "NUL"}
LARGE = bytes(CAPSULE_VALUE_BYTES_MAX + 1)
MANY = 1_025

REFUSED: dict[str, tuple[Mutation, str]] = {
    **{f"set, {name}": (capsule_set(key), "invalid-key") for name, key in BAD_KEYS.items() if key},
    **{f"delete, {name}": (capsule_deleted(key), "invalid-key") for name, key in BAD_KEYS.items() if key},
    **{f"clear, {name}": (capsule_cleared(key), "invalid-key") for name, key in BAD_PREFIXES.items()},
    **{
        f"batch, {name}": (capsule_batch(batch_set("good"), batch_delete(key)), "invalid-key")
        for name, key in BAD_KEYS_IN_JSON.items()
    },
    **{
        f"condition, {name}": (capsule_batch(batch_set("good"), conditions={key: "absent"}), "invalid-key")
        for name, key in BAD_KEYS_IN_JSON.items()
    },
    "a byte too much": (capsule_set("k", LARGE), "too-large"),
    "operations": (capsule_batch(*(batch_delete(f"k{n}") for n in range(MANY))), "too-large"),
    "conditions": (
        capsule_batch(batch_set("k"), conditions={f"k{n}": "absent" for n in range(MANY)}),
        "too-large",
    ),
    "a body of JSON": (capsule_batch(batch_set("k", bytes(JSON_BODY_BYTES_MAX * 3 // 4))), "too-large"),
    "no operation": (capsule_batch(), "malformed"),
    "a key twice": (capsule_batch(batch_set("k"), batch_delete("k")), "malformed"),
    "a quota below zero": (capsule_quota(-1), "malformed"),
    "a quota that is no number": (capsule_quota("1"), "malformed"),
}
SCOPES = (
    "c:al:ice:capsule:notes",
    "c::capsule:notes",
    "c:alice:capsule:a/b",
    "c:e\u0301:capsule:n",
    "c:a\x1f:capsule:n",
)


@pytest.fixture(scope="module")
def stack(postgres_admin_dsn: str) -> Iterator[Capsules]:
    with fresh_database(postgres_admin_dsn) as dsn, postgres_log(dsn) as log, capsules(log, dsn) as stack:
        yield stack


def _both_refuse(stack: Capsules, mutation: Mutation, record: NewRecord, code: str) -> None:
    with pytest.raises(InvalidError) as caught:
        stack.producer.submit(mutation)
    assert caught.value.code == code
    decision = foreign_decision(stack, record)
    assert (decision.status, decision.code) == (DecisionStatus.REJECTED, code)
    assert decision.detail, "it says what was wrong"


@pytest.mark.row("C6", "C7", "C11")
@pytest.mark.parametrize(("mutation", "code"), REFUSED.values(), ids=REFUSED)
def test_the_door_and_the_fold_refuse_with_one_code(stack: Capsules, mutation: Mutation, code: str) -> None:
    capsule = stack.fresh()
    mutation = replace(mutation, scope=capsule.scope)
    _both_refuse(stack, mutation, encode(mutation), code)
    assert (capsule.usage().keys, capsule.usage().bytes) == (0, 0)


@pytest.mark.row("C1")
@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_that_is_none_is_refused_by_both(stack: Capsules, scope: str) -> None:
    mutation = capsule_set("k", scope=scope)
    _both_refuse(stack, mutation, encode(mutation), "malformed")


@pytest.mark.row("C6")
@pytest.mark.parametrize(
    "raw", [b"\xff", b"\xed\xa0\x80", b""], ids=["no UTF-8", "a lone surrogate", "empty"]
)
def test_bytes_that_are_no_key_are_refused_by_the_fold(stack: Capsules, raw: bytes) -> None:
    capsule = stack.fresh()
    record = encode(capsule_set("k", scope=capsule.scope))
    headers = tuple((name, raw if name == "ce_subject" else value) for name, value in record.headers)
    decision = foreign_decision(stack, replace(record, headers=headers))
    expected = "malformed" if raw else "invalid-key"
    assert (decision.status, decision.code) == (DecisionStatus.REJECTED, expected)
    assert capsule.usage().keys == 0


@pytest.mark.row("C7")
def test_the_largest_key_and_value_pass_both(stack: Capsules) -> None:
    for key in ("k" * 256, "é" * 128, "\U0001f600" * 64):
        capsule = stack.fresh()
        value = bytes(CAPSULE_VALUE_BYTES_MAX)
        assert capsule.set(key, value) == 1
        record = encode(capsule_set(key, value[1:], scope=capsule.scope))
        assert foreign_decision(stack, record).version == 2
        assert capsule.get(key) == value[1:]


@pytest.mark.row("C10", "C11")
def test_a_foreign_producer_is_held_to_the_quota(stack: Capsules) -> None:
    capsule = stack.fresh()
    capsule.set_quota(3)
    for mutation in (
        capsule_set("k", b"123"),
        capsule_batch(batch_set("k", b"1"), batch_set("l", b""), batch_set("m", b"")),
    ):
        decision = foreign_decision(stack, encode(replace(mutation, scope=capsule.scope)))
        assert (decision.status, decision.code) == (DecisionStatus.REJECTED, "quota")
    assert foreign_decision(stack, encode(capsule_set("k", b"12", scope=capsule.scope))).version == 1
    assert capsule.usage().bytes == 3
