"""The object store of a deployment: one interface whichever tier or back end is behind it (row D7).

```
version = store.put("user", "theme", b"blue")                       # creates: nothing may be there
version = store.put("user", "theme", b"green", expected=version)    # replaces exactly that version
entry = store.get("user", "theme")                                  # value and version, or None
store.delete("user", "theme", expected=version)                     # removes exactly that version
```

The namespace names the tier: `…_secrets` is encrypted at rest, `…_volatile` may vanish at any time, any other is kept.
"""

from __future__ import annotations

from typing import Protocol

from kvfold.reads.deployment import DeploymentValue, ObjectPage
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.limits import DEPLOYMENT_VALUE_BYTES_MAX, INT64_MAX, PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX
from kvfold.schemas.names import check_deployment_key, check_deployment_name
from kvfold.schemas.tiers import Tier, tier_of

__all__ = [
    "ObjectStore",
    "check_key",
    "check_listed",
    "check_namespace",
    "check_page",
    "check_value",
    "check_version",
]


class ObjectStore(Protocol):
    """Versioned entries of one deployment, in namespaces. Safe for several threads.

    Every verb raises `InvalidError` for what is wrong with its arguments (`invalid-key`, `invalid-namespace`,
    `secret-and-volatile`, `malformed-version`, `malformed-limit`, `too-large`) and `UnavailableError` where the tier does
    not answer, or not in time.
    """

    def get(self, namespace: str, key: str) -> DeploymentValue | None:
        """Value and version; None for an absent entry, which an empty value is not."""
        ...

    def put(self, namespace: str, key: str, value: bytes, *, expected: int = 0) -> int:
        """Writes an entry whose version is `expected`, 0 = there is none, and gives its new version.

        Raises:
            ConflictError: it has another version; the error carries the current one, None if the entry is absent.
        """
        ...

    def delete(self, namespace: str, key: str, *, expected: int = 0) -> None:
        """Removes an entry whose version is `expected`, 0 = whichever. An absent one is removed already, at any version.

        Raises:
            ConflictError: it has another version, which the error carries.
        """
        ...

    def list(
        self,
        namespace: str,
        *,
        prefix: str = "",
        cursor: str | None = None,
        limit: int = PAGE_LIMIT_DEFAULT,
    ) -> ObjectPage:
        """Up to `limit` (1 to 1,024) entries whose keys begin with `prefix`, after `cursor`, in byte order of the keys.

        `next_cursor` of the page is the next call's `cursor`, None on the last page. A page is read live. Secret namespaces
        are never listed: `invalid-namespace`.
        """
        ...


def check_namespace(namespace: str) -> Tier:
    """The tier of a well-formed namespace, never `Tier.REFUSED`.

    Raises:
        InvalidError: `invalid-namespace`; `secret-and-volatile`, at whatever depth the two suffixes stand.
    """
    _check(check_deployment_name("the namespace", namespace), "invalid-namespace")
    tier = tier_of(namespace)
    if tier is Tier.REFUSED:
        raise InvalidError("a namespace is secret or volatile, never both", code="secret-and-volatile")
    return tier


def check_listed(namespace: str) -> Tier:
    """As `check_namespace`, for a listing. Raises `InvalidError` `invalid-namespace` for a secret one."""
    tier = check_namespace(namespace)
    if tier is Tier.SECRET:
        raise InvalidError("a secret namespace is never listed", code="invalid-namespace")
    return tier


def check_key(key: str) -> None:
    """Raises `InvalidError` `invalid-key` for what is no key of a deployment."""
    _check(check_deployment_key(key), "invalid-key")


def check_value(value: bytes) -> None:
    """Raises `InvalidError` `too-large` above 1 MiB."""
    if len(value) > DEPLOYMENT_VALUE_BYTES_MAX:
        raise InvalidError(
            f"the value has {len(value)} bytes: at most {DEPLOYMENT_VALUE_BYTES_MAX} are accepted",
            code="too-large",
        )


def check_version(expected: int) -> None:
    """Raises `InvalidError` `malformed-version` for what no version can be."""
    if not 0 <= expected <= INT64_MAX:
        raise InvalidError(
            f"the expected version is {expected}: 0 to {INT64_MAX} are accepted", code="malformed-version"
        )


def check_page(*, prefix: str, cursor: str | None, limit: int) -> None:
    """Raises `InvalidError` `invalid-key` for prefix or cursor, `malformed-limit` outside 1 to 1,024."""
    for text in (prefix, cursor):
        _check(check_deployment_key(text) if text else None, "invalid-key")
    if not 1 <= limit <= PAGE_LIMIT_MAX:
        raise InvalidError(
            f"the limit is {limit}: 1 to {PAGE_LIMIT_MAX} are accepted", code="malformed-limit"
        )


def _check(problem: str | None, code: str) -> None:
    if problem is not None:
        raise InvalidError(problem, code=code)
