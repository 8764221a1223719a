"""The door: what every way in (SDK, gateway, `kvfold emit`) refuses before anything is appended.

The rules are the fold's own, so a caller hears at once, with the same code, what the fold would have decided. The
door asks three things more: that the record reads back as the mutation it was made from, that `system.*` comes from an
operator, and that nothing volatile comes here. And it seals what goes into a secret namespace: whatever way in a value
takes, it is encrypted before it is appended, or refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

from kvfold.log.framing import check_record
from kvfold.schemas.bodies import BODY_MODELS, MisshapenBodyError, parse_body
from kvfold.schemas.codec import Malformed, decode, encode, is_mutation_id
from kvfold.schemas.errors import InvalidError, UnavailableError
from kvfold.schemas.form import Formed, check_mutation
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.outcome import Decision
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.record import NewRecord, Record
from kvfold.schemas.rules import validate
from kvfold.schemas.tiers import Tier, tier_of

__all__ = ["KEY_VARIABLE", "Admitted", "Sealer", "admit", "check_tier", "no_key"]

KEY_VARIABLE: Final = "KV_ENCRYPTION_KEY"

_SYSTEM: Final = "kvfold.system."
_PUT: Final = "kvfold.deployment.put.v1"


class Sealer(Protocol):
    """What makes ciphertext of the values of secret namespaces: `kvfold.producers.gateway.keyring.Keyring`."""

    def seal(self, scope: str, namespace: str, key: str, value: bytes) -> bytes:
        """The envelope of a value for its place (contract, "Secret envelope")."""
        ...


@dataclass(frozen=True, slots=True)
class Admitted:
    """A mutation that may be appended, its record, and the partition that the record belongs to."""

    mutation: Mutation
    record: NewRecord
    partition: int


def admit(
    mutation: Mutation, partition_count: int, *, allow_system: bool = False, secrets: Sealer | None = None
) -> Admitted:
    """Lets a mutation in, or says why not. Nothing is appended here.

    A value for a secret namespace is taken as plaintext, whatever it looks like, and sealed with `secrets`.

    Raises:
        InvalidError: with the code of the decision that the fold would have made (`malformed`, `unknown-type`,
            `invalid-key`, `too-large`, …); `system-refused` for `system.*` without `allow_system`;
            `secret-and-volatile`.
        UnavailableError: `encryption-key-missing`, see `check_tier`.
    """
    if mutation.type.startswith(_SYSTEM) and not allow_system:
        raise InvalidError(
            "records about the log itself are appended by operators' commands only", code="system-refused"
        )
    if secrets is not None:
        mutation = _sealed(mutation, secrets)
    record = _record(mutation)
    formed = check_mutation(mutation, partition_count)
    if isinstance(formed, Decision):
        raise _refused_form(formed, mutation)
    _check_rules(formed, secrets)
    check_record(record)
    assert record.key is not None
    return Admitted(mutation, record, partition_of(record.key, partition_count))


def check_tier(namespace: str, secrets: Sealer | None = None) -> None:
    """Refuses a namespace that the log is no way to, or not without a key (rows D8, D10 to D12); a plain one passes.

    Raises:
        InvalidError: `secret-and-volatile`, at whatever depth the two suffixes stand; `volatile-in-log`.
        UnavailableError: `encryption-key-missing`: it is secret, and there are no `secrets`.
    """
    match tier_of(namespace):
        case Tier.REFUSED:
            raise InvalidError("a namespace is secret or volatile, never both", code="secret-and-volatile")
        case Tier.VOLATILE:
            raise InvalidError("a volatile namespace never goes through the log", code="volatile-in-log")
        case Tier.SECRET:
            if secrets is None:
                raise no_key()
        case Tier.PERSISTENT:
            pass


def no_key() -> UnavailableError:
    """The error of a process that has no key at all (row D11)."""
    return UnavailableError(
        f"no encryption key is configured: a secret namespace cannot be used ({KEY_VARIABLE})",
        code="encryption-key-missing",
    )


def _sealed(mutation: Mutation, secrets: Sealer) -> Mutation:
    """The mutation with its value sealed where its namespace is secret. Judged afterwards, like any other.

    A restored secret is ciphertext already; plaintext there is refused, by the rules of the fold.
    """
    namespace, key, body = mutation.namespace, mutation.subject, mutation.body
    if mutation.type != _PUT or namespace is None or key is None or body is None:
        return mutation
    if tier_of(namespace) is not Tier.SECRET:
        return mutation
    return replace(mutation, body=secrets.seal(mutation.scope, namespace, key, body))


def _check_rules(formed: Formed, secrets: Sealer | None) -> None:
    """The tier comes between: a bad name is the caller's fault first, a missing envelope is our tier's."""
    decision = validate(formed)
    namespace = formed.mutation.namespace
    tier_codes = (None, "secret-not-encrypted", "too-large")
    # A restored secret comes as ciphertext: whoever has the key reads it, this process needs none.
    if (
        namespace is not None
        and not formed.type.is_restore
        and (None if decision is None else decision.code) in tier_codes
    ):
        check_tier(namespace, secrets)
    if decision is not None:
        raise _refused(decision)


def _record(mutation: Mutation) -> NewRecord:
    """The record, proven to read back as the same mutation: a header that the codec refuses is refused here."""
    if not is_mutation_id(mutation.id) or mutation.id != mutation.id.lower():
        raise InvalidError("the mutation id must be a UUID in lower-case canonical text", code="malformed-id")
    try:
        record = encode(mutation)
    except UnicodeEncodeError as error:
        raise InvalidError(_surrogate(mutation), code=_surrogate_code(mutation)) from error
    decoded = decode(Record(0, 0, 0, record.key, record.headers, record.value))
    if isinstance(decoded, Malformed):
        raise InvalidError(decoded.detail, code="malformed")
    # An empty prefix is an absent attribute (contract, "A log record").
    assert decoded == replace(mutation, subject=mutation.subject or None), "encode and decode agree"
    return record


def _surrogate_code(mutation: Mutation) -> str:
    subject = mutation.subject or ""
    return "malformed" if subject.encode("utf-8", "ignore").decode() == subject else "invalid-key"


def _surrogate(mutation: Mutation) -> str:
    what = "the key" if _surrogate_code(mutation) == "invalid-key" else "an attribute"
    return f"{what} holds a lone surrogate: it must be UTF-8"


def _refused_form(decision: Decision, mutation: Mutation) -> InvalidError:
    """As `_refused`, and where a JSON body has another shape: at which place, and what is accepted there."""
    if mutation.type in BODY_MODELS and mutation.body is not None:
        try:
            parse_body(mutation.type, mutation.body)
        except MisshapenBodyError as error:
            if str(error) == decision.detail:
                return InvalidError(f"{error}: {error.place}: {error.what}", code=error.code)
        except InvalidError:
            pass
    return _refused(decision)


def _refused(decision: Decision) -> InvalidError:
    assert decision.code is not None, "a rejection has a code"
    return InvalidError(decision.detail or decision.code, code=decision.code)
