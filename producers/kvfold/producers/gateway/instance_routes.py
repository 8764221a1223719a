"""The write routes of orchestration instances, with what the OpenAPI document says about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvfold.http.positions import POSITION_HEADER
from kvfold.http.routes import Answer, Body, Endpoint, Parameter, Route, json_answer, problem_answers
from kvfold.producers.gateway import instances
from kvfold.producers.gateway.documents import DecisionDocument, RemovedDocument
from kvfold.producers.gateway.handlers import IDEMPOTENCY_KEY, UNAVAILABLE, Handler

__all__ = ["instance_write_routes"]

_TAG: Final = "instances"
_BASE: Final = "/v1/instances"
_PATH: Final = (Parameter("id", "The instance: no control characters, 1 to 256 bytes"),)
_INCARNATION: Final = Parameter(
    "incarnation", "Only if it is still this one", {"type": "integer", "minimum": 0}
)
_DECIDED: Final = json_answer("What was decided.", DecisionDocument, headers=(POSITION_HEADER,))
_MALFORMED: Final = (
    "malformed",
    "malformed-body",
    "malformed-name",
    "malformed-precondition",
    "malformed-idempotency-key",
)
_CHANGES: Final = problem_answers(
    {
        400: (*_MALFORMED, "unknown-type"),
        404: ("unknown-instance",),
        409: ("finished", "wrong-mode", "current-execution"),
        413: ("too-large",),
        422: ("limit", "id-reused"),
        503: UNAVAILABLE,
    }
)


def instance_write_routes(bound: Callable[[Handler], Endpoint], *, with_reader: bool) -> list[Route]:
    """Starting, telling, pruning and deleting instances; the bulk prune only where the process reads."""
    found = [_start(bound), *_told(bound), _prune(bound), _delete(bound)]
    return [_prune_many(bound), *found] if with_reader else found


def _start(bound: Callable[[Handler], Endpoint]) -> Route:
    return Route(
        "POST",
        _BASE,
        bound(instances.start),
        "Start an instance",
        _TAG,
        headers=(IDEMPOTENCY_KEY,),
        body=Body({"application/json": instances.StartBody}),
        answers=(
            json_answer(
                "Started.", instances.InstanceStarted, status=201, headers=(POSITION_HEADER, "Location")
            ),
            *problem_answers(
                {
                    400: _MALFORMED,
                    409: ("already-exists",),
                    413: ("too-large",),
                    422: ("limit", "id-reused"),
                    503: UNAVAILABLE,
                }
            ),
        ),
    )


def _told(bound: Callable[[Handler], Endpoint]) -> list[Route]:
    return [
        Route(
            "POST",
            f"{_BASE}/{{id}}/events",
            bound(instances.raise_event),
            "Raise an event for an instance",
            _TAG,
            "It waits, in order, until the code waits for one of its name.",
            path=_PATH,
            headers=(IDEMPOTENCY_KEY,),
            body=Body({"application/json": instances.EventBody}),
            answers=(_DECIDED, *_CHANGES),
        ),
        Route(
            "POST",
            f"{_BASE}/{{id}}/cancel",
            bound(instances.cancel),
            "Ask an instance to end",
            _TAG,
            "Its code may tidy up first. The body may be left out.",
            path=_PATH,
            headers=(IDEMPOTENCY_KEY,),
            body=Body({"application/json": instances.CancelBody}),
            answers=(_DECIDED, *_CHANGES),
        ),
    ]


def _prune(bound: Callable[[Handler], Endpoint]) -> Route:
    return Route(
        "POST",
        f"{_BASE}/{{id}}/prune",
        bound(instances.prune),
        "Remove ended executions of an instance",
        _TAG,
        "With the keys that they wrote last, unless these are kept. The current execution is never removed.",
        path=_PATH,
        headers=(IDEMPOTENCY_KEY,),
        body=Body({"application/json": instances.PruneBody}),
        answers=(
            json_answer("How many executions went.", RemovedDocument, headers=(POSITION_HEADER,)),
            *_CHANGES,
        ),
    )


def _prune_many(bound: Callable[[Handler], Endpoint]) -> Route:
    return Route(
        "POST",
        "/v1/executions/prune",  # below /v1/instances it would be an instance's id
        bound(instances.prune_instances),
        "Remove ended executions of many instances",
        _TAG,
        "Go on with `start` = `next_start` while there is one. Repeating it is safe, and does what is left to do.",
        body=Body({"application/json": instances.BulkPruneBody}),
        answers=(
            json_answer("What went.", instances.BulkPrunedDocument),
            *problem_answers(
                {
                    400: (*_MALFORMED, "malformed-prefix"),
                    413: ("too-large",),
                    503: (*UNAVAILABLE, "store-unavailable", "not-up-to-position"),
                }
            ),
        ),
    )


def _delete(bound: Callable[[Handler], Endpoint]) -> Route:
    return Route(
        "DELETE",
        f"{_BASE}/{{id}}",
        bound(instances.delete_instance),
        "Delete an instance, and its children",
        _TAG,
        "Whether it has ended or not. What still arrives for it is refused, and a reused id starts empty.",
        path=_PATH,
        query=(_INCARNATION,),
        headers=(IDEMPOTENCY_KEY,),
        answers=(
            Answer(204, "Not there any more.", headers=(POSITION_HEADER,)),
            *problem_answers(
                {
                    400: (
                        "malformed-name",
                        "malformed-incarnation",
                        "malformed-precondition",
                        "malformed-idempotency-key",
                    ),
                    404: ("unknown-instance",),
                    409: ("wrong-incarnation",),
                    422: ("id-reused",),
                    503: UNAVAILABLE,
                }
            ),
        ),
    )
