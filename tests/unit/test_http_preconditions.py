"""Conditional requests (RFC 9110, section 13; Kinto#248): tags, lists, `*`, repeated headers, strong and weak."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvfold.http.call import Call
from kvfold.http.preconditions import (
    ETag,
    digest_etag,
    parse_etags,
    read_condition,
    version_etag,
    write_condition,
)
from kvfold.schemas.errors import InvalidError

HEX = "ab" * 32
OTHER = "cd" * 32


def call_with(*headers: tuple[str, str]) -> Call:
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    scope: dict[str, Any] = {"type": "http", "method": "GET", "headers": pairs}

    async def receive() -> dict[str, Any]:
        raise NotImplementedError

    return Call(scope, receive, path={}, query={})


def condition(kind: Literal["version", "sha256"], *headers: tuple[str, str]) -> str | None:
    precondition = write_condition(call_with(*headers), kind)
    return None if precondition is None else str(precondition)


def test_tags() -> None:
    assert parse_etags([], header="If-Match") is None
    listed = parse_etags([b'"a", W/"b" ,"",  "c,d"'], header="If-Match")
    assert listed is not None
    assert listed.tags == (ETag(b"a"), ETag(b"b", True), ETag(b""), ETag(b"c,d"))
    star = parse_etags([b" * "], header="If-Match")
    assert star is not None
    assert star.is_any


def test_repeated_headers_are_one_list() -> None:
    listed = parse_etags([b'"a"', b'"b",'], header="If-Match")
    assert listed is not None
    assert [tag.opaque for tag in listed.tags] == [b"a", b"b"]


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        ",",
        "7",
        '"',
        '"a',
        'a"',
        '"a" "b"',
        '"a""b"',
        'w/"a"',
        "W/a",
        "**",
        '*, "a"',
        '"a", *',
        '"a b\x7f"',
        "'a'",
        ",".join(f'"{n}"' for n in range(17)),
    ],
)
@pytest.mark.parametrize("header", ["If-Match", "If-None-Match"])
def test_a_malformed_condition_is_never_unconditional(header: str, value: str) -> None:
    with pytest.raises(InvalidError) as caught:
        write_condition(call_with((header, value)), "version")
    assert caught.value.code == "malformed-precondition"
    with pytest.raises(InvalidError):
        read_condition(call_with((header, value)), '"1"')


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=3))
def test_any_header_is_a_list_or_refused(values: list[bytes]) -> None:
    try:
        parse_etags(values, header="If-Match")
    except InvalidError as error:
        assert error.code == "malformed-precondition"


@pytest.mark.parametrize(
    ("header", "value", "etag", "expected"),
    [
        ("If-None-Match", '"7"', '"7"', 304),
        ("If-None-Match", 'W/"7"', '"7"', 304),
        ("If-None-Match", '"6", "7"', '"7"', 304),
        ("If-None-Match", "*", '"7"', 304),
        ("If-None-Match", '"6"', '"7"', None),
        ("If-None-Match", "*", None, None),
        ("If-None-Match", '"7"', None, None),
        ("If-Match", '"7"', '"7"', None),
        ("If-Match", '"6","7"', '"7"', None),
        ("If-Match", "*", '"7"', None),
        ("If-Match", 'W/"7"', '"7"', 412),
        ("If-Match", '"6"', '"7"', 412),
        ("If-Match", '"7"', None, 412),
        ("If-Match", "*", None, 412),
    ],
)
def test_reads(header: str, value: str, etag: str | None, expected: int | None) -> None:
    assert read_condition(call_with((header, value)), etag) == expected


def test_reads_heed_if_match_first() -> None:
    headers = ("If-Match", '"6"'), ("If-None-Match", '"7"')
    assert read_condition(call_with(*headers), '"7"') == 412
    assert read_condition(call_with(), '"7"') is None


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("If-Match", '"7"', "version:7"),
        ("If-Match", '"7", "8","7"', "version:7,8"),
        ("If-Match", "*", "present"),
        ("If-Match", 'W/"7"', "version:0"),
        ("If-Match", '"07"', "version:0"),
        ("If-Match", '"0"', "version:0"),
        ("If-Match", '"x", "7"', "version:7"),
        ("If-Match", f'"{2**63}"', "version:0"),
        ("If-Match", f'"{2**63 - 1}"', f"version:{2**63 - 1}"),
        ("If-None-Match", "*", "absent"),
        ("If-None-Match", '"7"', "not:version:7"),
        ("If-None-Match", 'W/"7", "8"', "not:version:7,8"),
        ("If-None-Match", '"x"', "any"),
    ],
)
def test_writes_by_version(header: str, value: str, expected: str) -> None:
    assert condition("version", (header, value)) == expected


@pytest.mark.row("C15")
@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("If-Match", f'"{HEX}"', f"sha256:{HEX}"),
        ("If-Match", f'"{HEX.upper()}"', "sha256:" + "0" * 64),
        ("If-Match", '"7"', "sha256:" + "0" * 64),
        ("If-None-Match", f'"{HEX}", "{OTHER}"', f"not:sha256:{HEX},{OTHER}"),
        ("If-None-Match", "*", "absent"),
    ],
)
def test_writes_by_content(header: str, value: str, expected: str) -> None:
    assert condition("sha256", (header, value)) == expected


def test_writes_without_and_with_both() -> None:
    assert condition("version") is None
    assert condition("version", ("If-Match", '"7","8"'), ("If-None-Match", '"8"')) == "version:7"
    assert condition("version", ("If-Match", '"7"'), ("If-None-Match", '"7"')) == "version:0"
    assert condition("version", ("If-Match", '"7"'), ("If-None-Match", "*")) == "version:0"
    with pytest.raises(InvalidError):
        condition("version", ("If-Match", "*"), ("If-None-Match", '"8"'))


def test_tags_that_we_give() -> None:
    assert version_etag(7) == '"7"'
    assert digest_etag(bytes.fromhex(HEX)) == f'"{HEX}"'
