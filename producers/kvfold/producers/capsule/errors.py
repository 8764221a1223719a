"""The errors that capsule code meets, named as its document names them (002, "Error Handling"; row C11).

```
SysError
├── HostError      what the host answered, one class for each code of `kv@1.0.0`
│   ├── InvalidKey     invalid-key
│   ├── TooLarge       too-large
│   ├── Quota          quota
│   ├── CasMismatch    cas-mismatch
│   └── Unknown        unknown(text): everything else; `Unavailable` where the same call may succeed later,
│                      `Unbound` where nobody is being served
├── JsonError      a typed helper could not read or write JSON
├── BorshError     a typed helper could not read or write Borsh
└── ApiError       the capsule's own code gives up: a version that it does not know, a race that it keeps losing
```
"""

from __future__ import annotations

from typing import ClassVar, Final

from kvfold.schemas.errors import KvfoldError, UnavailableError

__all__ = [
    "ApiError",
    "BorshError",
    "CasMismatch",
    "HostError",
    "InvalidKey",
    "JsonError",
    "Quota",
    "SysError",
    "TooLarge",
    "Unavailable",
    "Unbound",
    "Unknown",
    "host_error",
]


class SysError(KvfoldError):
    """The SDK's one base: whatever a function of `kvfold.producers.capsule.kv` raises on purpose is one of these."""


class HostError(SysError):
    """The host refused the call, or could not do it. `code` is one of the five of `kv@1.0.0`."""

    host_code: ClassVar[str]

    def __init__(self, message: str) -> None:
        super().__init__(message, code=self.host_code)


class InvalidKey(HostError):
    """A key, prefix, cursor or namespace is not acceptable; the message says what is."""

    host_code = "invalid-key"


class TooLarge(HostError):
    """A value above 1 MiB, a batch above its limits, or more than 1,024 keys for one listing."""

    host_code = "too-large"


class Quota(HostError):
    """The write would pass the quota of this principal in this capsule. Shrinking and deleting are still allowed."""

    host_code = "quota"


class CasMismatch(HostError):
    """A precondition did not hold. `kv.cas` answers False instead of raising it."""

    host_code = "cas-mismatch"


class Unknown(HostError):
    """Anything else; `text` says what."""

    host_code = "unknown"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Unavailable(Unknown):
    """The host is away or late: the same call may succeed later.

    A write that ended so may have been applied or not. A plain set or delete can be repeated; after a `cas`, read
    first.
    """

    retryable = True


class Unbound(Unknown):
    """Nobody is being served: no invocation is under way here, it is over, or it names no principal (row C2)."""


class JsonError(SysError):
    """A value has no JSON form, or stored bytes are not the JSON that was asked for. Nothing is written."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="json")


class BorshError(SysError):
    """A value has no Borsh form of its type, or stored bytes are not it. Nothing is written."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="borsh")


class ApiError(SysError):
    """Capsule code gives up, for a reason that its message says."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="api")


_BY_CODE: Final[dict[str, type[HostError]]] = {
    error.host_code: error for error in (InvalidKey, TooLarge, Quota, CasMismatch)
}


def host_error(error: KvfoldError) -> HostError:
    """The host's error for one of the log, the reads or the door: by its code, never by its text."""
    if isinstance(error, HostError):
        return error
    if error.code in _BY_CODE:
        return _BY_CODE[error.code](str(error))
    if isinstance(error, UnavailableError):
        return Unavailable(f"{error} ({error.code})")
    return Unknown(f"{error} ({error.code})")
