"""Names, keys and parameters of the read routes, checked by the rules that the fold uses."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from kvfold.http.call import Call
from kvfold.http.routes import Parameter
from kvfold.reads.changes import family_of_scope
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.form import scope_problem
from kvfold.schemas.limits import (
    DEPLOYMENT_KEY_BYTES_MAX,
    INT64_MAX,
    PAGE_LIMIT_DEFAULT,
    PAGE_LIMIT_MAX,
    RECORD_KEY_BYTES_MAX,
)
from kvfold.schemas.names import (
    capsule_scope,
    check_capsule_key,
    check_capsule_prefix,
    check_deployment_key,
    check_deployment_name,
    check_orchestration_key,
    check_orchestration_name,
    check_principal_part,
    deployment_scope,
    namespace_suffixes,
    utf8_length,
)
from kvfold.schemas.tiers import Tier, tier_of
from kvfold.schemas.types import Family

__all__ = [
    "CURSOR",
    "LIMIT",
    "MIN_POSITION",
    "PREFIX",
    "WAIT",
    "WAIT_SECONDS_MAX",
    "browsed_namespace",
    "capsule_key",
    "capsule_prefix",
    "check_namespace",
    "cursor",
    "deployment_key",
    "family_and_scope",
    "instance_id",
    "instance_key",
    "is_listed",
    "listed_namespace",
    "mutation_id",
    "mutation_scope",
    "namespace_with_past",
    "page_limit",
    "plain_prefix",
    "positive_number",
    "scope_of_capsule",
    "scope_of_deployment",
    "tier_of_namespace",
    "wait_seconds",
    "watched_scope",
]

WAIT_SECONDS_MAX: Final = 60

CURSOR: Final = Parameter("cursor", "The last key of the page before (its `next_cursor`)")
PREFIX: Final = Parameter("prefix", "Only what begins with it; `_` and `%` are themselves")
LIMIT: Final = Parameter(
    "limit",
    "Size of the page",
    {"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT_MAX, "default": PAGE_LIMIT_DEFAULT},
)
WAIT: Final = Parameter(
    "wait", "Seconds to wait for it", {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX}
)
MIN_POSITION: Final = Parameter(
    "X-Kvfold-Min-Position",
    "The answer must be up to this position, or list of positions; waits at most 8 seconds",
    {"type": "string", "examples": ["3:1042", "0:12,3:1042"]},
)

_FAMILIES: Final = frozenset({"capsule", "deployment", "orchestration"})
_LIMIT: Final = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_WAIT: Final = re.compile(r"(0|[1-9][0-9]?)(\.[0-9]{1,6})?", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


def scope_of_capsule(call: Call) -> str:
    """The scope of `{principal}` and `{capsule_id}`.

    Raises:
        InvalidError: `malformed-name`.
    """
    principal, capsule_id = call.path["principal"], call.path["capsule_id"]
    _accept(check_principal_part("the principal", principal), "malformed-name")
    _accept(check_principal_part("the capsule id", capsule_id), "malformed-name")
    return capsule_scope(principal, capsule_id)


def capsule_key(call: Call) -> str:
    """`{key}` of a capsule. Raises InvalidError `invalid-key`."""
    key = call.path["key"]
    _accept(check_capsule_key(key), "invalid-key")
    return key


def capsule_prefix(call: Call) -> str:
    """`?prefix=` of a capsule's keys. Raises InvalidError `invalid-key`."""
    prefix = call.query.get("prefix", "")
    _accept(check_capsule_prefix(prefix), "invalid-key")
    return prefix


def scope_of_deployment(call: Call) -> str:
    """The scope of `{id}`. Raises InvalidError `malformed-name`."""
    deployment_id = call.path["id"]
    _accept(check_deployment_name("the deployment id", deployment_id), "malformed-name")
    return deployment_scope(deployment_id)


def deployment_key(call: Call) -> str:
    """`{key}` of a deployment. Raises InvalidError `invalid-key`."""
    key = call.path["key"]
    _accept(check_deployment_key(key), "invalid-key")
    return key


def tier_of_namespace(namespace: str) -> Tier:
    """The tier of `{namespace}`, never `Tier.REFUSED`.

    Raises:
        InvalidError: `invalid-namespace`, `secret-and-volatile`.
    """
    _checked_suffixes(namespace)
    return tier_of(namespace)


def namespace_with_past(namespace: str) -> str:
    """A namespace whose values can be read as of the past: neither secret nor volatile.

    Raises:
        InvalidError: `invalid-namespace`, `secret-and-volatile`.
    """
    suffixes = _checked_suffixes(namespace)[1]
    if "_secrets" in suffixes:
        raise InvalidError(
            "secret values are read as they are now; of their past, history and snapshots give the metadata",
            code="invalid-namespace",
        )
    if suffixes:
        raise InvalidError("a volatile namespace has no past", code="invalid-namespace")
    return namespace


def browsed_namespace(call: Call) -> str:
    """`?namespace=` of the object browser: of the user family and not secret.

    Raises:
        InvalidError: `invalid-namespace`, also where it is missing; `secret-and-volatile`.
    """
    namespace = call.query.get("namespace")
    if namespace is None:
        raise InvalidError("the parameter namespace is missing", code="invalid-namespace")
    name, suffixes = _checked_suffixes(namespace)
    if name != "user" or "_secrets" in suffixes:
        raise InvalidError(
            "the object browser shows the user family without secrets: user, user_volatile",
            code="invalid-namespace",
        )
    return namespace


def listed_namespace(call: Call) -> str:
    """`{namespace}` of a listing: any but a secret one.

    Raises:
        InvalidError: `invalid-namespace`, `secret-and-volatile`.
    """
    namespace = call.path["namespace"]
    if tier_of_namespace(namespace) is Tier.SECRET:
        raise InvalidError("a secret namespace is never listed", code="invalid-namespace")
    return namespace


def is_listed(namespace: str) -> bool:
    """Whether the object browser lists a namespace that it found in a store: of the user family, and no secret."""
    name, suffixes = namespace_suffixes(namespace)
    return name == "user" and "_secrets" not in suffixes


def instance_id(call: Call) -> str:
    """`{id}` of an instance. Raises InvalidError `malformed-name`."""
    name = call.path["id"]
    _accept(check_orchestration_name("the instance id", name), "malformed-name")
    return name


def instance_key(call: Call) -> str:
    """`{key}` of an instance's KV, the empty one included. Raises InvalidError `invalid-key`."""
    key = call.path["key"]
    _accept(check_orchestration_key(key), "invalid-key")
    return key


def mutation_id(call: Call) -> UUID:
    """`{id}` of a mutation: a UUID with its hyphens. Raises InvalidError `malformed-mutation-id`."""
    text = call.path["id"]
    if _UUID.fullmatch(text) is None:
        raise InvalidError("a mutation id is a UUID in its canonical form", code="malformed-mutation-id")
    return UUID(text)


def mutation_scope(call: Call) -> str | None:
    """`?scope=`, a record key; None where it is absent. Raises InvalidError `malformed-scope`."""
    scope = call.query.get("scope")
    if scope is not None and not 0 < utf8_length(scope) <= RECORD_KEY_BYTES_MAX:
        raise InvalidError(f"a scope has 1 to {RECORD_KEY_BYTES_MAX} bytes", code="malformed-scope")
    return scope


def family_and_scope(call: Call) -> tuple[Family, str]:
    """`{family}` and `{scope}`, a record key of that family.

    Raises:
        InvalidError: `malformed-family`, `malformed-scope`.
    """
    name, scope = call.path["family"], call.path["scope"]
    if name not in _FAMILIES:
        raise InvalidError("the family is capsule, deployment or orchestration", code="malformed-family")
    family = Family(name)
    # Partition counts matter to system scopes only.
    problem = scope_problem(family, scope, 1)
    if problem is not None:
        raise InvalidError(problem, code="malformed-scope")
    return family, scope


def watched_scope(call: Call) -> tuple[str | None, Family | None]:
    """`?scope=` of entries, with its family; None twice where it is absent. Raises InvalidError `malformed-scope`."""
    scope = call.query.get("scope")
    if scope is None:
        return None, None
    family = family_of_scope(scope)
    problem = "it begins with c:, d: or o:" if family is None else scope_problem(family, scope, 1)
    if problem is not None:
        raise InvalidError(f"{scope[:80]!a} is no scope of entries: {problem}", code="malformed-scope")
    return scope, family


def check_namespace(namespace: str) -> None:
    """A namespace's name, of whatever tier. Raises InvalidError `invalid-namespace`."""
    _accept(check_deployment_name("the namespace", namespace), "invalid-namespace")


def plain_prefix(call: Call) -> str:
    """`?prefix=` where no rule is on it but its length. Raises InvalidError `malformed-prefix`."""
    return _bounded(call.query.get("prefix", ""), "prefix")


def cursor(call: Call) -> str | None:
    """`?cursor=`; None for the first page. Raises InvalidError `malformed-cursor`."""
    text = call.query.get("cursor")
    return None if text is None else _bounded(text, "cursor")


def page_limit(call: Call) -> int:
    """`?limit=`. Raises InvalidError `malformed-limit`."""
    text = call.query.get("limit")
    if text is None:
        return PAGE_LIMIT_DEFAULT
    if _LIMIT.fullmatch(text) is None or int(text) > PAGE_LIMIT_MAX:
        raise InvalidError(f"limit is a whole number from 1 to {PAGE_LIMIT_MAX}", code="malformed-limit")
    return int(text)


def positive_number(call: Call, name: str, code: str) -> int | None:
    """`?{name}=`, a whole number from 1 to 2^63-1; None where it is absent. Raises InvalidError with the code."""
    text = call.query.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is None or int(text) > INT64_MAX:
        raise InvalidError(f"{name} is a whole number from 1 to {INT64_MAX}", code=code)
    return int(text)


def wait_seconds(call: Call) -> float:
    """`?wait=`, 0 where it is absent. Raises InvalidError `malformed-wait`."""
    text = call.query.get("wait")
    if text is None:
        return 0.0
    if _WAIT.fullmatch(text) is None or float(text) > WAIT_SECONDS_MAX:
        raise InvalidError(f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX}", code="malformed-wait")
    return float(text)


def _checked_suffixes(namespace: str) -> tuple[str, frozenset[str]]:
    _accept(check_deployment_name("the namespace", namespace), "invalid-namespace")
    name, suffixes = namespace_suffixes(namespace)
    if len(suffixes) > 1:
        raise InvalidError("a namespace is secret or volatile, never both", code="secret-and-volatile")
    return name, suffixes


def _bounded(text: str, what: str) -> str:
    if utf8_length(text) > DEPLOYMENT_KEY_BYTES_MAX:
        raise InvalidError(f"{what} has at most {DEPLOYMENT_KEY_BYTES_MAX} bytes", code=f"malformed-{what}")
    return text


def _accept(problem: str | None, code: str) -> None:
    if problem is not None:
        raise InvalidError(problem, code=code)
