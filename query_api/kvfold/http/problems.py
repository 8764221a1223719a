"""Problem documents (RFC 9457): one stable `code` for each thing that can go wrong, and its HTTP status.

A problem says what was wrong and what is accepted. It never carries a traceback, a connection string or a stored value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from kvfold.schemas.errors import (
    ConflictError,
    GoneError,
    InvalidError,
    KvfoldError,
    OutcomeUnknownError,
    PartitionPausedError,
    RejectedError,
    StoreUnavailableError,
    UnavailableError,
)
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = [
    "INTERNAL",
    "PROBLEM_MEDIA_TYPE",
    "BodyTooLargeError",
    "MethodNotAllowedError",
    "NotFoundError",
    "Problem",
    "problem_of_decision",
    "problem_of_error",
    "status_of_code",
]

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"

_RETRY_AFTER_S: Final = "1"
_NO_HEADERS: Final[Mapping[str, str]] = {}
_NO_MEMBERS: Final[Mapping[str, Any]] = {}
# What is not here is 400: wrong in itself (`invalid-key`, `invalid-namespace`, `secret-and-volatile`, `malformed-…`).
_STATUS_BY_CODE: Final[Mapping[str, int]] = {
    "not-found": 404,
    "unknown-instance": 404,
    "method-not-allowed": 405,
    "version-conflict": 409,
    "already-exists": 409,
    "finished": 409,
    "wrong-execution": 409,
    "wrong-incarnation": 409,
    "wrong-mode": 409,
    "wrong-parent": 409,
    "stale-turn": 409,
    "unknown-message": 409,
    "not-pending": 409,
    "early": 409,
    "current-execution": 409,
    "not-empty": 409,
    "gone": 410,
    "precondition-failed": 412,
    "cas-mismatch": 412,  # capsules know conditions only as RFC 9110 has them
    "too-large": 413,
    "quota": 422,
    "limit": 422,
    "wrong-partition": 422,
    "id-reused": 422,
    "internal": 500,
    "secret-unreadable": 500,
    "log-unavailable": 503,
    "store-unavailable": 503,
    "outcome-unknown": 503,
    "partition-paused": 503,
    "not-up-to-position": 503,
    "encryption-key-missing": 503,
    "volatile-unavailable": 503,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What a problem document says; `members` are further JSON members, `headers` further response headers."""

    status: int
    code: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS)
    members: Mapping[str, Any] = field(default_factory=lambda: _NO_MEMBERS)

    def response(self, *, headers: Mapping[str, str] = _NO_HEADERS) -> Response:
        """The response; `headers` are added to the problem's own."""
        document = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **self.members,
        }
        # Lone surrogates cannot be here: every text came in as UTF-8, or is escaped by the error that quotes it.
        body = json.dumps(document, separators=(",", ":")).encode()
        return Response(body, self.status, {**self.headers, **headers}, media_type=PROBLEM_MEDIA_TYPE)


INTERNAL: Final = Problem(500, "internal", "an error of ours; the server's log has it")


class NotFoundError(KvfoldError):
    """There is no such route, or nothing under the name; `headers` go on the response (position, versions)."""

    def __init__(
        self, message: str = "no such resource", *, headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        super().__init__(message, code="not-found")
        self.headers = headers


class MethodNotAllowedError(KvfoldError):
    """The path is right, the method is not; `allow` lists what is."""

    def __init__(self, allow: str) -> None:
        super().__init__(f"this resource takes {allow}", code="method-not-allowed")
        self.allow = allow


class BodyTooLargeError(InvalidError):
    """The request's body is over the limit. `closes_connection`: it was not read to its end."""

    def __init__(self, limit: int, *, closes_connection: bool) -> None:
        super().__init__(f"the body is too large: at most {limit} bytes are accepted", code="too-large")
        self.closes_connection = closes_connection


def status_of_code(code: str) -> int:
    """The HTTP status of a code; 400 for what is wrong in itself."""
    return _STATUS_BY_CODE.get(code, 400)


def problem_of_error(error: KvfoldError) -> Problem:
    """The problem that an error is to the client. Faults of configuration and divergence are `internal`."""
    match error:
        case NotFoundError():
            return _problem(error, headers=error.headers)
        case MethodNotAllowedError():
            return _problem(error, headers={"Allow": error.allow})
        case BodyTooLargeError(closes_connection=True):
            return _problem(error, headers={"Connection": "close"})
        case ConflictError():
            return _problem(error, headers=_version_header(error.version), members=_version(error.version))
        case OutcomeUnknownError():
            members = {"mutation_id": error.mutation_id, "position": error.position}
            return _problem(error, headers={"Retry-After": _RETRY_AFTER_S}, members=members)
        case StoreUnavailableError():
            # The driver's text names hosts and sockets, which are no business of a client.
            detail = "the store does not answer; try again"
            return Problem(503, error.code, detail, {"Retry-After": _RETRY_AFTER_S})
        case PartitionPausedError():
            return _problem(error)  # an operator has to mend it: no Retry-After
        case UnavailableError():
            return Problem(503, error.code, str(error), {"Retry-After": _RETRY_AFTER_S})
        case InvalidError() | RejectedError() | GoneError():
            return _problem(error)
        case _:
            known = error.code in _STATUS_BY_CODE
            return _problem(error) if known else INTERNAL


def problem_of_decision(
    decision: Decision,
    *,
    position: str | None,
    mutation_id: str | None = None,
    is_conditional: bool = False,
) -> Problem:
    """The problem that a refused mutation is to the client. Not for applied ones. What is volatile has no position.

    `is_conditional`: the precondition came from If-Match or If-None-Match, so its failure is 412.
    """
    assert decision.status in (DecisionStatus.CONFLICT, DecisionStatus.REJECTED)
    code = decision.code or decision.status.value
    status = status_of_code(code)
    if is_conditional and code == "version-conflict":
        status = 412
    return Problem(
        status,
        code,
        decision.detail or _DETAIL.get(code, code),
        {**({"X-Kvfold-Position": position} if position else {}), **_version_header(decision.version)},
        {
            **({"position": position} if position else {}),
            **({"mutation_id": mutation_id} if mutation_id else {}),
            **_version(decision.version),
        },
    )


_DETAIL: Final[Mapping[str, str]] = {
    "version-conflict": "the precondition does not hold for the current version",
    "cas-mismatch": "the precondition does not hold for the current value",
    "already-exists": "there is one of that name",
    "unknown-instance": "no instance has that id",
    "finished": "the instance has ended",
    "wrong-execution": "the instance is in another execution",
    "wrong-incarnation": "the instance of that id is another one",
    "wrong-mode": "an instance is either external, or run by workers: this one is of the other kind",
    "current-execution": "the current execution of an instance is never pruned",
    "not-empty": "the scope holds entries that are not of this snapshot: restoring takes an empty scope",
}


def _problem(
    error: KvfoldError, *, headers: Mapping[str, str] = _NO_HEADERS, members: Mapping[str, Any] = _NO_MEMBERS
) -> Problem:
    return Problem(status_of_code(error.code), error.code, str(error), headers, members)


def _version(version: int | None) -> Mapping[str, Any]:
    return _NO_MEMBERS if version is None else {"version": version}


def _version_header(version: int | None) -> Mapping[str, str]:
    return _NO_HEADERS if version is None else {"X-Object-Version": str(version)}
