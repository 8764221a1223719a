"""Mutations of all families by chance, good and bad, over few scopes and keys so that they meet.

The chance is passed in: the simulation gives its seeded source, Hypothesis one that it can shrink.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from kvfold.schemas.codec import encode
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.partitioning import partition_of
from kvfold.schemas.record import NewRecord
from kvfold.schemas.types import FORMAT_LEVEL
from support.mutations import (
    batch_delete,
    batch_set,
    capsule_batch,
    capsule_cleared,
    capsule_deleted,
    capsule_quota,
    capsule_set,
    deployment_deleted,
    deployment_put,
    envelope,
    format_raised,
    instance_deleted,
    instance_events,
    instance_pruned,
    instance_pruned_before,
    instance_started,
    key_cleared,
    key_set,
    keys_cleared,
    mutation_id,
    namespace_cleared,
    undeployed,
)

__all__ = ["Workload"]

_CAPSULES: Final = ("c:alice:capsule:notes", "c:bob:capsule:notes", "c:bob:capsule:x")
_DEPLOYMENTS: Final = ("d:one", "d:two")
_INSTANCES: Final = ("o:i1", "o:i2", "o:i3")
_KEYS: Final = ("a", "ab", "b", "é", "a%", "\ud7ff")
_VALUES: Final = (b"", b"1", b"22", b"\x00\xff")
_BAD_KEYS: Final = ("a\x00", "\x1f", "e\u0301", "k" * 300)
_CONTENT: Final = (
    *("any", "any", "any", "absent", "present"),
    *(
        f"{negation}sha256:{hashlib.sha256(value).hexdigest()}"
        for value in (b"1", b"22")
        for negation in ("", "not:")
    ),
)
_VERSIONS: Final = ("any", "any", "any", "absent", "present", "version:1", "version:2,3", "not:version:2")
_ENDS: Final[tuple[dict[str, object], ...]] = (
    {"kind": "OrchestrationContinuedAsNew", "input": 1},
    {"kind": "OrchestrationContinuedAsNew", "input": None},
    {"kind": "OrchestrationContinuedAsNew", "input": {"b": 1.5, "a": "é"}},
    {"kind": "CustomStatusUpdated", "status": "s"},
    {"kind": "OrchestrationCompleted", "output": "x"},
    {"kind": "OrchestrationFailed", "error": "x"},
)


class Workload:
    """Draws records one after another; some repeat the id of an earlier one.

    Partitions are raised up to the format level `level_max` at a moment that chance finds.
    """

    def __init__(self, chance: Random, *, partition_count: int = 1, level_max: int = 2) -> None:
        self._chance = chance
        self._level_max = level_max
        self._partition_count = partition_count
        self._sent: list[Mutation] = []
        self._numbers = 0

    def draw(self) -> tuple[int, NewRecord]:
        """A record and the partition that its producer chose: the right one, mostly."""
        kind = self._chance.randrange(20)
        if kind == 0:
            return self._bad()
        if kind == 1 and self._sent:
            return self._place(self._again())
        mutation = self._chance.choice(
            (self._capsule, self._capsule, self._deployment, self._deployment, self._instance)
        )()
        self._sent = [*self._sent[-30:], mutation]
        return self._place(mutation)

    def _place(self, mutation: Mutation) -> tuple[int, NewRecord]:
        record = encode(mutation)
        assert record.key is not None
        return partition_of(record.key, self._partition_count), record

    def _id(self) -> str:
        self._numbers += 1
        return mutation_id(self._numbers)

    def _again(self) -> Mutation:
        """An earlier mutation once more, or its id with another content."""
        mutation = self._chance.choice(self._sent)
        if self._chance.randrange(4):
            return mutation
        return replace(
            mutation, body=b"{}" if mutation.body is not None else None, subject=mutation.subject and "b"
        )

    def _capsule(self) -> Mutation:
        pick = self._chance.choice
        scope, key, id_ = pick(_CAPSULES), pick(_KEYS), self._id()
        expected = pick(_CONTENT)
        kind = self._chance.randrange(14)
        if kind > 11:
            return self._batch(scope, id_)
        if kind < 6:
            return capsule_set(
                key, pick(_VALUES), expected=expected, scope=scope, id_=id_, actor=pick((None, "x"))
            )
        if kind < 9:
            return capsule_deleted(key, expected=expected, scope=scope, id_=id_)
        rare: tuple[Callable[[], Mutation], ...] = (
            lambda: capsule_cleared(pick((None, "a", "é", *_BAD_KEYS)), scope=scope, id_=id_),
            lambda: namespace_cleared(scope=scope, id_=id_),
            lambda: capsule_quota(pick((0, 5, 9, 1_000)), scope=scope, id_=id_),
        )
        return rare[kind - 9]()

    def _batch(self, scope: str, id_: str) -> Mutation:
        pick, size = self._chance.choice, self._chance.randrange(1, 5)
        keys = self._chance.sample(_KEYS, size)
        if self._chance.randrange(12) == 0:
            keys.append(pick((keys[0], *_BAD_KEYS[1:])))
        operations = [pick((batch_set(key, pick(_VALUES)), batch_delete(key))) for key in keys]
        # Rarely more than one: few batches would be applied.
        tested = [pick(_KEYS) for _ in range(pick((0, 0, 1, 1, 2)))]
        conditions = [(key, pick(_CONTENT[3:])) for key in tested]
        return capsule_batch(
            *operations, conditions=conditions, scope=scope, id_=id_, actor=pick((None, "x"))
        )

    def _deployment(self) -> Mutation:
        pick = self._chance.choice
        scope, key, id_ = pick(_DEPLOYMENTS), pick(_KEYS[:3]), self._id()
        namespace, expected = pick(("user", "user", "x_secrets")), pick(_VERSIONS)
        kind = self._chance.randrange(12)
        if kind < 7:
            nonce = bytes((self._chance.randrange(256),)) * 12
            value = envelope(1, nonce=nonce) if namespace == "x_secrets" else pick(_VALUES)
            return deployment_put(key, value, namespace=namespace, expected=expected, scope=scope, id_=id_)
        if kind < 11:
            return deployment_deleted(key, namespace=namespace, expected=expected, scope=scope, id_=id_)
        return undeployed(scope=scope, id_=id_)

    def _instance(self) -> Mutation:
        pick = self._chance.choice
        scope, id_ = pick(_INSTANCES), self._id()
        kind = self._chance.randrange(10)
        if kind < 2:
            modes = ("external",) * 5 + ("runtime",)
            return instance_started(mode=pick(modes), scope=scope, id_=id_)
        if kind == 2:
            number, keep = pick((1, 2, 3)), pick((None, True))
            if self._numbers % 2:
                return instance_pruned_before(number, scope=scope, id_=id_)
            return instance_pruned([number], keep_values=keep, scope=scope, id_=id_)
        if kind == 3 and self._chance.randrange(2):
            return instance_deleted(scope=scope, id_=id_)
        keys = _KEYS + tuple(f"k{number}" for number in range(8))
        events = [
            pick(
                (
                    key_set(pick(keys), pick(("", "x"))),
                    key_set(pick(keys)),
                    key_cleared(pick(keys)),
                    keys_cleared(),
                )
            )
            for _ in range(self._chance.randrange(1, 6))
        ]
        if self._chance.randrange(5) == 0:
            events = [
                key_set(key, pick(("x", "x" * 17_000))) for key in keys[: self._chance.randrange(1, 14)]
            ]
        if self._chance.randrange(3) == 0:
            events.append(pick(_ENDS))
        return instance_events(*events, execution=pick((1, 1, 2)), scope=scope, id_=id_)

    def _bad(self) -> tuple[int, NewRecord]:
        pick = self._chance.choice
        mutation = capsule_set(pick(_KEYS), scope=pick(_CAPSULES), id_=self._id())
        partition, good = self._place(mutation)
        if self._partition_count > 1 and self._chance.randrange(3) == 0:
            return (partition + 1) % self._partition_count, good
        # A level that may not follow, wherever the partition stands; or the next one.
        number = FORMAT_LEVEL + 2 if self._numbers % 2 else self._level_max
        level = format_raised(
            number, partition=partition, partition_count=self._partition_count, id_=mutation.id
        )
        bad = (
            NewRecord(None, good.headers, good.value),
            NewRecord(good.key, good.headers, None),
            NewRecord(b"\xff", good.headers, b""),
            NewRecord(b"k" * 600, (), None),
            NewRecord(good.key, (), good.value),
            NewRecord(good.key, (*good.headers, good.headers[0]), good.value),
            NewRecord(good.key, (*good.headers, ("ce_kvactor", b"\xff")), good.value),
            encode(replace(mutation, type=pick(("kvfold.capsule.restored.v1", "other")))),
            encode(replace(mutation, subject=pick(_BAD_KEYS))),
            encode(
                deployment_put(
                    "k", namespace=pick(("v_volatile", "v_secrets", "a_secrets_volatile")), id_=mutation.id
                )
            ),
            encode(
                replace(instance_started(id_=mutation.id), body=pick((b"", b"{", b'{"name":1}', b"[" * 99)))
            ),
            encode(level),
        )
        record = pick(bad)
        return (partition if record.key is None else partition_of(record.key, self._partition_count)), record
