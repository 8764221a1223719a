"""The door: what every way in (SDK, gateway, `kvfold emit`) refuses before anything is appended.

The rules are the fold's own, so a caller hears at once, with the same code, what the fold would have decided. The
door asks three things more: that the record reads back as the mutation it was made from, that `system.*` comes from an
operator, and that a secret or volatile namespace has the tier behind it that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvfold.log.framing import check_record
from kvfold.schemas.bodies import BODY_MODELS, MisshapenBodyError, parse_body
from kvfold.schemas.codec import Malformed, decode, encode, is_mutation_id
from kvfold.schemas.errors import InvalidError, UnavailableError
from kvfold.schemas.form import Formed, check_mutation
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.names import namespace_suffixes
from kvfold.schemas.outcome import Decision
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.record import NewRecord, Record
from kvfold.schemas.rules import validate

__all__ = ["Admitted", "admit", "check_tier"]

_SYSTEM = "kvfold.system."


@dataclass(frozen=True, slots=True)
class Admitted:
    """A mutation that may be appended, its record, and the partition that the record belongs to."""

    mutation: Mutation
    record: NewRecord
    partition: int


def admit(mutation: Mutation, partition_count: int, *, allow_system: bool = False) -> Admitted:
    """Lets a mutation in, or says why not. Nothing is appended here.

    Raises:
        InvalidError: with the code of the decision that the fold would have made (`malformed`, `unknown-type`,
            `invalid-key`, `too-large`, …); `system-refused` for `system.*` without `allow_system`;
            `secret-and-volatile`.
        UnavailableError: `encryption-key-missing` or `volatile-unavailable`, see `check_tier`.
    """
    if mutation.type.startswith(_SYSTEM) and not allow_system:
        raise InvalidError(
            "records about the log itself are appended by operators' commands only", code="system-refused"
        )
    record = _record(mutation)
    formed = check_mutation(mutation, partition_count)
    if isinstance(formed, Decision):
        raise _refused_form(formed, mutation)
    _check_rules(formed)
    check_record(record)
    assert record.key is not None
    return Admitted(mutation, record, partition_of(record.key, partition_count))


def check_tier(namespace: str) -> None:
    """Refuses a namespace whose tier is not there (rows D8, D10 to D12); a plain one passes.

    Values of secret namespaces must be encrypted before they are appended, and volatile ones never meet the log. Until
    both tiers exist, every door refuses them here.

    Raises:
        InvalidError: `secret-and-volatile`, at whatever depth the two suffixes stand.
        UnavailableError: `encryption-key-missing` (secret), `volatile-unavailable` (volatile).
    """
    suffixes = namespace_suffixes(namespace)[1]
    if len(suffixes) > 1:
        raise InvalidError("a namespace is secret or volatile, never both", code="secret-and-volatile")
    if "_secrets" in suffixes:
        raise UnavailableError(
            "no encryption key is configured: a secret namespace cannot be used",
            code="encryption-key-missing",
        )
    if "_volatile" in suffixes:
        raise UnavailableError("the volatile tier is not available", code="volatile-unavailable")


def _check_rules(formed: Formed) -> None:
    """The tier comes between: a bad name is the caller's fault first, a missing envelope is our tier's."""
    decision = validate(formed)
    namespace = formed.mutation.namespace
    tier_codes = (None, "secret-not-encrypted", "volatile-in-log", "too-large")
    # A restored secret comes as ciphertext: whoever has the key reads it, this process needs none.
    if (
        namespace is not None
        and not formed.type.is_restore
        and (None if decision is None else decision.code) in tier_codes
    ):
        check_tier(namespace)
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
