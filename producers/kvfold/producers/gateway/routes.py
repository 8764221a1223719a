"""The write routes, each with what the OpenAPI document says about it (contract, "Writes").

An app is made of a list of routes: `App([*read_routes, *write_routes(context)])` serves reads and writes as one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kvfold.http.positions import POSITION_HEADER
from kvfold.http.routes import Answer, Body, Endpoint, Parameter, Route, json_answer, problem_answers
from kvfold.producers.cloudevent_http import BATCH_MEDIA_TYPE, EVENT_MEDIA_TYPE
from kvfold.producers.gateway import capsules, deployments, events, objects, reencrypting, undeploying
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.documents import (
    CloudEventBatch,
    CloudEventDocument,
    DecisionBatch,
    DecisionDocument,
    ObjectBody,
    ObjectWritten,
    ReencryptedDocument,
    RemovedDocument,
    UndeployedDocument,
)
from kvfold.producers.gateway.events import WAIT_SECONDS_MAX
from kvfold.producers.gateway.handlers import IDEMPOTENCY_KEY, UNAVAILABLE, Handler
from kvfold.producers.gateway.instance_routes import instance_write_routes

__all__ = ["write_routes"]

_IF_MATCH: Final = Parameter(
    "If-Match", "RFC 9110: the write applies only to one of these tags, or with `*` to any entry that exists."
)
_IF_NONE_MATCH: Final = Parameter(
    "If-None-Match", "RFC 9110: with `*` only where there is no entry; with tags only to none of these."
)
_VERSION: Final = Parameter(
    "X-Object-Version",
    "The version that the entry must have; 0 or absent: PUT creates, DELETE is unconditional.",
    {"type": "integer", "minimum": 0},
)
_NAMESPACE: Final = Parameter(
    "namespace",
    "Of the user family, none that is secret.",
    {"enum": ["user", "user_volatile"]},
    required=True,
)
_OBJECT_VERSION: Final = Parameter("version", "As X-Object-Version.", {"type": "integer", "minimum": 0})
_WAIT: Final = Parameter(
    "wait",
    "How many seconds to wait for the decision.",
    {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX},
)
_BYTES: Final = Body({"application/octet-stream": None}, "The value: any bytes, at most 1 MiB.")
_WRITTEN_HEADERS: Final = (POSITION_HEADER, "X-Object-Version", "ETag")
_TIERS: Final = ("encryption-key-missing", "volatile-unavailable")
_MALFORMED: Final = (
    "invalid-key",
    "malformed-precondition",
    "malformed-version",
    "malformed-idempotency-key",
)
_CREATED: Final = json_answer("Created.", DecisionDocument, status=201, headers=_WRITTEN_HEADERS)
_REPLACED: Final = json_answer("Replaced.", DecisionDocument, headers=_WRITTEN_HEADERS)
_GONE: Final = Answer(204, "Not there any more.", headers=(POSITION_HEADER,))
_REMOVED: Final = json_answer("How many entries went.", RemovedDocument, headers=(POSITION_HEADER,))

_DEPLOYMENT_PROBLEMS: Final = problem_answers(
    {
        400: (*_MALFORMED, "malformed-name", "invalid-namespace", "secret-and-volatile"),
        409: ("version-conflict",),
        412: ("version-conflict",),
        413: ("too-large",),
        422: ("id-reused",),
        503: (*UNAVAILABLE, *_TIERS),
    }
)
_CAPSULE_PROBLEMS: Final = problem_answers(
    {
        400: (*_MALFORMED, "malformed-name"),
        412: ("cas-mismatch",),
        413: ("too-large",),
        422: ("quota", "id-reused"),
        503: UNAVAILABLE,
    }
)
_RANGE_PROBLEMS: Final = problem_answers(
    {400: ("malformed-name", "malformed-query", "invalid-key"), 422: ("id-reused",), 503: UNAVAILABLE}
)


def write_routes(context: GatewayContext) -> list[Route]:
    """Every write route of the gateway."""

    def bound(handler: Handler) -> Endpoint:
        return partial(handler, context)

    return [
        *_deployment_routes(bound),
        *([_reencrypt_route(bound)] if context.reader is not None else []),
        *_object_routes(bound),
        *_capsule_routes(bound),
        *instance_write_routes(bound, with_reader=context.reader is not None),
        _mutations_route(bound),
    ]


def _deployment_routes(bound: Callable[[Handler], Endpoint]) -> list[Route]:
    template = "/deployments/{id}/kv/{namespace}/{key:rest}"
    headers = (_VERSION, _IF_MATCH, _IF_NONE_MATCH, IDEMPOTENCY_KEY)
    return [
        Route(
            "PUT",
            template,
            bound(deployments.put_entry),
            "Put an entry",
            "deployments",
            headers=headers,
            body=_BYTES,
            answers=(_CREATED, _REPLACED, *_DEPLOYMENT_PROBLEMS),
        ),
        Route(
            "DELETE",
            template,
            bound(deployments.delete_entry),
            "Delete an entry",
            "deployments",
            "An absent entry is 204 whatever version is expected; 412 with If-Match.",
            headers=headers,
            answers=(_GONE, *_DEPLOYMENT_PROBLEMS),
        ),
        Route(
            "DELETE",
            "/deployments/{id}",
            bound(undeploying.undeploy),
            "Undeploy: remove every entry of both tiers",
            "deployments",
            "A tier that is away does not fail it: the answer says what was swept, and repeating it finishes the rest. "
            "503 where neither tier was reached.",
            headers=(IDEMPOTENCY_KEY,),
            answers=(
                json_answer("What was swept.", UndeployedDocument, headers=(POSITION_HEADER,)),
                *_RANGE_PROBLEMS,
            ),
        ),
    ]


def _reencrypt_route(bound: Callable[[Handler], Endpoint]) -> Route:
    return Route(
        "POST",
        "/deployments/{id}/reencrypt",
        bound(reencrypting.reencrypt),
        "Encrypt secrets anew with the current key, a page at a time",
        "deployments",
        "Each secret that an older key encrypted gets a new version. Go on while there is a `next_cursor`.",
        query=(Parameter("cursor", "`next_cursor` of the page before."),),
        answers=(
            json_answer("What was done.", ReencryptedDocument),
            *problem_answers(
                {
                    400: ("malformed-name", "malformed-cursor", "malformed-precondition"),
                    503: (*UNAVAILABLE, "store-unavailable", "encryption-key-missing"),
                }
            ),
        ),
    )


def _object_routes(bound: Callable[[Handler], Endpoint]) -> list[Route]:
    template = "/deployments/{id}/objects/{key:rest}"
    headers = (_VERSION, _IF_MATCH, _IF_NONE_MATCH, IDEMPOTENCY_KEY)
    query = (_NAMESPACE, _OBJECT_VERSION)
    return [
        Route(
            "PUT",
            template,
            bound(objects.put_object),
            "Put an object",
            "object browser",
            query=query,
            headers=headers,
            body=Body({"application/json": ObjectBody}),
            answers=(
                json_answer("Created.", ObjectWritten, status=201, headers=_WRITTEN_HEADERS),
                json_answer("Replaced.", ObjectWritten, headers=_WRITTEN_HEADERS),
                *_DEPLOYMENT_PROBLEMS,
            ),
        ),
        Route(
            "DELETE",
            template,
            bound(objects.delete_object),
            "Delete an object",
            "object browser",
            query=query,
            headers=headers,
            answers=(_GONE, *_DEPLOYMENT_PROBLEMS),
        ),
    ]


def _capsule_routes(bound: Callable[[Handler], Endpoint]) -> list[Route]:
    template = "/v1/capsules/{principal}/{capsule_id}/kv/{key:rest}"
    headers = (_IF_MATCH, _IF_NONE_MATCH, IDEMPOTENCY_KEY)
    return [
        Route(
            "PUT",
            template,
            bound(capsules.put_key),
            "Set a key",
            "capsules",
            headers=headers,
            body=_BYTES,
            answers=(_CREATED, _REPLACED, *_CAPSULE_PROBLEMS),
        ),
        Route(
            "DELETE",
            template,
            bound(capsules.delete_key),
            "Delete a key",
            "capsules",
            headers=headers,
            answers=(_GONE, *_CAPSULE_PROBLEMS),
        ),
        Route(
            "DELETE",
            "/v1/capsules/{principal}/{capsule_id}/keys",
            bound(capsules.clear_prefix),
            "Clear a prefix",
            "capsules",
            "Removes every key that starts with the prefix, all at once.",
            query=(Parameter("prefix", "Literal; the empty one is every key.", required=True),),
            headers=(IDEMPOTENCY_KEY,),
            answers=(_REMOVED, *_RANGE_PROBLEMS),
        ),
    ]


def _mutations_route(bound: Callable[[Handler], Endpoint]) -> Route:
    return Route(
        "POST",
        "/v1/mutations",
        bound(events.post_mutations),
        "Append CloudEvents",
        "mutations",
        "One event in binary or structured mode, or a batch. The scope is the attribute `partitionkey`. One event "
        "answers 202 without `wait`, with it what its own route answers; a batch 200 with a decision for each event.",
        query=(_WAIT,),
        body=Body(
            {
                EVENT_MEDIA_TYPE: CloudEventDocument,
                BATCH_MEDIA_TYPE: CloudEventBatch,
                "application/octet-stream": None,
            }
        ),
        answers=(
            json_answer("Decided, or one decision for each event.", DecisionDocument | DecisionBatch),
            json_answer("Created.", DecisionDocument, status=201),
            json_answer("Appended.", DecisionDocument, status=202, headers=(POSITION_HEADER, "Location")),
            _GONE,
            *problem_answers(
                {
                    400: (
                        "malformed-event",
                        "malformed",
                        "malformed-precondition",
                        "invalid-key",
                        "unknown-type",
                    ),
                    404: ("unknown-instance",),
                    409: ("version-conflict", "already-exists", "finished"),
                    412: ("cas-mismatch",),
                    413: ("too-large",),
                    422: ("quota", "limit", "id-reused"),
                    503: (*UNAVAILABLE, *_TIERS),
                }
            ),
        ),
    )
