"""The types of Borsh that Python has no own words for, as annotations of dataclass fields.

```
@dataclass
class Counter:
    n: U64
    seen: list[U8]
```

| annotation | Borsh |
|---|---|
| `U8` … `U128`, `I8` … `I128` | integers of that width; a bare `int` is refused, since it has none |
| `F32`, `F64` | floats without NaN; a bare `float` is an `F64` |
| `bool`, `str`, `bytes` | `bool`, `String`, `Vec<u8>` |
| `list[T]`, `set[T]`, `dict[K, V]` | `Vec`, `HashSet`, `HashMap` |
| `tuple[A, B]` | a tuple; `tuple[T, ...]` is a `Vec` |
| `T | None` | `Option<T>` |
| an `Enum` | an enum without data: the place of the member is its number, whatever its value |
| a dataclass | a struct: its fields in order |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

__all__ = [
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "I128",
    "U8",
    "U16",
    "U32",
    "U64",
    "U128",
    "BorshName",
]


@dataclass(frozen=True, slots=True)
class BorshName:
    """The name of a number's type in `borsh_construct`: `U64`."""

    name: str


U8 = Annotated[int, BorshName("U8")]
U16 = Annotated[int, BorshName("U16")]
U32 = Annotated[int, BorshName("U32")]
U64 = Annotated[int, BorshName("U64")]
U128 = Annotated[int, BorshName("U128")]
I8 = Annotated[int, BorshName("I8")]
I16 = Annotated[int, BorshName("I16")]
I32 = Annotated[int, BorshName("I32")]
I64 = Annotated[int, BorshName("I64")]
I128 = Annotated[int, BorshName("I128")]
F32 = Annotated[float, BorshName("F32")]
F64 = Annotated[float, BorshName("F64")]
