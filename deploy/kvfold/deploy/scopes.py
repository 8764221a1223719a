"""SCOPE on the command line: the record key of a capsule's namespace, a deployment or an orchestration instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from kvfold.schemas.errors import InvalidError
from kvfold.schemas.names import check_deployment_name, check_orchestration_name, check_principal_part

__all__ = ["CapsuleScope", "DeploymentScope", "InstanceScope", "Scope", "key_url", "parse_scope"]


@dataclass(frozen=True, slots=True)
class CapsuleScope:
    """`c:PRINCIPAL:capsule:ID`."""

    principal: str
    capsule_id: str

    family: ClassVar = "capsule"

    @property
    def base(self) -> str:
        """The path of its routes."""
        return f"/v1/capsules/{quote(self.principal, safe='')}/{quote(self.capsule_id, safe='')}"


@dataclass(frozen=True, slots=True)
class DeploymentScope:
    """`d:ID`."""

    deployment_id: str

    family: ClassVar = "deployment"

    @property
    def base(self) -> str:
        """The path of its routes."""
        return f"/deployments/{quote(self.deployment_id, safe='')}"


@dataclass(frozen=True, slots=True)
class InstanceScope:
    """`o:ID`."""

    instance_id: str

    family: ClassVar = "orchestration"

    @property
    def base(self) -> str:
        """The path of its routes."""
        return f"/v1/instances/{quote(self.instance_id, safe='')}"


Scope = CapsuleScope | DeploymentScope | InstanceScope


def parse_scope(text: str) -> Scope:
    """Parses a scope as it stands in the log.

    Raises:
        InvalidError: `malformed-scope`; the text says what is wrong or what is accepted.
    """
    scope: Scope | None = None
    problem = None
    parts = text.split(":")
    if len(parts) == 4 and parts[0] == "c" and parts[2] == "capsule":
        scope = CapsuleScope(parts[1], parts[3])
        problem = check_principal_part("the principal", parts[1])
        problem = problem or check_principal_part("the capsule id", parts[3])
    elif parts[0] == "d" and len(parts) > 1:
        scope = DeploymentScope(text[2:])
        problem = check_deployment_name("the deployment id", text[2:])
    elif parts[0] == "o" and len(parts) > 1:
        scope = InstanceScope(text[2:])
        problem = check_orchestration_name("the instance id", text[2:])
    if scope is None:
        problem = "c:PRINCIPAL:capsule:ID, d:DEPLOYMENT and o:INSTANCE are accepted"
    if scope is None or problem is not None:
        raise InvalidError(f"{text[:200]!a} is no scope: {problem}", code="malformed-scope")
    return scope


def key_url(collection: str, key: str) -> str:
    """The URL of a key below a collection such as `/deployments/dep-1/kv/user`, path or path and query.

    Clients and proxies rewrite `.` and `..` in a path, and an empty last part says nothing: such keys go into the query.

    Raises:
        InvalidError: `invalid-key`: the key is not UTF-8.
    """
    try:
        encoded = quote(key, safe="")
    except UnicodeEncodeError:
        raise InvalidError("the key is not UTF-8", code="invalid-key") from None
    if not key or any(part in (".", "..") for part in key.split("/")):
        return f"{collection}?key={encoded}"
    return f"{collection}/{encoded}"
