"""What a mutation alone shows to be wrong, in good form as it is: names, keys, sizes, plaintext where a secret is due.

The fold and every door judge by these same functions, so a foreign producer's record gets the code that the door would
have given. They are part of format level 1 and never change for records that are in the log.
"""

from __future__ import annotations

from kvfold.schemas.bodies import CapsuleBatch
from kvfold.schemas.form import Formed, rejected
from kvfold.schemas.limits import (
    CAPSULE_BATCH_OPERATIONS_MAX,
    CAPSULE_VALUE_BYTES_MAX,
    DEPLOYMENT_VALUE_BYTES_MAX,
)
from kvfold.schemas.names import (
    check_capsule_key,
    check_capsule_prefix,
    check_deployment_key,
    check_deployment_name,
    check_orchestration_key,
    check_orchestration_name,
    namespace_suffixes,
)
from kvfold.schemas.orchestration import (
    ActivityCompleted,
    ActivityFailed,
    CancelRequested,
    ChildCompleted,
    ChildFailed,
    Event,
    EventRaised,
    KeyValueCleared,
    KeyValueSet,
    OrchestrationCompleted,
    OrchestrationContinuedAsNew,
    OrchestrationEvents,
    OrchestrationFailed,
    Started,
    Turn,
    TurnEvent,
    TurnFailed,
)
from kvfold.schemas.outcome import Decision
from kvfold.schemas.secret_envelope import plaintext_size
from kvfold.schemas.turn_limits import data_problem, error_problem
from kvfold.schemas.types import Family

__all__ = ["is_secret", "validate"]


def validate(formed: Formed) -> Decision | None:
    """The rejection that the mutation alone calls for, None if none. A rejected id is remembered all the same."""
    match formed.type.family:
        case Family.CAPSULE:
            return _validate_capsule(formed)
        case Family.DEPLOYMENT:
            return _validate_deployment(formed)
        case Family.ORCHESTRATION:
            return _validate_orchestration(formed)
        case Family.SYSTEM:
            return None


def is_secret(namespace: str) -> bool:
    """True for a namespace with the suffix `_secrets`, at whatever depth."""
    return "_secrets" in namespace_suffixes(namespace)[1]


def _validate_capsule(formed: Formed) -> Decision | None:
    """What the record alone shows to be wrong: key, prefix, size of the value. None if nothing is."""
    mutation = formed.mutation
    match mutation.type:
        case "kvfold.capsule.set.v1" | "kvfold.capsule.deleted.v1" | "kvfold.capsule.restored.v1":
            assert mutation.subject is not None
            problem = check_capsule_key(mutation.subject)
            if problem is not None:
                return rejected("invalid-key", problem)
            if mutation.body is not None and len(mutation.body) > CAPSULE_VALUE_BYTES_MAX:
                return _too_large(len(mutation.body))
        case "kvfold.capsule.prefix-cleared.v1":
            problem = check_capsule_prefix(mutation.subject or "")
            if problem is not None:
                return rejected("invalid-key", problem)
        case "kvfold.capsule.batch.v1":
            assert isinstance(formed.body, CapsuleBatch)
            return _validate_batch(formed.body)
    return None


def _validate_batch(batch: CapsuleBatch) -> Decision | None:
    """Lengths first, then every key in order. No value can be too large: the JSON body bounds them."""
    for what, items in (("conditions", batch.conditions), ("operations", batch.operations)):
        if len(items) > CAPSULE_BATCH_OPERATIONS_MAX:
            detail = f"the batch has {len(items)} {what}: at most {CAPSULE_BATCH_OPERATIONS_MAX} are accepted"
            return rejected("too-large", detail)
    for what, items in (("conditions", batch.conditions), ("operations", batch.operations)):
        for index, item in enumerate(items):
            problem = check_capsule_key(item.key)
            if problem is not None:
                return rejected("invalid-key", f"{what}[{index}]: {problem}")
    seen = set[str]()
    for index, operation in enumerate(batch.operations):
        if operation.key in seen:
            return rejected("malformed", f"operations[{index}]: the key stands twice among the operations")
        seen.add(operation.key)
    return None


def _too_large(size: int) -> Decision:
    return rejected(
        "too-large", f"the value has {size} bytes: at most {CAPSULE_VALUE_BYTES_MAX} are accepted"
    )


def _validate_deployment(formed: Formed) -> Decision | None:
    """What the record alone shows to be wrong: namespace, key, size, plaintext where a secret is due."""
    mutation = formed.mutation
    if mutation.namespace is None:
        return None
    assert mutation.subject is not None
    problem = check_deployment_name("the namespace", mutation.namespace)
    if problem is not None:
        return rejected("invalid-namespace", problem)
    problem = check_deployment_key(mutation.subject)
    if problem is not None:
        return rejected("invalid-key", problem)
    suffixes = namespace_suffixes(mutation.namespace)[1]
    if len(suffixes) > 1:
        return rejected("secret-and-volatile", "a namespace is secret or volatile, never both")
    if "_volatile" in suffixes:
        return rejected("volatile-in-log", "a volatile namespace never goes through the log")
    if mutation.body is None:
        return None
    return _validate_value(mutation.body, secret=bool(suffixes))


def _validate_value(body: bytes, *, secret: bool) -> Decision | None:
    size = plaintext_size(body) if secret else len(body)
    if size is None:
        return rejected("secret-not-encrypted", "the value of a secret namespace must have the envelope KVS1")
    if size > DEPLOYMENT_VALUE_BYTES_MAX:
        detail = f"the value has {size} bytes: at most {DEPLOYMENT_VALUE_BYTES_MAX} are accepted"
        return rejected("too-large", detail)
    return None


def _validate_orchestration(formed: Formed) -> Decision | None:
    """What the record alone shows to be wrong: names, keys, sizes, a terminal event that is not the last.

    What a turn may hold is judged when it is known to be current: over a limit it fails its instance.
    """
    match formed.body:
        case Started(name=name, parent=parent, input=data):
            names = [("the name", name)] + (
                [] if parent is None else [("the parent's id", parent.instance_id)]
            )
            return _limit(*(check_orchestration_name(what, text) for what, text in names)) or _limit(
                data_problem("input", data)
            )
        case EventRaised(name=name, data=data):
            return _limit(
                check_orchestration_name("the event's name", name), data_problem("event data", data)
            )
        case ActivityCompleted(result=data):
            return _limit(data_problem("activity result", data))
        case ChildCompleted(output=data):
            return _limit(data_problem("child output", data))
        case ActivityFailed(error=text) | ChildFailed(error=text) | CancelRequested(reason=text):
            return _limit(error_problem(text))
        case OrchestrationEvents(events=events):
            return _validate_events(events)
        case Turn() as turn:
            if len(set(turn.consumed)) != len(turn.consumed):
                return rejected("malformed", "a message is consumed twice")
            return _validate_events(turn.events)
        case _:
            return None


def _limit(*problems: str | None) -> Decision | None:
    detail = next((problem for problem in problems if problem is not None), None)
    return None if detail is None else rejected("limit", detail)


def _validate_events(events: tuple[Event | TurnEvent, ...]) -> Decision | None:
    for event in events[:-1]:
        if isinstance(
            event, OrchestrationCompleted | OrchestrationFailed | TurnFailed | OrchestrationContinuedAsNew
        ):
            return rejected("malformed", f"{event.kind} must be the last event of its record")
    for event in events:
        if isinstance(event, KeyValueSet | KeyValueCleared):
            problem = check_orchestration_key(event.key)
            if problem is not None:
                return rejected("invalid-key", problem)
    return None
