"""The grammar of preconditions."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import INT64_MAX
from kvfold.schemas.precondition import ABSENT, ANY, PRESENT, Precondition, PreconditionKind

__all__: list[str] = []

_A, _B = "a" * 64, "0123456789abcdef" * 4
_version = st.integers(0, INT64_MAX).map(str)
_digest = st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def _texts(draw: st.DrawFn) -> str:
    kind, value = draw(st.sampled_from([("version", _version), ("sha256", _digest)]))
    values = draw(st.lists(value, min_size=1, max_size=16, unique=True))
    return draw(st.sampled_from(["", "not:"])) + kind + ":" + ",".join(values)


@given(st.sampled_from(["any", "absent", "present"]) | _texts())
def test_the_grammar_round_trips(text: str) -> None:
    assert str(Precondition.parse(text)) == text


# The grammar once more, from the contract and without the code's help.
_GRAMMAR = re.compile(
    r"any|absent|present|(not:)?version:(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)){0,15}"
    r"|(not:)?sha256:[0-9a-f]{64}(,[0-9a-f]{64}){0,15}"
)


def _in_grammar(text: str) -> bool:
    if not _GRAMMAR.fullmatch(text):
        return False
    values = text.rpartition(":")[2].split(",")
    fits = "version" not in text or all(int(value) <= INT64_MAX for value in values if len(value) < 30)
    return (
        fits
        and all(len(value) < 30 or len(value) == 64 for value in values)
        and len(set(values)) == len(values)
    )


_pieces = st.lists(
    st.sampled_from(
        ["any", "absent", "present", "version", "sha256", "not", ":", ",", "0", "7", "07", "-", "+", " ", _A]
    )
)


@given(st.text() | _pieces.map("".join))
def test_everything_else_is_refused(text: str) -> None:
    assume(not _in_grammar(text))
    with pytest.raises(InvalidError) as caught:
        Precondition.parse(text)
    assert caught.value.code == "malformed-precondition"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " any",
        "ANY",
        "not:any",
        "not:absent",
        "not:not:version:1",
        "version",
        "version:",
        "version:1,",
        "version:01",
        "version:-1",
        "version:+1",
        "version: 1",
        "version:1.0",
        "version:1,1",
        "version:٣",
        f"version:{INT64_MAX + 1}",
        "version:" + "9" * 5_000,
        "version:" + ",".join(map(str, range(17))),
        "sha256:",
        "sha256:" + "a" * 63,
        "sha256:" + "A" * 64,
        f"sha256:{_A},{_A}",
        f"sha256:{_A},1",
        "version:1\n",
    ],
)
def test_refusals(text: str) -> None:
    with pytest.raises(InvalidError):
        Precondition.parse(text)


def test_the_refusals_sentence_is_ascii_whatever_the_text() -> None:
    """Decisions keep this sentence, so it must not depend on what the interpreter takes for printable."""
    for text in ("\U0001fae8", "\u0378", "\ud800", "'\"\\\n"):
        with pytest.raises(InvalidError) as caught:
            Precondition.parse(text)
        assert str(caught.value).isascii()


@pytest.mark.parametrize(
    ("precondition", "absent", "five", "six"),
    [
        (ANY, True, True, True),
        (ABSENT, True, False, False),
        (PRESENT, False, True, True),
        (Precondition.version(5), False, True, False),
        (Precondition.version(5, 7), False, True, False),
        (Precondition.version(5, negated=True), True, False, True),
        (Precondition.version(1, 5, negated=True), True, False, True),
    ],
)
def test_when_it_holds(precondition: Precondition, absent: bool, five: bool, six: bool) -> None:
    assert [precondition.holds(current) for current in (None, "5", "6")] == [absent, five, six]


def test_builders() -> None:
    assert str(Precondition.sha256(_A, _B, negated=True)) == f"not:sha256:{_A},{_B}"
    assert Precondition.version(3) == Precondition(PreconditionKind.VERSION, ("3",))
    with pytest.raises(InvalidError):
        Precondition.version(-1)
