"""A mutation: what a producer asks for."""

from __future__ import annotations

from dataclasses import dataclass

from kvfold.schemas.precondition import ANY, Precondition

__all__ = ["Mutation"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A mutation with its precondition, as appended and as decoded again.

    - `type`: full name, such as `kvfold.capsule.set.v1`; `scope`: the record key, such as `c:alice:capsule:notes`.
    - `id`: a UUID in lower-case canonical text, the idempotency key within the scope.
    - `subject`: key or prefix, None where the type has none; `namespace`: of deployments.
    - `body`: raw bytes; None for types without a body. An empty value is `b""`.
    - `version`, `snapshot`: of a restored entry, its version and the UUID of the snapshot that it comes from.
    - `source`, `time` (RFC 3339), `actor`, `traceparent`: informational, no decision uses them.
    """

    type: str
    scope: str
    id: str
    subject: str | None = None
    namespace: str | None = None
    expected: Precondition = ANY
    body: bytes | None = None
    content_type: str | None = None
    source: str = "kvfold"
    time: str | None = None
    actor: str | None = None
    traceparent: str | None = None
    version: int | None = None
    snapshot: str | None = None
