"""The codec: CloudEvents in Kafka binary mode, and everything that is none."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvfold.schemas.codec import Malformed, decode, encode, fingerprint, is_mutation_id
from kvfold.schemas.limits import HEADER_TEXT_BYTES_MAX
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.precondition import ABSENT, Precondition
from kvfold.schemas.record import Record
from support.mutations import CAPSULE, capsule_set, deployment_put, mutation_id, raw_record, record_of

__all__: list[str] = []

BASE = capsule_set("k", b"v", id_=mutation_id(7))


def _malformed(record: Record) -> Malformed:
    decoded = decode(record)
    assert isinstance(decoded, Malformed), decoded
    return decoded


def _with(*add: tuple[str, bytes], drop: tuple[str, ...] = ()) -> Record:
    return raw_record(BASE, drop=drop or [name for name, _ in add], add=add)


_text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
_some = st.none() | _text
_mutations = st.builds(
    Mutation,
    type=_text.filter(bool),
    scope=_text,
    id=st.uuids().map(str),
    subject=_some.map(lambda text: text or None),
    namespace=_some,
    expected=st.sampled_from(
        [Precondition.parse(text) for text in ("any", "absent", "version:3", "not:version:1,2")]
    ),
    body=st.none() | st.binary(max_size=40),
    content_type=_some.filter(lambda text: not (text or "").lower().startswith("application/cloudevents")),
    source=_text.filter(bool),
    time=_some,
    actor=_some,
    traceparent=_some,
)


@given(_mutations)
def test_what_is_encoded_is_decoded(mutation: Mutation) -> None:
    assert decode(record_of(mutation)) == mutation


def test_the_headers_by_hand() -> None:
    mutation = replace(
        deployment_put("k", b"\x00", expected="absent", id_=mutation_id(7)), actor="me", source="/s"
    )
    new = encode(replace(mutation, content_type="application/octet-stream"))
    assert new.key == b"d:dep-1"
    assert new.value == b"\x00"
    assert dict(new.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": b"00000000-0000-0000-0000-000000000007",
        "ce_source": b"/s",
        "ce_type": b"kvfold.deployment.put.v1",
        "ce_subject": b"k",
        "ce_partitionkey": b"d:dep-1",
        "ce_kvnamespace": b"user",
        "ce_kvexpected": b"absent",
        "ce_kvactor": b"me",
        "content-type": b"application/octet-stream",
    }


def test_an_unconditional_mutation_has_no_precondition_header() -> None:
    assert "ce_kvexpected" not in dict(encode(BASE).headers)
    assert decode(_with(("ce_kvexpected", b"any"))) == decode(record_of(BASE))


def test_an_empty_and_an_absent_body_are_different() -> None:
    for body in (b"", None):
        decoded = decode(record_of(replace(BASE, body=body)))
        assert isinstance(decoded, Mutation) and decoded.body == body


def test_no_key() -> None:
    problem = _malformed(raw_record(BASE, key=None, keep_key=False))
    assert problem == Malformed("the record has no key: the key is the scope")


@pytest.mark.parametrize("key", [b"k" * 513, b"\xff", b"\xed\xa0\x80", b"c:\x00", b"\xc3"])
def test_keys_that_are_no_scope_are_kept_as_their_hash(key: bytes) -> None:
    problem = _malformed(raw_record(BASE, key=key, keep_key=False, drop=["ce_partitionkey"]))
    assert problem.scope == "sha256:" + hashlib.sha256(key).hexdigest()
    assert problem.id is None and problem.type is None


def test_a_key_of_512_bytes_is_read() -> None:
    key = b"k" * 512
    decoded = decode(raw_record(BASE, key=key, keep_key=False, drop=["ce_partitionkey"]))
    assert isinstance(decoded, Mutation) and decoded.scope == "k" * 512


@pytest.mark.parametrize("name", ["ce_id", "ce_subject", "ce_other", "content-type"])
def test_an_attribute_that_stands_twice(name: str) -> None:
    record = raw_record(BASE, drop=[name], add=[(name, b"x"), (name, b"x")])
    assert _malformed(record).detail == f"the header '{name}' stands twice"


def test_foreign_headers_are_passed_over_whatever_they_hold() -> None:
    record = raw_record(
        BASE, add=[("b3", b"\xff\x00"), ("b3", b""), ("", b""), ("CE_ID", b"\xff"), ("cé", b"\xff")]
    )
    assert decode(record) == decode(record_of(BASE))


@pytest.mark.parametrize("name", ["ce_subject", "ce_kvactor", "ce_source", "ce_x"])
@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xc3"])
def test_headers_that_are_not_utf8(name: str, raw: bytes) -> None:
    problem = _malformed(_with((name, raw)))
    assert problem == Malformed(f"the header '{name}' is not UTF-8", CAPSULE)


def test_header_names_are_quoted_in_ascii_and_cut() -> None:
    problem = _malformed(_with(("ce_é\n" + "x" * 99, b"\xff")))
    assert problem.detail == "the header 'ce_\\xe9\\n" + "x" * 59 + "' is not UTF-8"


@pytest.mark.parametrize(
    "name",
    [
        "ce_specversion",
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_time",
        "ce_kvactor",
        "ce_kvnamespace",
        "content-type",
    ],
)
def test_nul_is_no_text_anywhere_but_in_the_subject(name: str) -> None:
    assert _malformed(_with((name, b"a\x00b"))).detail == f"the header '{name}' holds NUL"


def test_nul_in_the_subject_is_an_invalid_key_and_judged_later() -> None:
    decoded = decode(_with(("ce_subject", b"a\x00b")))
    assert isinstance(decoded, Mutation) and decoded.subject == "a\x00b"


def test_the_length_of_a_header_is_limited() -> None:
    assert isinstance(decode(_with(("ce_kvactor", b"x" * HEADER_TEXT_BYTES_MAX))), Mutation)
    problem = _malformed(_with(("ce_kvactor", b"x" * (HEADER_TEXT_BYTES_MAX + 1))))
    assert problem.detail == "the header 'ce_kvactor' is longer than 8192 bytes"


@pytest.mark.parametrize(
    ("name", "raw", "detail"),
    [
        ("ce_specversion", None, "ce_specversion is not 1.0"),
        ("ce_specversion", b"0.3", "ce_specversion is not 1.0"),
        ("ce_specversion", b"1.0 ", "ce_specversion is not 1.0"),
        ("ce_type", None, "ce_type is missing"),
        ("ce_type", b"", "ce_type is missing"),
        ("ce_source", None, "ce_source is missing"),
        ("ce_source", b"", "ce_source is missing"),
        ("ce_id", None, "ce_id is missing or no UUID"),
        ("ce_id", b"", "ce_id is missing or no UUID"),
        ("ce_id", b"order-17", "ce_id is missing or no UUID"),
        ("ce_id", b"{00000000-0000-0000-0000-000000000007}", "ce_id is missing or no UUID"),
        ("ce_id", b"00000000000000000000000000000007", "ce_id is missing or no UUID"),
        ("ce_id", b"urn:uuid:00000000-0000-0000-0000-000000000007", "ce_id is missing or no UUID"),
        ("ce_partitionkey", b"c:bob:capsule:notes", "ce_partitionkey is not the record's key"),
        ("ce_partitionkey", b"", "ce_partitionkey is not the record's key"),
    ],
)
def test_attributes_that_are_missing_or_wrong(name: str, raw: bytes | None, detail: str) -> None:
    record = _with((name, raw)) if raw is not None else _with(drop=(name,))
    problem = _malformed(record)
    assert problem.detail == detail and problem.scope == CAPSULE
    assert problem.id == (None if name == "ce_id" else mutation_id(7))


def test_the_partition_key_may_be_absent() -> None:
    assert decode(_with(drop=("ce_partitionkey",))) == decode(record_of(BASE))


@pytest.mark.parametrize(
    "raw", [b"application/cloudevents+json", b"Application/CloudEvents+json; charset=utf-8"]
)
def test_structured_mode_is_refused(raw: bytes) -> None:
    assert "structured mode" in _malformed(_with(("content-type", raw))).detail
    bare = Record(0, 0, 0, b"k", (("content-type", raw),), b'{"specversion":"1.0"}')
    assert "structured mode" in _malformed(bare).detail


def test_ids_are_compared_in_lower_case() -> None:
    upper = "ABCDEF00-0000-0000-0000-00000000000A"
    decoded = decode(_with(("ce_id", upper.encode())))
    assert isinstance(decoded, Mutation) and decoded.id == upper.lower()
    assert is_mutation_id(upper) and not is_mutation_id(upper + "\n") and not is_mutation_id("٠" * 36)


def test_a_malformed_precondition_keeps_what_could_be_read() -> None:
    long = b"kvfold." + b"x" * 1_000
    record = raw_record(
        BASE, drop=["ce_type"], add=[("ce_type", long), ("ce_kvexpected", "versıon:1".encode())]
    )
    problem = _malformed(record)
    assert problem.detail.startswith("malformed precondition 'vers\\u0131on:1': ")
    assert (problem.scope, problem.id) == (CAPSULE, mutation_id(7))
    assert problem.type == long.decode()[:256]


_raw_headers = st.lists(
    st.tuples(
        st.sampled_from(
            ["ce_id", "ce_type", "ce_source", "ce_specversion", "ce_subject", "ce_kvexpected", "content-type"]
        )
        | st.text(max_size=8),
        st.binary(max_size=12)
        | st.sampled_from([b"1.0", b"any", b"version:1", mutation_id(1).encode(), b"/s"]),
    ),
    max_size=9,
).map(tuple)


@given(st.none() | st.binary(max_size=20), _raw_headers, st.none() | st.binary(max_size=20))
def test_decoding_is_total(
    key: bytes | None, headers: tuple[tuple[str, bytes], ...], value: bytes | None
) -> None:
    decoded = decode(Record(0, 0, 0, key, headers, value))
    if isinstance(decoded, Malformed):
        assert decoded.detail.isascii()
        assert "\x00" not in (decoded.scope or "") + (decoded.type or "")


@pytest.mark.parametrize(
    "other",
    [
        replace(BASE, type="kvfold.capsule.deleted.v1"),
        replace(BASE, subject="K"),
        replace(BASE, subject=None),
        replace(BASE, subject=""),
        replace(BASE, namespace=""),
        replace(BASE, expected=ABSENT),
        replace(BASE, body=b""),
        replace(BASE, body=None),
        replace(BASE, subject="kv", body=b""),
    ],
)
def test_other_content_has_another_fingerprint(other: Mutation) -> None:
    assert fingerprint(other, with_body=True) != fingerprint(BASE, with_body=True)


def test_what_is_informational_is_no_content() -> None:
    other = replace(
        BASE, source="x", time="t", actor="a", traceparent="p", content_type="c", id=mutation_id(8)
    )
    assert fingerprint(other, with_body=True) == fingerprint(BASE, with_body=True)
    assert len(fingerprint(BASE, with_body=True)) == 16


def test_without_the_body_two_encryptions_are_one_content() -> None:
    assert fingerprint(BASE, with_body=False) == fingerprint(replace(BASE, body=b"other"), with_body=False)
    assert fingerprint(BASE, with_body=False) != fingerprint(BASE, with_body=True)
