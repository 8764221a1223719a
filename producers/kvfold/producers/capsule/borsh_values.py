"""Values in Borsh: dataclasses in, dataclasses out (002, "Borsh"; row C14). `borsh_types` says what maps to what.

The bytes are made by `borsh-construct` (extra `borsh`), which is imported when it is first needed. Reading is strict:
what is read must be written to the same bytes again, so a rest behind the value, a bool of 2, or a map out of order are
errors, as they are in Rust.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kvfold.producers.capsule.borsh_types import BorshName
from kvfold.producers.capsule.errors import BorshError

if TYPE_CHECKING:
    from construct import Construct

__all__ = ["from_borsh", "to_borsh"]

T = TypeVar("T")
_KINDS_MAX: Final = 256
_Convert = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """How a type is laid out, its values' way to and from what the library takes, and the least bytes that one has."""

    layout: Construct[Any, Any]
    plain: _Convert
    rich: _Convert
    bytes_min: int = 1


def to_borsh(value: object) -> bytes:
    """A dataclass instance's Borsh.

    Raises:
        BorshError: it is no dataclass instance, a field's type has no Borsh form, or a value is not of its type.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise BorshError(f"a {type(value).__name__} is no dataclass instance: wrap it in one")
    return _write(_kind(type(value)), value)


def from_borsh(raw: bytes, kind: type[T]) -> T:
    """An instance of the dataclass `kind`.

    Raises:
        BorshError: the bytes are not exactly one, or the type has no Borsh form.
    """
    if not dataclasses.is_dataclass(kind) or not isinstance(kind, type):
        raise BorshError(f"{kind!r} is no dataclass")
    found = _kind(kind)
    try:
        value = found.rich(found.layout.parse(raw))
    except Exception as error:
        # The library raises whatever it meets, and its texts quote the bytes.
        raise _not_one(raw, kind) from (error if isinstance(error, BorshError) else None)
    if _write(found, value) != raw:
        raise _not_one(raw, kind)
    return typing.cast(T, value)


def _not_one(raw: bytes, kind: type) -> BorshError:
    return BorshError(f"the stored value, {len(raw)} bytes, is no {kind.__name__} in Borsh")


def _write(kind: _Kind, value: object) -> bytes:
    try:
        return bytes(kind.layout.build(kind.plain(value)))
    except Exception as error:
        if isinstance(error, BorshError):
            raise
        name = type(value).__name__
        raise BorshError(f"a value of {name} is outside its type: {type(error).__name__}") from None


@lru_cache(maxsize=_KINDS_MAX)
def _kind(annotation: Any) -> _Kind:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        name = next((found for found in arguments[1:] if isinstance(found, BorshName)), None)
        return _kind(arguments[0]) if name is None else _number(arguments[0], name.name)
    if origin in (typing.Union, types.UnionType):
        return _option(annotation, arguments)
    if origin in (list, set, frozenset, tuple, dict):
        return _collection(origin, arguments)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _struct(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation)
    return _plain(annotation)


def _plain(annotation: Any) -> _Kind:
    borsh = _library()
    layouts = {bool: borsh.Bool, str: borsh.String, bytes: borsh.Bytes, float: borsh.F64}
    if annotation in layouts:
        return _exact(layouts[annotation], annotation)
    hint = ": name a width, such as U64" if annotation is int else ""
    raise BorshError(f"{annotation!r} has no Borsh form{hint}")


def _number(kind: type, name: str) -> _Kind:
    return _exact(getattr(_library(), name), kind)


def _exact(layout: Construct[Any, Any], kind: type) -> _Kind:
    """A scalar; `True` is no number, and 1 is no bool, so that what is read equals what was written."""

    def plain(value: Any) -> Any:
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise BorshError(f"a {type(value).__name__} stands where a {kind.__name__} is due")
        return value

    return _Kind(layout, plain, lambda value: value)


def _option(annotation: Any, arguments: tuple[Any, ...]) -> _Kind:
    inner = [argument for argument in arguments if argument is not type(None)]
    if len(inner) != 1 or len(arguments) != 2:
        raise BorshError(f"{annotation!r} has no Borsh form: of unions, only T | None has")
    kind = _kind(inner[0])
    return _Kind(
        _library().Option(kind.layout),
        lambda value: None if value is None else kind.plain(value),
        lambda value: None if value is None else kind.rich(value),
    )


def _collection(origin: type, arguments: tuple[Any, ...]) -> _Kind:
    borsh = _library()
    kinds = [_kind(argument) for argument in arguments if argument is not Ellipsis]
    if origin is tuple and Ellipsis not in arguments:
        return _tuple(kinds)
    if sum(kind.bytes_min for kind in kinds) == 0:
        # Four bytes could promise four thousand million of them; Rust refuses such a collection, too.
        raise BorshError(f"{origin.__name__}{list(arguments)} has members that take no bytes")
    if origin is dict:
        key, value = kinds
        return _Kind(
            borsh.HashMap(key.layout, value.layout),
            lambda given: {key.plain(k): value.plain(v) for k, v in _items(dict, given).items()},
            lambda found: {key.rich(k): value.rich(v) for k, v in found.items()},
        )
    (kind,) = kinds
    make = borsh.HashSet if origin in (set, frozenset) else borsh.Vec
    return _Kind(
        make(kind.layout),
        lambda given: [kind.plain(item) for item in _items(origin, given)],
        lambda found: origin(kind.rich(item) for item in found),
    )


def _tuple(kinds: list[_Kind]) -> _Kind:
    return _Kind(
        _library().TupleStruct(*(kind.layout for kind in kinds)),
        lambda given: [kind.plain(item) for kind, item in zip(kinds, given, strict=True)],
        lambda found: tuple(kind.rich(item) for kind, item in zip(kinds, found, strict=True)),
        sum(kind.bytes_min for kind in kinds),
    )


def _items(origin: type, given: Any) -> Any:
    if not isinstance(given, origin):
        raise BorshError(f"a {type(given).__name__} stands where a {origin.__name__} is due")
    return given


def _struct(kind: type) -> _Kind:
    fields = dataclasses.fields(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    kinds = {field.name: _kind(hints[field.name]) for field in fields}
    # The library's own structs take no names with an underscore in front: places are enough.
    layout = _library().TupleStruct(*(found.layout for found in kinds.values()))

    def plain(value: Any) -> list[Any]:
        if type(value) is not kind:
            raise BorshError(f"a {type(value).__name__} stands where a {kind.__name__} is due")
        return [found.plain(getattr(value, name)) for name, found in kinds.items()]

    def rich(values: Any) -> Any:
        pairs = zip(kinds.items(), values, strict=True)
        return kind(**{name: found.rich(value) for (name, found), value in pairs})

    return _Kind(layout, plain, rich, sum(found.bytes_min for found in kinds.values()))


def _enum(kind: type[Enum]) -> _Kind:
    members = list(kind)

    def plain(value: Any) -> int:
        if type(value) is not kind:
            raise BorshError(f"a {type(value).__name__} stands where a {kind.__name__} is due")
        return members.index(value)

    return _Kind(_library().U8, plain, lambda number: members[number])


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        import borsh_construct
    except ImportError as error:
        raise BorshError("Borsh needs the extra: pip install 'kvfold[borsh]'") from error
    return borsh_construct
