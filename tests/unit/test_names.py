"""Names, keys and scopes."""

from __future__ import annotations

import unicodedata

import pytest
import unicodedata2
from hypothesis import example, given
from hypothesis import strategies as st

from kvfold.schemas import names

__all__: list[str] = []

# Pairs that compose since Unicode 16.0: an older table takes them for normal.
COMPOSES_SINCE_16 = ["\U000105d2\u0307", "\U00016d67\U00016d67", "\U00011382\U000113c9"]
_text = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def test_the_pinned_table_is_the_one_that_the_requirements_name() -> None:
    assert unicodedata2.unidata_version == "18.0.0"


@pytest.mark.row("C6")
@pytest.mark.parametrize("text", COMPOSES_SINCE_16)
def test_the_pinned_table_decides_and_not_the_interpreters(text: str) -> None:
    """Python 3.11 to 3.13 know Unicode 14.0 to 15.1 and call these texts normal."""
    if unicodedata.unidata_version < "16":
        assert unicodedata.is_normalized("NFC", text)
    assert not names.is_nfc(text)
    assert names.check_capsule_key(text) == "the key is not in Unicode normalisation form C (NFC)"
    assert names.check_deployment_key(text) is None


@given(_text)
@example("e\u0301")
@example("\u00e9")
@example("")
def test_normal_form_by_definition(text: str) -> None:
    assert names.is_nfc(text) == (unicodedata2.normalize("NFC", text) == text)
    assert names.is_nfc(unicodedata2.normalize("NFC", text))


@given(st.text())
def test_checks_are_total(text: str) -> None:
    checks = (
        names.check_capsule_key,
        names.check_capsule_prefix,
        names.check_deployment_key,
        names.check_orchestration_key,
        lambda name: names.check_deployment_name("it", name),
        lambda name: names.check_principal_part("it", name),
        lambda name: names.check_orchestration_name("it", name),
    )
    for check in checks:
        problem = check(text)
        assert problem is None or (problem and problem.isascii())


def test_lone_surrogates_have_no_length_and_are_named() -> None:
    assert names.utf8_length("\ud800") == -1
    assert names.check_capsule_key("\ud800") == "the key holds a lone surrogate: it must be UTF-8"
    assert names.check_orchestration_key("\udfff") is not None


@pytest.mark.row("C1")
@pytest.mark.parametrize("name", ["", "a:b", "a/b", "a\x00", "n" * 129, "e\u0301"])
def test_principal_parts_that_could_forge_a_namespace(name: str) -> None:
    assert names.check_principal_part("the principal", name) is not None


def test_lengths_are_bytes_and_inclusive() -> None:
    assert names.check_principal_part("it", "é" * 64) is None
    assert names.check_principal_part("it", "é" * 64 + "x") == "it has 129 bytes: 1 to 128 are accepted"
    assert names.check_capsule_prefix("") is None
    assert names.check_orchestration_key("") is None
    assert names.check_orchestration_key("k" * 257) == "the key has 257 bytes: 0 to 256 are accepted"
    assert names.check_orchestration_name("it", "😀" * 64) is None


@pytest.mark.parametrize("control", [chr(n) for n in (*range(0x20), *range(0x7F, 0xA0))])
def test_control_characters_are_refused_everywhere_but_in_orchestration_keys(control: str) -> None:
    text = f"a{control}b"
    assert names.check_capsule_key(text) and names.check_deployment_key(text)
    assert names.check_deployment_name("it", text) and names.check_orchestration_name("it", text)
    assert (names.check_orchestration_key(text) is None) == (control != "\x00")


@pytest.mark.parametrize("text", ["\u00a0", "\u200f", "\u2028", "\ufffe", "\U0010ffff", "\u0378"])
def test_what_is_no_control_character_passes(text: str) -> None:
    """Separators, marks, noncharacters and unassigned code points are text: no table is asked about them."""
    assert names.check_deployment_key(text) is None
    assert names.check_capsule_key(text) is None


def test_scopes() -> None:
    assert names.capsule_scope("alice", "notes") == "c:alice:capsule:notes"
    assert names.deployment_scope("dep-1") == "d:dep-1"
    assert names.orchestration_scope("a:b/c") == "o:a:b/c"


@pytest.mark.parametrize(
    ("namespace", "base", "suffixes"),
    [
        ("user", "user", set()),
        ("user_secrets", "user", {"_secrets"}),
        ("user_volatile", "user", {"_volatile"}),
        ("user_secrets_secrets", "user", {"_secrets"}),
        ("user_secrets_volatile", "user", {"_secrets", "_volatile"}),
        ("user_volatile_secrets_volatile", "user", {"_secrets", "_volatile"}),
        ("_secrets", "", {"_secrets"}),
        ("secrets", "secrets", set()),
        ("a_secrets_b", "a_secrets_b", set()),
    ],
)
def test_suffixes(namespace: str, base: str, suffixes: set[str]) -> None:
    assert names.namespace_suffixes(namespace) == (base, frozenset(suffixes))


@given(_text.filter(bool), st.lists(_text, max_size=8))
@example("\ud7ff", ["\ue000", "\ud7ff\U0010ffff"])
@example("a\U0010ffff", ["a\U0010ffff\U0010ffff", "b"])
@example("\U0010ffff", ["\U0010ffff"])
def test_a_prefix_is_a_range_of_bytes(prefix: str, others: list[str]) -> None:
    """Brute force: a text starts with the prefix iff its bytes lie in [prefix, end)."""
    end = names.prefix_range_end(prefix)
    near = [
        prefix,
        prefix + "\x01",
        prefix + "\U0010ffff",
        prefix[:-1],
        *others,
        *(prefix + o for o in others),
    ]
    for text in near:
        raw = text.encode()
        inside = raw >= prefix.encode() and (end is None or raw < end.encode())
        assert inside == raw.startswith(prefix.encode()), text


def test_range_ends_by_example() -> None:
    assert names.prefix_range_end("ab") == "ac"
    assert names.prefix_range_end("a\U0010ffff") == "b"
    assert names.prefix_range_end("\ud7ff") == "\ue000"
    assert names.prefix_range_end("\U0010ffff") is None
    assert names.prefix_range_end("") is None
