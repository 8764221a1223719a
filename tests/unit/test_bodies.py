"""The models of JSON bodies: strict, closed, and bounded."""

from __future__ import annotations

from typing import get_args

import pytest

from kvfold.schemas import bodies, orchestration
from kvfold.schemas.bodies import MisshapenBodyError, UnknownEventKindError, parse_body
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.types import MUTATION_TYPES, BodyKind
from support.bodies import ACCEPTED, REFUSED

__all__: list[str] = []


def test_every_json_type_has_a_model_and_examples() -> None:
    types = {row.name for row in MUTATION_TYPES.values() if row.body is BodyKind.JSON}
    assert set(bodies.BODY_MODELS) == types == set(ACCEPTED) == set(REFUSED)


def test_the_set_of_event_kinds_is_the_union_of_the_models() -> None:
    union = get_args(get_args(orchestration.Event)[0])
    assert {
        get_args(model.model_fields["kind"].annotation)[0] for model in union
    } == orchestration.EVENT_KINDS


def test_the_set_of_turn_event_kinds_is_the_union_of_the_models() -> None:
    union = get_args(get_args(orchestration.TurnEvent)[0])
    assert {get_args(model.model_fields["kind"].annotation)[0] for model in union} == (
        orchestration.TURN_EVENT_KINDS
    )


@pytest.mark.parametrize(("type_", "body"), [(t, b) for t, many in ACCEPTED.items() for b in many])
def test_accepted(type_: str, body: str) -> None:
    assert isinstance(parse_body(type_, body.encode()), bodies.BODY_MODELS[type_])


@pytest.mark.parametrize(("type_", "body"), [(t, b) for t, many in REFUSED.items() for b in many])
def test_refused(type_: str, body: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_body(type_, body.encode())
    assert caught.value.code == "malformed"


def test_defaults() -> None:
    started = parse_body("kvfold.orchestration.started.v1", b'{"name":"n"}')
    assert isinstance(started, orchestration.Started)
    assert (started.mode, started.input, started.parent) == ("runtime", None, None)
    pruned = parse_body("kvfold.orchestration.executions-pruned.v1", b'{"execution_ids":[2,1,2]}')
    assert isinstance(pruned, orchestration.ExecutionsPruned) and pruned.keep_values is False


@pytest.mark.parametrize("kind", ["ActivityScheduled", "", "keyvalueset", "KeyValueSet ", "x" * 99])
def test_an_unknown_kind_is_told_from_a_wrong_shape(kind: str) -> None:
    body = f'{{"execution_id":1,"events":[{{"kind":"{kind}","anything":[1]}}]}}'
    with pytest.raises(UnknownEventKindError) as caught:
        parse_body("kvfold.orchestration.events.v1", body.encode())
    assert caught.value.code == "unknown-type"
    assert str(caught.value) == f"unknown event kind '{kind[:64]}'"


def test_the_place_of_the_first_error_is_known_and_not_in_the_sentence() -> None:
    with pytest.raises(MisshapenBodyError) as caught:
        parse_body("kvfold.orchestration.executions-pruned.v1", b'{"execution_ids":[1,"2"]}')
    assert caught.value.place == "execution_ids.1"
    assert caught.value.what == "Input should be a valid integer"
    assert "execution_ids" not in str(caught.value)
