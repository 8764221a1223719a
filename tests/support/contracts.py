"""The frozen contracts in `schemas/contracts`, read as far as the tests compare with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["CONTRACTS", "KV", "Contract", "Function"]

CONTRACTS: Final = Path(__file__).parents[2] / "schemas" / "contracts"
_FUNCTION: Final = re.compile(
    r"/// Fails with: (?P<codes>[^.]*)\.\n\s*(?P<name>[a-z-]+): func\((?P<parameters>[^)]*)\) "
    r"-> result<(?P<result>.+), error-code>;"
)
_VARIANT: Final = re.compile(r"variant error-code \{(.*?)\}", re.DOTALL)
_CASE: Final = re.compile(r"^\s*([a-z-]+)(?:\(string\))?,$", re.MULTILINE)


@dataclass(frozen=True)
class Function:
    """A function: parameters as (name, type), the type of its result, the codes that it fails with."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    result: str
    codes: tuple[str, ...]


@dataclass(frozen=True)
class Contract:
    """A package's functions and error codes."""

    package: str
    functions: tuple[Function, ...]
    codes: tuple[str, ...]


def _read(name: str) -> Contract:
    text = (CONTRACTS / name).read_text("utf-8")
    package = re.search(r"^package (\S+);$", text, re.MULTILINE)
    variant = _VARIANT.search(text)
    assert package is not None and variant is not None
    functions = tuple(
        Function(
            found["name"],
            tuple(
                (parameter.partition(": ")[0], parameter.partition(": ")[2])
                for parameter in found["parameters"].split(", ")
            ),
            found["result"],
            tuple(found["codes"].split(", ")),
        )
        for found in _FUNCTION.finditer(text)
    )
    assert len(functions) == text.count(": func("), "every function is read"
    return Contract(package[1], functions, tuple(_CASE.findall(variant[1])))


KV: Final = _read("kv@1.0.0.wit")
"""Key-value storage of capsules, 1.0.0."""
