"""The door: what is refused before anything is appended, with the codes that the fold would give."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvfold.producers import mutations
from kvfold.producers.doors import admit, check_tier
from kvfold.schemas.codec import decode
from kvfold.schemas.errors import InvalidError, KvfoldError, UnavailableError
from kvfold.schemas.limits import CAPSULE_VALUE_BYTES_MAX, DEPLOYMENT_VALUE_BYTES_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.orchestration import KeyValueSet, OrchestrationCompleted
from kvfold.schemas.outcome import REJECTION_CODES
from kvfold.schemas.precondition import ABSENT, PRESENT, Precondition
from kvfold.schemas.record import Record
from support.mutations import batch_delete, capsule_batch

__all__: list[str] = []

ID = "01920000-0000-7000-8000-000000000001"
CAPSULE = "c:alice:capsule:notes"
SET = mutations.capsule_set(CAPSULE, "key", b"value", mutation_id=ID)
PUT = mutations.deployment_put("d:dep", "user", "key", b"value", mutation_id=ID)
STARTED = mutations.orchestration_started("o:1", "order", {"a": 1}, mode="external", mutation_id=ID)
GOOD = (
    SET,
    replace(SET, expected=ABSENT),
    replace(SET, expected=Precondition.sha256("0" * 64, negated=True)),
    mutations.capsule_deleted(CAPSULE, "key", expected=PRESENT, mutation_id=ID, actor="alice"),
    mutations.capsule_prefix_cleared(CAPSULE, "", mutation_id=ID),
    mutations.capsule_prefix_cleared(CAPSULE, "a%_", mutation_id=ID),
    mutations.capsule_namespace_cleared(CAPSULE, mutation_id=ID),
    mutations.capsule_quota_set(CAPSULE, 0, mutation_id=ID),
    PUT,
    replace(PUT, expected=Precondition.version(7)),
    replace(PUT, body=b""),
    mutations.deployment_deleted("d:dep", "user", "k", expected=Precondition.version(7), mutation_id=ID),
    mutations.deployment_undeployed("d:dep", mutation_id=ID),
    STARTED,
    mutations.orchestration_events(
        "o:1",
        1,
        [
            KeyValueSet(kind="KeyValueSet", key="", value="v"),
            OrchestrationCompleted(kind="OrchestrationCompleted"),
        ],
        mutation_id=ID,
    ),
    mutations.orchestration_executions_pruned("o:1", [1, 2], mutation_id=ID),
    mutations.orchestration_executions_pruned_before("o:1", 2, mutation_id=ID),
    mutations.orchestration_instance_deleted("o:1", incarnation=0, mutation_id=ID),
)


@pytest.mark.parametrize("mutation", GOOD, ids=lambda mutation: mutation.type)
def test_what_the_constructors_build_is_admitted_and_reads_back(mutation: Mutation) -> None:
    admitted = admit(mutation, 12)
    record = admitted.record
    assert decode(Record(admitted.partition, 0, 0, record.key, record.headers, record.value)) == mutation


@pytest.mark.parametrize(
    ("mutation", "code"),
    [
        (replace(SET, type="kvfold.capsule.set.v2"), "unknown-type"),
        (replace(SET, type="kvfold.capsule.restored.v1"), "malformed"),
        (replace(SET, type=""), "malformed"),
        (replace(SET, id="x"), "malformed-id"),
        (replace(SET, id=ID.upper().replace("0", "A")), "malformed-id"),
        (replace(SET, scope="d:dep"), "malformed"),
        (replace(SET, scope="c:a:capsule:b:capsule:c"), "malformed"),
        (replace(SET, scope="c::capsule:notes"), "malformed"),
        (replace(SET, scope="c:a\x00:capsule:notes"), "malformed"),
        (replace(SET, scope="c:\ud800:capsule:notes"), "malformed"),
        (replace(SET, scope="c:" + "a" * 600), "malformed"),
        (replace(SET, subject=None), "malformed"),
        (replace(SET, subject=""), "invalid-key"),
        (replace(SET, subject="a\x00"), "invalid-key"),
        (replace(SET, subject="\ud800"), "invalid-key"),
        (replace(SET, subject="a" * 257), "invalid-key"),
        (replace(SET, subject="e\u0301"), "invalid-key"),
        (replace(SET, body=None), "malformed"),
        (replace(SET, body=b"x" * (CAPSULE_VALUE_BYTES_MAX + 1)), "too-large"),
        (replace(SET, expected=Precondition.version(1)), "malformed"),
        (replace(SET, source=""), "malformed"),
        (replace(SET, actor="a\x00"), "malformed"),
        (replace(SET, actor="a" * 9000), "malformed"),
        (replace(SET, actor="\ud800"), "malformed"),
        (replace(SET, content_type="application/cloudevents+json"), "malformed"),
        (replace(PUT, body=b"x" * (DEPLOYMENT_VALUE_BYTES_MAX + 1)), "too-large"),
        (replace(PUT, namespace=None), "malformed"),
        (replace(PUT, namespace="a\nb"), "invalid-namespace"),
        (replace(PUT, namespace="n" * 129), "invalid-namespace"),
        (replace(PUT, subject="a\nb"), "invalid-key"),
        (replace(PUT, expected=Precondition.sha256("0" * 64)), "malformed"),
        (mutations.capsule_quota_set(CAPSULE, -1, mutation_id=ID), "malformed"),
        (mutations.orchestration_executions_pruned("o:1", [], mutation_id=ID), "malformed"),
        (replace(STARTED, body=b"{"), "malformed"),
        (replace(STARTED, body=None), "malformed"),
        (replace(STARTED, body=b'{"name":"x","surplus":1}'), "malformed"),
        (mutations.orchestration_started("o:1", "", mutation_id=ID), "limit"),
        (replace(STARTED, body=b'{"name":"' + b"x" * 1_048_576 + b'"}'), "too-large"),
        (Mutation("kvfold.system.format-raised.v1", "s:0", ID, body=b'{"level":2}'), "system-refused"),
    ],
)
def test_what_is_wrong_is_refused_with_its_code(mutation: Mutation, code: str) -> None:
    with pytest.raises(InvalidError) as caught:
        admit(mutation, 12)
    assert caught.value.code == code
    assert code in REJECTION_CODES | {"malformed-id", "system-refused"}


@pytest.mark.parametrize("size", [CAPSULE_VALUE_BYTES_MAX])
def test_a_value_of_exactly_the_limit_passes(size: int) -> None:
    assert admit(replace(SET, body=b"x" * size, subject="a" * 256), 1).partition == 0
    assert admit(replace(PUT, body=b"x" * size, subject="a" * 1024, actor="a" * 8192), 1).partition == 0


def test_operators_may_append_system_records() -> None:
    raised = Mutation("kvfold.system.format-raised.v1", "s:0", ID, body=b'{"level":2}')
    assert admit(raised, 1, allow_system=True).partition == 0


@pytest.mark.row("D10")
@pytest.mark.row("D11")
@pytest.mark.row("D12")
@pytest.mark.parametrize(
    ("namespace", "code"),
    [
        ("user_secrets", "encryption-key-missing"),
        ("_secrets", "encryption-key-missing"),
        ("user_secrets_secrets", "encryption-key-missing"),
        ("user_volatile", "volatile-in-log"),
        ("user_secrets_volatile", "secret-and-volatile"),
        ("user_volatile_secrets", "secret-and-volatile"),
        ("user_volatile_secrets_volatile_secrets", "secret-and-volatile"),
    ],
)
@pytest.mark.parametrize("verb", ["put", "delete", "put-encrypted"])
def test_namespaces_whose_tier_is_missing(namespace: str, code: str, verb: str) -> None:
    mutation = replace(PUT, namespace=namespace)
    if verb == "delete":
        mutation = mutations.deployment_deleted("d:dep", namespace, "key", mutation_id=ID)
    if verb == "put-encrypted":
        mutation = replace(mutation, body=b"KVS1\x01k" + bytes(28))
    for call in (lambda: admit(mutation, 12), lambda: check_tier(namespace)):
        with pytest.raises(KvfoldError) as caught:
            call()
        assert caught.value.code == code
        away = code == "encryption-key-missing"
        assert isinstance(caught.value, UnavailableError if away else InvalidError)


@pytest.mark.parametrize("namespace", ["user", "secrets", "user_secretsx", "_volatile_x", "user_SECRETS"])
def test_a_plain_namespace_passes(namespace: str) -> None:
    check_tier(namespace)
    assert admit(replace(PUT, namespace=namespace), 12).mutation.namespace == namespace


@given(
    st.builds(
        Mutation,
        type=st.sampled_from(sorted({mutation.type for mutation in GOOD})) | st.text(),
        scope=st.sampled_from([CAPSULE, "d:dep", "o:1", "s:0"]) | st.text(st.characters()),
        id=st.just(ID) | st.text(),
        subject=st.none() | st.text(st.characters()),
        namespace=st.none() | st.text(st.characters()),
        expected=st.sampled_from([ABSENT, PRESENT, Precondition.version(1), Precondition.sha256("0" * 64)]),
        body=st.none() | st.binary(),
        content_type=st.none() | st.text(st.characters()),
        source=st.just("/x") | st.text(st.characters()),
        actor=st.none() | st.text(st.characters()),
    )
)
def test_any_mutation_is_admitted_or_refused(mutation: Mutation) -> None:
    with contextlib.suppress(InvalidError, UnavailableError):
        admit(mutation, 12)


def test_a_body_without_a_json_form_is_refused() -> None:
    for value in (float("nan"), object(), "\ud800", {1: {2, 3}}):
        with pytest.raises(InvalidError) as caught:
            mutations.orchestration_started("o:1", "x", value)
        assert caught.value.code == "malformed"


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ({"kind": "set", "key": "k", "value": "?"}, "operations.1.set.value: Value error, canonical base64"),
        ({"kind": "set", "key": "k"}, "operations.1.set.value: Field required"),
        ({"kind": "delete", "key": "k", "more": 1}, "operations.1.delete.more: Extra inputs"),
    ],
)
def test_the_door_says_where_a_body_has_another_shape(operation: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidError) as caught:
        admit(capsule_batch(batch_delete("a"), operation), 1)
    assert caught.value.code == "malformed"
    assert said in str(caught.value)
