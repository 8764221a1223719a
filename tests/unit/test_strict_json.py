"""The strict JSON decoder: what it accepts is the same on every interpreter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.strict_json import decode_json, encode_json

__all__: list[str] = []

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def _refused(body: bytes) -> str:
    with pytest.raises(InvalidError) as caught:
        decode_json(body)
    assert caught.value.code == "malformed"
    assert str(caught.value).isascii()
    return str(caught.value)


def _nested(depth: int, open_: str = "[", close: str = "]") -> bytes:
    return (open_ * depth + close * depth).encode()


def test_depth_64_passes_and_65_does_not() -> None:
    assert decode_json(_nested(64))
    assert "deeper than 64" in _refused(_nested(65))
    assert decode_json(b'{"a":' * 63 + b"[]" + b"}" * 63)
    assert "deeper than 64" in _refused(b'{"a":' * 64 + b"[]" + b"}" * 64)
    assert "deeper than 64" in _refused(b"[" * 1_000_000)
    assert "deeper than 64" in _refused(b'[{"a":' * 500_000)


def test_brackets_in_strings_do_not_count() -> None:
    assert decode_json(b'"' + b"[" * 1_000 + b'"') == "[" * 1_000
    assert decode_json(b'["\\"' + b"{" * 1_000 + b'\\\\"]') == ['"' + "{" * 1_000 + "\\"]


def test_closing_brackets_first_buy_no_depth() -> None:
    _refused(b"]" * 1_000 + b"[" * 1_000)
    _refused(b"[]" + b"]" * 100_000 + b"[" * 100_100)


@pytest.mark.parametrize(
    "body", ['{"a":1,"a":1}', '{"a":1,"b":{"c":1,"c":2}}', '[{"":0,"":0}]', '{"a":1,"\\u0061":2}']
)
def test_duplicate_members(body: str) -> None:
    assert "stands twice" in _refused(body.encode())


@pytest.mark.parametrize(
    "body", ["NaN", "Infinity", "-Infinity", "[NaN]", "1e999", "-1e999", "1" * 400 + ".0"]
)
def test_numbers_that_are_not_finite(body: str) -> None:
    _refused(body.encode())


@pytest.mark.parametrize("number", [INT64_MIN, INT64_MAX, 0, -1])
def test_integers_within_int64(number: int) -> None:
    assert decode_json(str(number).encode()) == number


@pytest.mark.parametrize(
    "digits", [str(INT64_MIN - 1), str(INT64_MAX + 1), "9" * 20, "1" * 5_000, "-" + "1" * 5_000]
)
def test_integers_outside_int64(digits: str) -> None:
    """Also of 5,000 digits, where interpreters differ in which error they raise."""
    assert "outside int64" in _refused(digits.encode())


@pytest.mark.parametrize("body", ["0.0", "-0.0", "1.5", "1e308", "1E+2", "5e-324", "1e-999", "-0"])
def test_other_numbers(body: str) -> None:
    value = decode_json(body.encode())
    assert value == float(body)
    assert decode_json(encode_json(value)) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        "{}".encode("utf-16-le"),
        "{}".encode("utf-32"),
        b"\xff",
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        b"{}{}",
        b"[1,]",
        b"{'a':1}",
        b"{a:1}",
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"0x1",
        b"1_0",
        "٣".encode(),
        "[１]".encode(),
        b"\x0b[]",
        b"\xc2\xa0[]",
        b"// c\n1",
        b"nul",
        b"True",
        b'"\n"',
        b'"\t"',
        b'"\\x41"',
        b'"\\u12g4"',
        b'"\\u 123"',
        b'"\\u+123"',
        b'"\\u1_23"',
        b'"abc',
        b'"abc\\',
        b"\x00",
    ],
)
def test_what_is_no_json(body: bytes) -> None:
    _refused(body)


@pytest.mark.parametrize(
    "body", [rb'"\ud800"', rb'"\udc00"', rb'"\ud800\u0041"', rb'{"\udfff":1}', rb'["a",{"b":"\udead"}]']
)
def test_lone_surrogate_escapes(body: bytes) -> None:
    assert "lone surrogate" in _refused(body)


def test_a_surrogate_pair_is_a_character() -> None:
    assert decode_json(rb'"\ud83d\ude00"') == "😀"


@pytest.mark.parametrize("body", [rb'"\u0000"', rb'{"a\u0000":1}', rb'[["\u0000"]]'])
def test_nul_escapes(body: bytes) -> None:
    assert "NUL" in _refused(body)


def test_blanks_around_are_json() -> None:
    assert decode_json(b' \t\r\n{ "a" : [ ] }\n') == {"a": []}


MIB = 1024 * 1024


@pytest.mark.parametrize(
    "body",
    [
        b'"' * MIB,
        b'"\\' * (MIB // 2),
        b'\\"' * (MIB // 2),
        b'"' + b"\\" * MIB,
        b'"' + b'\\"' * (MIB // 2),
        b'"' + b"a" * MIB,
        b'["' + b'\\\\"' * (MIB // 3),
        b'"a' * (MIB // 2),
        b"[" + b'"",' * (MIB // 3),
        b"[" + b"{}," * (MIB // 3),
        b"{" * MIB,
        b"1" * MIB,
        b"1." + b"1" * MIB,
        b"[" + b"1," * (MIB // 2),
    ],
    ids=range(14),
)
def test_hostile_text_of_the_size_limit_is_refused_in_one_pass(body: bytes) -> None:
    """A quadratic scan of a mebibyte would take hours: that this test ends is the proof."""
    _refused(body)


def test_long_strings_are_read() -> None:
    assert decode_json(b'"' + b'\\"' * (MIB // 2) + b'"') == '"' * (MIB // 2)


_scalars = (
    st.none()
    | st.booleans()
    | st.integers(INT64_MIN, INT64_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
)
_strings = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
_values = st.recursive(
    _scalars | _strings, lambda inner: st.lists(inner) | st.dictionaries(_strings, inner), max_leaves=20
)


@given(_values)
def test_what_is_written_is_read_back(value: Any) -> None:
    body = encode_json(value)
    assert decode_json(body) == value
    assert encode_json(decode_json(body)) == body


@given(st.binary(max_size=40) | st.text('[]{}",:\\u0d8e1.-+ntf ', max_size=40).map(str.encode))
def test_decoding_is_total_and_accepts_no_more_than_the_standard_library(body: bytes) -> None:
    try:
        value = decode_json(body)
    except InvalidError:
        return
    assert json.loads(body) == value


def test_members_are_sorted_in_the_canonical_form() -> None:
    assert encode_json({"b": 1, "a": {"d": None, "c": "é"}}) == '{"a":{"c":"é","d":null},"b":1}'.encode()
    with pytest.raises(ValueError, match="JSON"):
        encode_json(float("nan"))
