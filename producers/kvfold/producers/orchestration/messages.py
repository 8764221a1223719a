"""The mutations that workers append: each with the id that a repeat of it would have, so that it has its effect once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID, uuid5

from kvfold.producers.orchestration.store import DueTask, OutgoingMessage
from kvfold.schemas.body import Body
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.orchestration import ActivityCompleted, ActivityFailed, Turn
from kvfold.schemas.strict_json import encode_json

__all__ = ["activity_ended", "delivered", "delivery", "refusal", "timer_fired", "turn"]

_NAMESPACE: Final = UUID("9b9d8f5e-0f0f-5a53-8f0c-6c1c5f2b7d10")


def turn(scope: str, body: Turn) -> Mutation:
    """A turn. Its id is the producer's: the precondition alone decides which of several is applied."""
    return _mutation("turn", scope, body, "")


def activity_ended(task: DueTask, body: ActivityCompleted | ActivityFailed) -> Mutation:
    """How an attempt ended. Of several ends of one attempt the first in the log counts."""
    verb = "activity-completed" if isinstance(body, ActivityCompleted) else "activity-failed"
    return _mutation(
        verb, task.scope, body, _id("attempt", _task_name(task), verb, encode_json(body.model_dump()))
    )


def timer_fired(task: DueTask) -> Mutation:
    """A timer whose time has come. Its id is the producer's: one that was early is tried again."""
    place = {
        "incarnation": task.incarnation,
        "execution_id": task.execution_id,
        "event_id": task.event_id,
    }
    return _record("timer-fired", task.scope, place, "")


def delivery(message: OutgoingMessage, traceparent: str | None = None) -> Mutation:
    """The message, in its target's scope, with the trace context of what sent it."""
    sender = {
        "instance_id": message.instance_id,
        "incarnation": message.incarnation,
        "execution_id": message.execution_id,
        "event_id": message.event_id,
    }
    body: dict[str, Any]
    match message.kind:
        case "start":
            verb, body = "started", {**message.data, "mode": "runtime", "parent": sender}
        case "delete":
            verb, body = "instance-deleted", {"parent": sender}
        case _:
            verb, body = f"child-{message.kind}", dict(message.data)
    found = _record(verb, message.target, body, _id("message", _message_name(message), message.kind))
    return replace(found, traceparent=traceparent)


def refusal(message: OutgoingMessage, why: str) -> Mutation:
    """What the parent is told of a child that could not be started."""
    body = {**_sent(message), "error": why}
    return _record("child-failed", message.scope, body, _id("refusal", _message_name(message)))


def delivered(message: OutgoingMessage) -> Mutation:
    """The message has had its effect, and leaves the outbox."""
    body = {**_sent(message), "kind": message.kind}
    return _record("delivered", message.scope, body, _id("delivered", _message_name(message), message.kind))


def _sent(message: OutgoingMessage) -> dict[str, Any]:
    return {
        "incarnation": message.incarnation,
        "execution_id": message.execution_id,
        "event_id": message.event_id,
    }


def _task_name(task: DueTask) -> str:
    return f"{task.scope}\n{task.incarnation}\n{task.execution_id}\n{task.event_id}\n{task.attempt}"


def _message_name(message: OutgoingMessage) -> str:
    return f"{message.scope}\n{message.incarnation}\n{message.execution_id}\n{message.event_id}"


def _id(*parts: str | bytes) -> str:
    texts = (part if isinstance(part, str) else part.hex() for part in parts)
    return str(uuid5(_NAMESPACE, "\n".join(texts)))


def _mutation(verb: str, scope: str, body: Body, mutation_id: str) -> Mutation:
    return _record(verb, scope, body.model_dump(warnings=False), mutation_id)


def _record(verb: str, scope: str, body: Mapping[str, Any], mutation_id: str) -> Mutation:
    return Mutation(
        f"kvfold.orchestration.{verb}.v1",
        scope,
        mutation_id,
        body=encode_json(body),
        content_type="application/json",
    )
