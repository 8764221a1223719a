"""Answers of the write routes: what became of a mutation, as a response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel
from starlette.responses import Response

from kvfold.http.positions import POSITION_HEADER
from kvfold.http.problems import Problem, problem_of_decision, problem_of_error
from kvfold.producers.gateway.statuses import applied_status
from kvfold.producers.gateway.writing import Undecided, Written
from kvfold.producers.outcomes import Decided
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision, DecisionStatus

__all__ = ["Done", "applied_answer", "json_response", "undecided_answer", "unless_applied"]

_DETAILS: Final[Mapping[str, str]] = {
    "log-unavailable": "the log did not acknowledge the write, which may be in it or not: "
    "repeating it with this mutation id as Idempotency-Key is safe",
    "outcome-unknown": "the write is in the log and not decided yet: "
    "repeating it with this mutation id as Idempotency-Key gives its outcome",
}


@dataclass(frozen=True, slots=True)
class Done:
    """An outcome in the volatile tier: a decision without a place in the log."""

    decision: Decision
    mutation_id: None = None
    position: None = None


def unless_applied(
    written: Written | Done, *, is_conditional: bool, needs_presence: bool = False
) -> Decided | Done | Response:
    """The applied write, else the problem that the client hears.

    `is_conditional`: the precondition came from RFC 9110's headers, so its failure is 412. `needs_presence`: it came
    from If-Match, which never holds for an absent key, while the fold lets a delete of one succeed (row D3).
    """
    match written:
        case Undecided():
            return undecided_answer(written)
        case Decided(decision=decision) | Done(decision=decision):
            if decision.status is DecisionStatus.APPLIED:
                if not needs_presence or decision.version != 0:
                    return written
                decision = Decision(DecisionStatus.CONFLICT, "version-conflict", version=0)
            problem = problem_of_decision(
                decision,
                position=None if written.position is None else str(written.position),
                mutation_id=written.mutation_id,
                is_conditional=is_conditional,
            )
            return problem.response()


def undecided_answer(undecided: Undecided) -> Response:
    """503 with mutation id and, where the log acknowledged, position: everything that a safe repeat needs."""
    problem = problem_of_error(undecided.error)
    position = None if undecided.position is None else str(undecided.position)
    headers = dict(problem.headers)
    if position is not None:
        headers[POSITION_HEADER] = position
    members = {"mutation_id": undecided.mutation_id, "position": position}
    # The errors' own texts may name servers, which are no business of a client.
    detail = _DETAILS.get(problem.code, problem.detail)
    return Problem(problem.status, problem.code, detail, headers, members).response()


def applied_answer(
    mutation: Mutation,
    decided: Decided | Done,
    document: BaseModel | None = None,
    *,
    etag: str | None = None,
) -> Response:
    """200, 201 or 204 with position, version and tag; a 204 has position alone. What is volatile has no position."""
    status = applied_status(mutation, decided.decision)
    if status == 204:
        return Response(status_code=204, headers=_position(decided))
    assert document is not None, "only a 204 has no document"
    return json_response(document, status=status, decided=decided, etag=etag)


def json_response(
    document: BaseModel, *, decided: Decided | Done, status: int = 200, etag: str | None = None
) -> Response:
    """A document about a decision, with the headers that the decision has."""
    headers = _position(decided)
    if decided.decision.version is not None:
        headers["X-Object-Version"] = str(decided.decision.version)
    if etag is not None:
        headers["ETag"] = etag
    return Response(document.model_dump_json().encode(), status, headers, media_type="application/json")


def _position(decided: Decided | Done) -> dict[str, str]:
    return {} if decided.position is None else {POSITION_HEADER: str(decided.position)}
