"""`CapsuleHost`: gives a capsule its store, for whoever is being served and no longer (002, "Namespaces"; C1, C2).

```
host = CapsuleHost(store, capsule_id="notes")
with host.invocation("alice"):
    capsule.handle(message)        # kv.set_bytes(…) in there writes to alice:capsule:notes
```

The binding is a context variable: threads and tasks that run at the same time do not see each other's, a task that an
invocation starts has the invocation's, and an invocation within another ends with the outer one bound again. Nothing is
bound by default: a call with nobody being served is refused, and never falls back to the owner's store.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Self

from kvfold.producers.capsule.checks import namespace_of
from kvfold.producers.capsule.errors import Unbound
from kvfold.producers.capsule.scoped import ScopedKvStore
from kvfold.producers.capsule.sdk import CapsuleKv
from kvfold.producers.capsule.store import PagedKvStore

__all__ = ["DEFAULT_PRINCIPAL", "CapsuleHost", "Invocation", "bound_store"]

DEFAULT_PRINCIPAL: Final = "default"
"""The principal of a deployment with a single user."""


class CapsuleHost:
    """One capsule's side of the host. Safe for several threads.

    `kv` is what the capsule's code works with; the module `kvfold.producers.capsule.kv` has the same functions for
    whatever capsule is being served.
    """

    def __init__(self, store: PagedKvStore, *, capsule_id: str, owner: str = DEFAULT_PRINCIPAL) -> None:
        """`owner` is the principal that the capsule is loaded for.

        Raises:
            InvalidKey: capsule id or owner could forge a namespace.
        """
        namespace_of(owner, capsule_id)
        self._store = store
        self._capsule_id = capsule_id
        self._owner = owner
        self.kv = CapsuleKv(self._bound)

    def load(self) -> Invocation:
        """Binds the owner: for the capsule's own start, and for work that it does for nobody else."""
        return self.invocation(self._owner)

    def invocation(self, principal: str | None) -> Invocation:
        """Serves `principal` inside a `with`, in synchronous code and in coroutines alike.

        Raises:
            Unbound: it is not known who calls: None, or no text at all.
            InvalidKey: the principal could forge a namespace.
        """
        if principal is None or principal == "":
            raise Unbound("the call names no principal: it is served for nobody, and never for the owner")
        return Invocation(self, ScopedKvStore(self._store, namespace_of(principal, self._capsule_id)))

    def _bound(self) -> ScopedKvStore:
        return _active(self)


class Invocation:
    """One call that a capsule serves; bound inside a `with`, once."""

    def __init__(self, host: CapsuleHost, store: ScopedKvStore) -> None:
        self._host = host
        self._store = store
        self._token: Token[Invocation | None] | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        if self._token is not None:
            raise Unbound("an invocation is entered once: make another for the next call")
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Over for every task and thread that carries this binding on, whoever ends it, and wherever.
        self._is_over = True
        assert self._token is not None
        with suppress(ValueError):  # ended in another context than it began in: nothing to restore here
            _current.reset(self._token)

    def store_of(self, host: CapsuleHost | None) -> ScopedKvStore:
        """The store, for the capsule that this invocation is of (None: whatever capsule it is).

        Raises:
            Unbound: the invocation is over, or of another capsule.
        """
        if self._is_over:
            raise Unbound("the invocation is over: what outlives it has nobody to work for")
        if host is not None and host is not self._host:
            raise Unbound("another capsule is being served: its principal's store is not this capsule's")
        return self._store


_current: Final[ContextVar[Invocation | None]] = ContextVar("kvfold_capsule_invocation", default=None)


def bound_store() -> ScopedKvStore:
    """The store of the invocation of the moment. Raises `Unbound` where there is none."""
    return _active(None)


def _active(host: CapsuleHost | None) -> ScopedKvStore:
    invocation = _current.get()
    if invocation is None:
        raise Unbound("nobody is being served: keys are at hand inside an invocation only")
    return invocation.store_of(host)
