"""`HttpKvStore`: the store behind a gateway, for hosts that reach neither log nor Postgres. Needs the extra `http`."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from time import sleep
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

import httpx
from uuid6 import uuid7

from kvfold.producers.capsule.checks import (
    checked_key,
    checked_page,
    checked_prefix,
    checked_value,
    parts_of,
)
from kvfold.producers.capsule.errors import HostError, InvalidKey, Quota, TooLarge, Unavailable, Unknown
from kvfold.producers.capsule.listing import WholeListing
from kvfold.producers.capsule.store import KeyPage
from kvfold.schemas.errors import InvalidError
from kvfold.schemas.names import capsule_scope
from kvfold.schemas.position import format_positions, parse_positions

__all__ = ["HttpKvStore"]

_ATTEMPTS_MAX: Final = 3
_REPEAT_PAUSE_S: Final = 0.1
_ANSWER_TIMEOUT_S: Final = 30.0
_CONNECT_TIMEOUT_S: Final = 5.0
_PARTITIONS_KEPT_MAX: Final = 4_096
_DECISION_WAIT_S: Final = 7
_POSITION: Final = "X-Kvfold-Position"
_ERRORS: Final[Mapping[str, type[HostError]]] = {
    error.host_code: error for error in (InvalidKey, TooLarge, Quota)
}


class HttpKvStore(WholeListing):
    """A `PagedKvStore` on a kvfold gateway. Safe for several threads; closed by `close` or as a context manager.

    A write whose answer was lost is repeated with the same idempotency key, so it is applied once. A read demands the
    positions of all writes that this store had an answer to, so it sees them, whichever server of a fleet answers.
    """

    def __init__(self, url: str, *, transport: httpx.BaseTransport | None = None) -> None:
        """`url` is the gateway's: `http://127.0.0.1:8080`. Proxies and certificates of one's own come in `transport`."""
        timeout = httpx.Timeout(_ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
        self._http = httpx.Client(base_url=url, timeout=timeout, transport=transport, trust_env=False)
        self._lock = threading.Lock()
        self._written: dict[int, int] = {}
        self._partitions: dict[str, int] = {}

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writes ---

    def set(self, namespace: str, key: str, value: bytes) -> None:
        """See `KvStore`."""
        route = _route(namespace, "kv")
        checked_key(key)
        self._written_by("PUT", namespace, route, {"key": key}, content=checked_value(value))

    def delete(self, namespace: str, key: str) -> bool:
        """See `KvStore`."""
        parts_of(namespace)
        checked_key(key)
        # The key's own route does not say whether there was anything to delete; a decision does.
        return bool(self._decided(namespace, "kvfold.capsule.deleted.v1", key)["version"])

    def compare_and_swap(self, namespace: str, key: str, expected: bytes | None, new: bytes) -> bool:
        """See `KvStore`."""
        route = _route(namespace, "kv")
        checked_key(key)
        new = checked_value(new)
        condition = {"If-None-Match": "*"} if expected is None else {"If-Match": _tag(expected)}
        answer = self._written_by("PUT", namespace, route, {"key": key}, headers=condition, content=new)
        return answer.status_code != httpx.codes.PRECONDITION_FAILED

    def clear_namespace(self, namespace: str) -> int:
        """See `KvStore`."""
        parts_of(namespace)
        return int(self._decided(namespace, "kvfold.capsule.namespace-cleared.v1", None)["removed"])

    def clear_prefix(self, namespace: str, prefix: str) -> int:
        """See `KvStore`."""
        route = _route(namespace, "keys")
        checked_prefix(prefix)
        answer = self._written_by("DELETE", namespace, route, {"prefix": prefix})
        return int(answer.json()["removed"])

    # --- reads ---

    def get(self, namespace: str, key: str) -> bytes | None:
        """See `KvStore`."""
        route = _route(namespace, "kv")
        checked_key(key)
        answer = self._read("GET", namespace, route, {"key": key})
        return None if answer.status_code == httpx.codes.NOT_FOUND else answer.content

    def exists(self, namespace: str, key: str) -> bool:
        """See `KvStore`."""
        route = _route(namespace, "kv")
        checked_key(key)
        return self._read("HEAD", namespace, route, {"key": key}).status_code != httpx.codes.NOT_FOUND

    def list_keys_page(self, namespace: str, prefix: str, *, cursor: str | None, limit: int) -> KeyPage:
        """See `PagedKvStore`."""
        route = _route(namespace, "keys")
        checked_page(prefix, cursor, limit)
        query = {"prefix": prefix, "limit": str(limit)} | ({} if cursor is None else {"cursor": cursor})
        page = self._read("GET", namespace, route, query).json()
        return KeyPage(tuple(page["keys"]), page["next_cursor"])

    # --- requests ---

    def _decided(self, namespace: str, kind: str, subject: str | None) -> dict[str, Any]:
        """Sends one mutation by itself as a batch, whose answer has the whole decision."""
        scope = capsule_scope(*parts_of(namespace))
        event = {"specversion": "1.0", "source": "/kvfold/capsule", "type": kind, "partitionkey": scope}
        event |= {"id": str(uuid7())} | ({} if subject is None else {"subject": subject})
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        content = json.dumps([event]).encode()
        wait = {"wait": str(_DECISION_WAIT_S)}
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            answer = self._asked("POST", "/v1/mutations", wait, headers, content)
            if not answer.is_success:
                raise _refused(answer)
            decision: dict[str, Any] = answer.json()[0]
            if decision["status"] != "pending":
                break
            if attempt == _ATTEMPTS_MAX:
                raise Unavailable("the outcome of the write is not known yet (outcome-unknown)")
        if decision["status"] != "applied":
            raise _error(decision, f"the write was {decision['status']}", is_away=False)
        self._keep(namespace, decision["position"])
        return decision

    def _written_by(
        self,
        method: str,
        namespace: str,
        path: str,
        query: dict[str, str],
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> httpx.Response:
        # A repeat in there is the same mutation.
        answer = self._asked(
            method, path, query, {"Idempotency-Key": str(uuid7()), **(headers or {})}, content
        )
        if answer.is_success or answer.status_code == httpx.codes.PRECONDITION_FAILED:
            self._keep(namespace, answer.headers.get(_POSITION))
            return answer
        raise _refused(answer)

    def _read(self, method: str, namespace: str, path: str, query: dict[str, str]) -> httpx.Response:
        with self._lock:
            partition = self._partitions.get(namespace)
            if partition is None:
                demand = dict(self._written)
            else:
                demand = {partition: self._written[partition]} if partition in self._written else {}
        headers = {"X-Kvfold-Min-Position": format_positions(demand)} if demand else {}
        answer = self._asked(method, path, query, headers, b"")
        # A proxy's 404 has no position, and says nothing about a key.
        is_absent = answer.status_code == httpx.codes.NOT_FOUND and _POSITION in answer.headers
        if answer.is_success or is_absent:
            return answer
        raise _refused(answer)

    def _asked(
        self, method: str, path: str, query: dict[str, str], headers: Mapping[str, str], content: bytes
    ) -> httpx.Response:
        """The answer; what was lost on the way, or is not decided yet, is asked again as it was.

        Raises:
            Unavailable: no answer at the last attempt.
        """
        # Not by httpx, which writes a blank as "+", and takes "." and ".." out of paths.
        url = f"{path}?{urlencode(query, quote_via=quote, safe='')}"
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                answer = self._http.request(method, url, headers=dict(headers), content=content)
            except httpx.HTTPError as error:
                if attempt == _ATTEMPTS_MAX:
                    reason = str(error) or type(error).__name__
                    raise Unavailable(f"no answer from the gateway ({reason})") from error
            else:
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or attempt == _ATTEMPTS_MAX:
                    return answer
            sleep(_REPEAT_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def _keep(self, namespace: str, position: str | None) -> None:
        """Remembers where a write of the namespace stands, and so which partition the namespace is in."""
        try:
            ((partition, offset),) = parse_positions(position or "").items()
        except (InvalidError, ValueError):
            return
        with self._lock:
            self._written[partition] = max(offset, self._written.get(partition, -1))
            if len(self._partitions) >= _PARTITIONS_KEPT_MAX:
                # A namespace whose partition is not known demands all of them: slower, and as right.
                self._partitions.clear()
            self._partitions[namespace] = partition


def _route(namespace: str, what: str) -> str:
    principal, capsule_id = parts_of(namespace)
    return f"/v1/capsules/{_segment(principal)}/{_segment(capsule_id)}/{what}"


def _tag(value: bytes) -> str:
    return f'"{hashlib.sha256(value).hexdigest()}"'


def _segment(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")


def _refused(answer: httpx.Response) -> HostError:
    """The error of an answer that is none of those hoped for; what stands before a gateway sends no problem document."""
    try:
        problem = answer.json()
    except ValueError:
        problem = {}
    known = problem if isinstance(problem, dict) else {}
    return _error(known, f"the gateway answers {answer.status_code}", is_away=answer.status_code >= 500)


def _error(problem: Mapping[str, Any], otherwise: str, *, is_away: bool) -> HostError:
    """The host's error for a problem document or a decision, by its code."""
    code = str(problem.get("code") or "")
    text = str(problem.get("detail") or otherwise)
    if code in _ERRORS:
        return _ERRORS[code](text)
    return (Unavailable if is_away else Unknown)(f"{text} ({code})" if code else text)
