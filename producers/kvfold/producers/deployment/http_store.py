"""The object store over HTTP: a runtime's way to the tiers that its orchestrator keeps (003, "How the runtime talks to it").

A request is repeated where no answer came, or one that says to try again. Each put and delete has an idempotency key of its
own, so that a repeat of a write that was done has that write's outcome. A volatile namespace knows no such keys: there a
write that may have been done is not repeated.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NoReturn
from urllib.parse import quote, urlencode
from uuid import uuid4

from kvfold.producers.deployment.http_connections import Answer, HttpConnections, NoAnswerError
from kvfold.producers.deployment.object_store import (
    check_key,
    check_listed,
    check_namespace,
    check_page,
    check_value,
    check_version,
)
from kvfold.reads.deployment import DeploymentObject, DeploymentValue, ObjectPage
from kvfold.schemas.errors import (
    ConfigurationError,
    ConflictError,
    InvalidError,
    KvfoldError,
    RejectedError,
    UnavailableError,
)
from kvfold.schemas.limits import INT64_MAX, PAGE_LIMIT_DEFAULT
from kvfold.schemas.names import check_deployment_name
from kvfold.schemas.tiers import Tier

__all__ = ["HttpStore", "UnexpectedAnswerError"]

_TIMEOUT_S: Final = 20.0
_DELAY_S_MIN: Final = 0.1
_DELAY_S_MAX: Final = 2.0
_AGAIN: Final = frozenset({429, 502, 503, 504})
# Nothing that goes by itself within some seconds.
_NOT_AGAIN: Final = frozenset({"encryption-key-missing", "partition-paused", "volatile-unavailable"})
_VERSION: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,8192}", re.ASCII)
_VERSION_HEADER: Final = "X-Object-Version"


class UnexpectedAnswerError(KvfoldError):
    """The server answered what the contract does not know; `status` is the answer's. Something else may listen there."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message, code="unexpected-answer")
        self.status = status


class HttpStore:
    """`ObjectStore` of one deployment at an orchestrator, or at anything that serves the same routes."""

    def __init__(
        self, url: str, deployment_id: str, *, token: str | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        """`token` goes along as a bearer token. `timeout_s`: after it, nothing is tried again; an answer takes 10 s at most.

        Raises:
            ConfigurationError: `url` or `token` is none.
            InvalidError: `malformed-name`, for the deployment id.
        """
        problem = check_deployment_name("the deployment id", deployment_id)
        if problem is not None:
            raise InvalidError(problem, code="malformed-name")
        if token is not None and not _TOKEN.fullmatch(token):
            raise ConfigurationError("accepted as a token is printable ASCII without blanks")
        self._connections = HttpConnections(url)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._base = f"/deployments/{quote(deployment_id, safe='')}/kv/"
        self._timeout_s = timeout_s

    def get(self, namespace: str, key: str) -> DeploymentValue | None:
        """As `ObjectStore.get`."""
        check_namespace(namespace)
        check_key(key)
        answer = self._asked("GET", self._target(namespace, key))
        if answer.status == 404:
            return None
        return DeploymentValue(answer.body, _version(answer)) if answer.status == 200 else _refuse(answer)

    def put(self, namespace: str, key: str, value: bytes, *, expected: int = 0) -> int:
        """As `ObjectStore.put`."""
        tier = check_namespace(namespace)
        check_key(key)
        check_value(value)
        check_version(expected)
        answer = self._written("PUT", self._target(namespace, key), tier, expected, bytes(value))
        return _version(answer) if answer.status in (200, 201) else _refuse(answer)

    def delete(self, namespace: str, key: str, *, expected: int = 0) -> None:
        """As `ObjectStore.delete`."""
        tier = check_namespace(namespace)
        check_key(key)
        check_version(expected)
        answer = self._written("DELETE", self._target(namespace, key), tier, expected, None)
        if answer.status not in (200, 204):
            _refuse(answer)

    def list(
        self, namespace: str, *, prefix: str = "", cursor: str | None = None, limit: int = PAGE_LIMIT_DEFAULT
    ) -> ObjectPage:
        """As `ObjectStore.list`."""
        check_listed(namespace)
        check_page(prefix=prefix, cursor=cursor, limit=limit)
        given = {"prefix": prefix or None, "cursor": cursor, "limit": limit}
        query = urlencode({name: text for name, text in given.items() if text is not None}, quote_via=quote)
        answer = self._asked("GET", f"{self._base}{quote(namespace, safe='')}?{query}")
        return _page(answer) if answer.status == 200 else _refuse(answer)

    def close(self) -> None:
        """Closes the connections that are idle."""
        self._connections.close()

    def _target(self, namespace: str, key: str) -> str:
        """The path of a key, or the query for one that a proxy on the way would rewrite."""
        base = self._base + quote(namespace, safe="")
        if any(part in ("", ".", "..") for part in key.split("/")):
            return f"{base}?key={quote(key, safe='')}"
        return f"{base}/{quote(key, safe='/')}"

    def _written(self, method: str, target: str, tier: Tier, expected: int, body: bytes | None) -> Answer:
        headers = {_VERSION_HEADER: str(expected), "Idempotency-Key": str(uuid4())}
        if body is not None:
            headers["Content-Type"] = "application/octet-stream"
        return self._asked(
            method, target, headers=headers, body=body, is_repeatable=tier is not Tier.VOLATILE
        )

    def _asked(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        is_repeatable: bool = True,
    ) -> Answer:
        """An answer that says more than to come again.

        Raises:
            UnavailableError: there was none in time. A write may have been done; the text says so.
        """
        deadline = time.monotonic() + self._timeout_s
        delay_s = _DELAY_S_MIN
        while True:
            try:
                answer = self._connections.request(
                    method, target, headers={**self._headers, **(headers or {})}, body=body
                )
            except NoAnswerError as error:
                failed = UnavailableError(_silence(error, method), code="server-away")
                failed.__cause__ = error
                may_repeat = is_repeatable or not error.may_have_arrived
            else:
                if answer.status not in _AGAIN:
                    return answer
                code = _problem(answer).get("code", f"http-{answer.status}")
                failed = UnavailableError(_text(answer), code=str(code))
                may_repeat = is_repeatable and code not in _NOT_AGAIN
            if not may_repeat or time.monotonic() + delay_s > deadline:
                raise failed
            time.sleep(delay_s)
            delay_s = min(2 * delay_s, _DELAY_S_MAX)


def _silence(error: NoAnswerError, method: str) -> str:
    done = ": what was asked for may have been done" if error.may_have_arrived and method != "GET" else ""
    return f"no answer from the orchestrator ({error}){done}"


def _version(answer: Answer) -> int:
    text = answer.headers.get(_VERSION_HEADER.lower(), "")
    if not _VERSION.fullmatch(text) or int(text) > INT64_MAX:
        raise UnexpectedAnswerError(
            f"the answer {answer.status} has no version in {_VERSION_HEADER}", status=answer.status
        )
    return int(text)


def _page(answer: Answer) -> ObjectPage:
    try:
        document = json.loads(answer.body)
        objects = tuple(
            DeploymentObject(item["key"], item["version"], item["size"], _milliseconds(item["updated_at"]))
            for item in document["objects"]
        )
        return ObjectPage(objects, document["next_cursor"])
    except (ValueError, KeyError, TypeError) as error:
        raise UnexpectedAnswerError("the answer is no page of objects", status=answer.status) from error


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def _refuse(answer: Answer) -> NoReturn:
    """The error of an answer that says no."""
    code = _problem(answer).get("code")
    if answer.status == 409:
        version = answer.headers.get(_VERSION_HEADER.lower(), "")
        raise ConflictError(_text(answer), version=int(version) if _VERSION.fullmatch(version) else None)
    if answer.status == 413:
        raise InvalidError(_text(answer), code="too-large")
    if answer.status == 400 and code is not None:
        raise InvalidError(_text(answer), code=str(code))
    if answer.status == 422 and code is not None:
        raise RejectedError(_text(answer), code=str(code))
    raise UnexpectedAnswerError(
        f"the orchestrator answered {answer.status}: {_text(answer)}", status=answer.status
    )


def _problem(answer: Answer) -> dict[str, Any]:
    """The problem document (RFC 9457); empty where there is none."""
    try:
        problem = json.loads(answer.body)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _text(answer: Answer) -> str:
    problem = _problem(answer)
    return str(problem.get("detail") or problem.get("title") or f"status {answer.status}")[:500]
