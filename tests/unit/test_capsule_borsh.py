"""Borsh: dataclasses in, dataclasses out; bytes as in the specification (row C14)."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvfold.producers.capsule import borsh_values
from kvfold.producers.capsule.borsh_types import F32, F64, I8, I64, I128, U8, U16, U32, U64, U128
from kvfold.producers.capsule.borsh_values import from_borsh, to_borsh
from kvfold.producers.capsule.errors import BorshError
from kvfold.producers.capsule.host import CapsuleHost
from kvfold.producers.capsule.memory_store import MemoryKvStore
from kvfold.producers.capsule.sdk import CapsuleKv

__all__: list[str] = []


class Color(Enum):
    RED = "r"
    BLUE = "b"


@dataclass(frozen=True)
class Counter:
    n: U64


@dataclass(frozen=True)
class Empty:
    pass


@dataclass(frozen=True)
class Nested:
    _hidden: U8
    counter: Counter | None


@dataclass(frozen=True)
class All:
    flag: bool
    small: I8
    wide: I128
    huge: U128
    half: F32
    real: float
    text: str
    raw: bytes
    items: list[Nested]
    pair: tuple[U16, str]
    some: tuple[I64, ...]
    by_name: dict[str, U32]
    seen: set[U8]
    color: Color
    nothing: Empty
    maybe: F64 | None


@pytest.fixture
def kv() -> Iterator[CapsuleKv]:
    host = CapsuleHost(MemoryKvStore(), capsule_id="notes")
    with host.load():
        yield host.kv


@pytest.mark.row("C14")
def test_a_dataclass_is_written_and_read(kv: CapsuleKv) -> None:
    kv.set_borsh("counter", Counter(258))
    assert kv.get_bytes("counter") == b"\x02\x01\0\0\0\0\0\0"
    assert kv.get_borsh("counter", Counter) == kv.get_borsh_opt("counter", Counter) == Counter(258)
    assert kv.get_borsh_opt("none", Counter) is None
    with pytest.raises(BorshError, match="missing"):
        kv.get_borsh("none", Counter)


@pytest.mark.row("C14")
def test_the_bytes_are_those_of_the_specification() -> None:
    value = All(
        flag=True,
        small=-1,
        wide=-2,
        huge=1,
        half=0.5,
        real=-2.0,
        text="é",
        raw=b"\0\xff",
        items=[Nested(7, None), Nested(8, Counter(1))],
        pair=(258, "a"),
        some=(-1,),
        by_name={"b": 1, "a": 2},
        seen={9, 3},
        color=Color.BLUE,
        nothing=Empty(),
        maybe=None,
    )
    written = (
        b"\x01"
        b"\xff"
        b"\xfe" + b"\xff" * 15 + b"\x01" + b"\0" * 15 + b"\0\0\0\x3f"
        b"\0\0\0\0\0\0\0\xc0"
        b"\x02\0\0\0\xc3\xa9"
        b"\x02\0\0\0\0\xff"
        b"\x02\0\0\0"
        b"\x07\0"
        b"\x08\x01\x01\0\0\0\0\0\0\0"
        b"\x02\x01\x01\0\0\0a"
        b"\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"
        b"\x02\0\0\0"
        b"\x01\0\0\0a\x02\0\0\0"
        b"\x01\0\0\0b\x01\0\0\0"
        b"\x02\0\0\0\x03\x09"
        b"\x01"
        b"\0"
    )
    assert to_borsh(value) == written
    assert from_borsh(written, All) == value


@given(
    st.builds(
        All,
        flag=st.booleans(),
        small=st.integers(-128, 127),
        wide=st.integers(-(2**127), 2**127 - 1),
        huge=st.integers(0, 2**128 - 1),
        half=st.floats(width=32, allow_nan=False),
        real=st.floats(allow_nan=False),
        text=st.text(),
        raw=st.binary(),
        items=st.lists(
            st.builds(
                Nested,
                _hidden=st.integers(0, 255),
                counter=st.none() | st.builds(Counter, n=st.integers(0, 2**64 - 1)),
            ),
            max_size=3,
        ),
        pair=st.tuples(st.integers(0, 2**16 - 1), st.text()),
        some=st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple),
        by_name=st.dictionaries(st.text(), st.integers(0, 2**32 - 1)),
        seen=st.sets(st.integers(0, 255)),
        color=st.sampled_from(Color),
        nothing=st.just(Empty()),
        maybe=st.none() | st.floats(allow_nan=False),
    )
)
def test_what_is_written_is_read(value: All) -> None:
    assert from_borsh(to_borsh(value), All) == value


@given(st.binary(max_size=64))
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    for kind in (All, Nested, Counter):
        try:
            value = from_borsh(raw, kind)
        except BorshError as error:
            assert error.__cause__ is None or isinstance(error.__cause__, BorshError)
        else:
            assert to_borsh(value) == raw


@dataclass
class Flag:
    flag: bool


@dataclass
class Named:
    by_name: dict[str, U8]


@dataclass
class Colored:
    color: Color


@dataclass
class Real:
    real: F64


@pytest.mark.row("C14")
@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", Counter),
        (b"\0" * 7, Counter),
        (b"\0" * 9, Counter),
        (b"\x02", Flag),
        (b"\x02", Colored),
        (b"\x02\0\0\0\x01\0\0\0b\0\x01\0\0\0a\0", Named),
        (b"\x02\0\0\0\x01\0\0\0a\0\x01\0\0\0a\0", Named),
        (b"\xff\xff\xff\xff", Named),
        (b"\0\0\0\0\0\0\xf8\x7f", Real),
        (b"\x07\x02\0", Nested),
    ],
)
def test_bytes_that_are_not_exactly_one(kv: CapsuleKv, raw: bytes, kind: type) -> None:
    kv.set_bytes("k", raw)
    for read in (kv.get_borsh, kv.get_borsh_opt):
        with pytest.raises(BorshError, match=f"{len(raw)} bytes"):
            read("k", kind)
    assert kv.get_bytes("k") == raw


@pytest.mark.row("C14")
@pytest.mark.parametrize(
    "value",
    [
        Counter(-1),
        Counter(2**64),
        Counter(True),
        Counter("1"),  # type: ignore[arg-type]
        Counter(None),  # type: ignore[arg-type]
        Flag(1),  # type: ignore[arg-type]
        Real(math.nan),
        Named([("a", 1)]),  # type: ignore[arg-type]
        Named({1: 1}),  # type: ignore[dict-item]
        Colored("r"),  # type: ignore[arg-type]
        {"n": 1},
        Counter,
        7,
    ],
)
def test_what_has_no_borsh_form_is_not_written(kv: CapsuleKv, value: object) -> None:
    kv.set_bytes("k", b"before")
    with pytest.raises(BorshError):
        kv.set_borsh("k", value)
    assert kv.get_bytes("k") == b"before"


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (int, "width"),
        (object, "no Borsh form"),
        (complex, "no Borsh form"),
        (int | str, "unions"),
        (U8 | U16 | None, "unions"),
        (list[Empty], "take no bytes"),
        (set[tuple[()]], "take no bytes"),
        (list, "no Borsh form"),
    ],
)
def test_types_that_have_no_borsh_form(annotation: Any, says: str) -> None:
    kind = dataclasses.make_dataclass("Odd", [("field", annotation)])
    with pytest.raises(BorshError, match=says):
        from_borsh(b"", kind)
    with pytest.raises(BorshError, match="dataclass"):
        from_borsh(b"", annotation)


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "borsh_construct", None)
    borsh_values._library.cache_clear()
    kind = dataclasses.make_dataclass("Fresh", [("n", U8)])
    with pytest.raises(BorshError, match=r"kvfold\[borsh\]"):
        to_borsh(kind(1))
    borsh_values._library.cache_clear()
