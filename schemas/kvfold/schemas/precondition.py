"""Preconditions: the grammar of `ce_kvexpected` (contract, "A log record").

```
any | absent | present | [not:]version:N[,M…] | [not:]sha256:HEX[,HEX…]
```

`version` is for deployments, `sha256` (of the stored bytes, lower-case hex) for capsules. `not:` never holds for a
listed value and holds for an absent key as RFC 9110 has it for `If-None-Match`. At most 16 values in a list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import INT64_MAX

__all__ = ["ABSENT", "ANY", "PRESENT", "Precondition", "PreconditionKind"]

_LIST_MAX = 16
_VERSION = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ACCEPTED = "any, absent, present, [not:]version:N[,M], [not:]sha256:HEX[,HEX] are accepted"


class PreconditionKind(StrEnum):
    """What is compared."""

    ANY = "any"
    ABSENT = "absent"
    PRESENT = "present"
    VERSION = "version"
    SHA256 = "sha256"


@dataclass(frozen=True, slots=True)
class Precondition:
    """What must hold of the entry for the mutation to apply; `str()` gives the canonical header text."""

    kind: PreconditionKind
    values: tuple[str, ...] = ()
    negated: bool = False

    @classmethod
    def parse(cls, text: str) -> Precondition:
        """Parses the header text.

        Raises:
            InvalidError: `malformed-precondition`; blanks, signs, leading zeros and repeated values included.
        """
        if text in _WORDS:
            return _WORDS[text]
        negated = text.startswith("not:")
        kind, _, rest = text.removeprefix("not:").partition(":")
        values = tuple(rest.split(","))
        pattern = _PATTERNS.get(kind)
        if pattern is None or len(values) > _LIST_MAX or len(set(values)) != len(values):
            raise _malformed(text)
        if not all(pattern.fullmatch(value) for value in values):
            raise _malformed(text)
        if kind == "version" and any(int(value) > INT64_MAX for value in values):
            raise _malformed(text)
        return cls(PreconditionKind(kind), values, negated)

    @classmethod
    def version(cls, *versions: int, negated: bool = False) -> Precondition:
        """The entry has (or, negated, has not) one of these versions."""
        return cls.parse(("not:" if negated else "") + "version:" + ",".join(map(str, versions)))

    @classmethod
    def sha256(cls, *digests: str, negated: bool = False) -> Precondition:
        """The entry's bytes hash to (or, negated, to none of) these lower-case hex digests."""
        return cls.parse(("not:" if negated else "") + "sha256:" + ",".join(digests))

    def holds(self, current: str | None) -> bool:
        """Whether it holds for an entry whose version or digest is `current`; None = the key is absent."""
        match self.kind:
            case PreconditionKind.ANY:
                return True
            case PreconditionKind.ABSENT:
                return current is None
            case PreconditionKind.PRESENT:
                return current is not None
            case PreconditionKind.VERSION | PreconditionKind.SHA256:
                return (current in self.values) != self.negated

    def __str__(self) -> str:
        prefix = "not:" if self.negated else ""
        return prefix + self.kind + (":" + ",".join(self.values) if self.values else "")


ANY = Precondition(PreconditionKind.ANY)
ABSENT = Precondition(PreconditionKind.ABSENT)
PRESENT = Precondition(PreconditionKind.PRESENT)
_WORDS = {"any": ANY, "absent": ABSENT, "present": PRESENT}
_PATTERNS = {"version": _VERSION, "sha256": _SHA256}


def _malformed(text: str) -> InvalidError:
    # In ASCII: what repr() leaves as it is depends on the interpreter's Unicode table, and decisions keep this sentence.
    return InvalidError(f"malformed precondition {text[:120]!a}: {_ACCEPTED}", code="malformed-precondition")
