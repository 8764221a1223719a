"""The scopes that paths name, checked before anything else so that a bad name is said to be one."""

from __future__ import annotations

from kvfold.http.call import Call
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.names import (
    capsule_scope,
    check_deployment_name,
    check_orchestration_name,
    check_principal_part,
    deployment_scope,
    orchestration_scope,
)

__all__ = ["capsule_scope_of", "deployment_scope_of", "instance_scope", "instance_scope_of"]


def capsule_scope_of(call: Call) -> str:
    """The scope of `{principal}` and `{capsule_id}` (row C1).

    Raises:
        InvalidError: `malformed-name`.
    """
    principal, capsule_id = call.path["principal"], call.path["capsule_id"]
    _accept(check_principal_part("the principal", principal))
    _accept(check_principal_part("the capsule id", capsule_id))
    return capsule_scope(principal, capsule_id)


def deployment_scope_of(call: Call) -> str:
    """The scope of `{id}`.

    Raises:
        InvalidError: `malformed-name`.
    """
    deployment_id = call.path["id"]
    _accept(check_deployment_name("the deployment id", deployment_id))
    return deployment_scope(deployment_id)


def instance_scope_of(call: Call) -> str:
    """The scope of `{id}`, an orchestration instance.

    Raises:
        InvalidError: `malformed-name`.
    """
    return instance_scope(call.path["id"])


def instance_scope(instance_id: str) -> str:
    """The scope of an orchestration instance. Raises InvalidError `malformed-name`."""
    _accept(check_orchestration_name("the instance id", instance_id))
    return orchestration_scope(instance_id)


def _accept(problem: str | None) -> None:
    if problem is not None:
        raise InvalidError(problem, code="malformed-name")
