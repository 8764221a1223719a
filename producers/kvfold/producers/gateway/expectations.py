"""What a key route's headers expect of the entry: `X-Object-Version` and RFC 9110's conditions, made one precondition.

With `If-Match` or `If-None-Match`, RFC 9110 decides alone (412), and an absent `X-Object-Version` means nothing. Both at
once must say the same: a version that the condition would overrule in silence is a contradiction, 400.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.precondition import ABSENT, ANY, Precondition, PreconditionKind

__all__ = ["Expectation", "expected_by_delete", "expected_by_put", "expected_of_content"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """A precondition, and whether it came from RFC 9110's headers: its failure is then 412, else 409."""

    precondition: Precondition
    is_conditional: bool

    @property
    def needs_presence(self) -> bool:
        """True for `If-Match`, which never holds for an absent key (RFC 9110, 13.1.1)."""
        positive = self.precondition.kind in (PreconditionKind.VERSION, PreconditionKind.SHA256)
        return self.is_conditional and (
            self.precondition.kind is PreconditionKind.PRESENT or (positive and not self.precondition.negated)
        )


def expected_by_put(object_version: int | None, conditional: Precondition | None) -> Expectation:
    """A put of a deployment's entry: without conditions, no version and 0 both mean "create" (row D3).

    Raises:
        InvalidError: `malformed-precondition`: the two contradict each other.
    """
    asked = ABSENT if not object_version else Precondition.version(object_version)
    return _combined(asked, conditional, stated=object_version is not None)


def expected_by_delete(object_version: int | None, conditional: Precondition | None) -> Expectation:
    """A delete of a deployment's entry: without conditions, no version and 0 both mean "whatever it is".

    Raises:
        InvalidError: `malformed-precondition`: the two contradict each other.
    """
    asked = ANY if not object_version else Precondition.version(object_version)
    return _combined(asked, conditional, stated=bool(object_version))


def expected_of_content(conditional: Precondition | None) -> Expectation:
    """A capsule's write: conditions compare the content's hash, and without any it is unconditional."""
    return Expectation(conditional or ANY, conditional is not None)


def _combined(asked: Precondition, conditional: Precondition | None, *, stated: bool) -> Expectation:
    if conditional is None:
        return Expectation(asked, False)
    if stated and asked != conditional:
        raise InvalidError(
            "X-Object-Version contradicts If-Match or If-None-Match: send one of them, or the same in both",
            code="malformed-precondition",
        )
    return Expectation(conditional, True)
