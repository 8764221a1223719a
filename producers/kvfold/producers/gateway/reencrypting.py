"""Sealing a deployment's secrets anew with the current key, a page at a time (row D10).

The plaintext stays in this process. Each secret that an older key sealed is read, opened, sealed and put with the version
that was read as its precondition, so a writer in between keeps what it wrote. What the current key sealed is left alone:
so a run that was broken off is repeated from the start, or from its last cursor, and comes to the same end.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.producers import mutations
from kvfold.producers.doors import no_key
from kvfold.producers.gateway.answers import undecided_answer
from kvfold.producers.gateway.context import GatewayContext
from kvfold.producers.gateway.documents import ReencryptedDocument, UnopenedSecret
from kvfold.producers.gateway.identity import refuse_conditions
from kvfold.producers.gateway.keyring import SecretUnreadableError
from kvfold.producers.gateway.scopes import deployment_scope_of
from kvfold.producers.gateway.writing import Undecided, write
from kvfold.reads.deployment import (
    DeploymentObject,
    deployment_namespaces,
    deployment_objects,
    deployment_value,
)
from kvfold.reads.executor import AsyncReader
from kvfold.schemas.errors import InvalidError, UnavailableError
from kvfold.schemas.outcome import DecisionStatus
from kvfold.schemas.precondition import Precondition
from kvfold.schemas.strict_json import decode_json, encode_json
from kvfold.schemas.tiers import Tier, tier_of

__all__ = ["SECRETS_A_PAGE_MAX", "reencrypt"]

SECRETS_A_PAGE_MAX: Final = 100
_PAGE_TIME_S: Final = 5.0
"""After so long a page ends where it is: the answer comes in time, whatever a write takes."""

_CURSOR_CHARS_MAX: Final = 8_192
_START: Final = ("", "")

_Place = tuple[str, str]


async def reencrypt(context: GatewayContext, call: Call) -> Response:
    """`POST /deployments/{id}/reencrypt?cursor=`: one page, and the cursor of the next."""
    refuse_conditions(call)
    scope = deployment_scope_of(call)
    after = _decoded(call.query.get("cursor"))
    if context.secrets is None:
        raise no_key()
    assert context.reader is not None, "the route is there only with a reader"
    done = ReencryptedDocument(checked=0, reencrypted=0, changed=0, unopened=[], next_cursor=None)
    deadline = asyncio.get_running_loop().time() + _PAGE_TIME_S
    async for namespace, item in _secrets(context.reader, scope, after):
        if done.checked == SECRETS_A_PAGE_MAX or asyncio.get_running_loop().time() > deadline:
            done.next_cursor = _encoded(after)
            break
        failed = await _reencrypt_one(context, call, (namespace, item.key), done)
        if failed is not None:
            return undecided_answer(failed)
        after = (namespace, item.key)
        done.checked += 1
    return Response(done.model_dump_json().encode(), media_type="application/json")


async def _reencrypt_one(
    context: GatewayContext, call: Call, place: _Place, done: ReencryptedDocument
) -> Undecided | None:
    """Counts what became of one secret in `done`; gives the write whose outcome is not known."""
    assert context.secrets is not None and context.reader is not None
    scope, (namespace, key) = deployment_scope_of(call), place
    partition = await context.reader.partition(scope)
    read = await context.reader.read(deployment_value(scope, namespace, key, partition=partition))
    entry = read.value
    if entry is None or context.secrets.is_current(entry.value):
        return None
    try:
        value = context.secrets.open(scope, namespace, key, entry.value)
    except (SecretUnreadableError, UnavailableError) as error:
        done.unopened.append(UnopenedSecret(namespace=namespace, key=key, code=error.code))
        return None
    expected = Precondition.version(entry.version)
    mutation = mutations.deployment_put(scope, namespace, key, value, expected=expected, actor=call.actor)
    written = await write(context.producer, mutation, timeout_s=context.write_timeout_s)
    if isinstance(written, Undecided):
        return written
    if written.decision.status is DecisionStatus.APPLIED:
        done.reencrypted += 1
    else:
        assert written.decision.status is DecisionStatus.CONFLICT, "what was in the store is accepted again"
        done.changed += 1
    return None


async def _secrets(
    reader: AsyncReader, scope: str, after: _Place
) -> AsyncIterator[tuple[str, DeploymentObject]]:
    """Every secret of the deployment behind a place, by namespace and key in byte order."""
    partition = await reader.partition(scope)
    names = (await reader.read(deployment_namespaces(scope, partition=partition))).value
    for namespace in names:
        if tier_of(namespace) is not Tier.SECRET or namespace < after[0]:
            continue
        cursor = after[1] if namespace == after[0] else None
        while True:
            query = deployment_objects(
                scope,
                namespace,
                prefix="",
                cursor=cursor,
                limit=SECRETS_A_PAGE_MAX + 1,
                partition=partition,
            )
            page = (await reader.read(query)).value
            for item in page.objects:
                yield namespace, item
            cursor = page.next_cursor
            if cursor is None:
                break


def _encoded(place: _Place) -> str:
    return base64.urlsafe_b64encode(encode_json(list(place))).decode("ascii")


def _decoded(cursor: str | None) -> _Place:
    """The place that a cursor names. Raises InvalidError `malformed-cursor`."""
    if cursor is None:
        return _START
    try:
        if len(cursor) > _CURSOR_CHARS_MAX:
            raise ValueError
        match decode_json(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)):
            case [str(namespace), str(key)]:
                return namespace, key
    except (ValueError, binascii.Error, InvalidError):
        pass
    raise InvalidError("the cursor is none that this route gave", code="malformed-cursor")
